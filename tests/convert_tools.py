"""What the tests of converted models share: bounds that follow from a format, the engine's logits, text identity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov

from wager.bench.quality import Reader
from wager.llm import LLM
from wager.models.convert_passes import matrices
from wager.models.low_bit import folded
from wager.models.openvino import read_graph
from wager.types import F32, Sampling


def weights(folder: Path) -> list[F32]:
    """Every matrix as float32, in the order of the graph; one that is read twice comes twice."""
    found = [folded(value.get_node()) for _, value, _ in _values(read_graph(ov.Core(), folder))]
    assert all(matrix is not None for matrix in found)
    return [matrix for matrix in found if matrix is not None]


def _values(model: ov.Model):
    return [(port, port.get_source_output(), constant) for port, _, constant in matrices(model)]


def half_steps(matrix: F32, form: str) -> F32:
    """The largest error that rounding to a form makes of each weight: half the distance of two numbers it can hold.

    Where codes go from -8 to 7 (-128 to 127), what is clipped at the upper end is off by up to a whole step.
    """
    if form == "f16":
        return np.maximum(np.abs(matrix) * 2**-11, 2**-25)
    rows, cols = matrix.shape
    group = cols if form == "int8-channel" else int(form.split("-")[1])
    groups = matrix.reshape(rows, cols // group, group)
    largest = np.abs(groups).max(-1, keepdims=True)
    step = largest / (127 if form.startswith("int8") else 7)
    return np.broadcast_to(step, groups.shape).reshape(rows, cols)


def relative_errors(source: list[F32], made: list[F32]) -> F32:
    """Frobenius norm of each matrix's error over that of the matrix."""
    pairs = zip(source, made, strict=True)
    return np.array([np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in pairs], np.float32)


def engine_logits(folder: Path, ids: list[int]) -> F32:
    """(T, V) of the paged graph, in exact arithmetic, as the engine reads a prompt."""
    with Reader(folder, "reference", 1) as reader:
        return np.concatenate([part.copy() for part in reader.logits([*ids, 0])])


def logit_error(ours: F32, source: F32) -> float:
    """Root mean square of the difference over that of the source's logits, rows centred (a shift changes no law)."""
    ours, source = (x - x.mean(-1, keepdims=True) for x in (ours, source))
    return float(np.linalg.norm(ours - source) / np.linalg.norm(source))


def assert_speculation_keeps_text(name: str, prompt: str, *, n_tokens: int = 32, n_merged: int = 0) -> None:
    """Greedy and sampled, with and without look-up drafts; the self-check promises it, and products were merged."""
    llm = LLM(name, drafter="lookup", num_draft_tokens=3, threads=1)  # whether it pays is not asked here
    assert llm.info["exactness"] == "bit-identical"
    assert llm.info["passes"]["merge_products"] == n_merged
    tokens = llm.text.encode(prompt)
    for sampling in (Sampling(), Sampling(temperature=0.8, top_p=0.95, seed=5)):
        wanted = Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            max_tokens=n_tokens,
            ignore_eos=True,
        )
        plain, drafted = (llm.generate(tokens, wanted, speculate=s) for s in (False, True))
        assert plain.tokens == drafted.tokens
    assert drafted.stats.n_drafted > 0
    llm.close()
