"""How far an imported model is from the weights it came from, measured on a fixed text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wager.errors import ModelError
from wager.models.kernels import kernels, passes
from wager.models.profiles import Profile
from wager.types import F32, F64

FAITHFUL_KL = 5e-3
FAITHFUL_AGREEMENT = 0.95
EXACT_PROPERTIES: Mapping[str, str] = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "KV_CACHE_PRECISION": "f32",
}
_ROWS = 64
_MAX_TOKENS = 512  # bounds the memory for logits: a small vocabulary cuts the text into many more
PROBE = """\
A cache keeps copies of values that were expensive to compute or slow to fetch. It works because programs are
not random: what was used a moment ago is likely to be used again, and what lies beside it is likely to come
next. The price is that every copy can go stale. When the original changes, somebody has to notice, and the
famous joke about the two hard things in computer science is funny mostly because it is true.

Consider a small example in Python. The function below returns the n-th Fibonacci number, and it is hopelessly
slow for large n because it solves the same subproblem again and again.

def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)

The fix is to remember the answers:

def fib(n, memo={0: 0, 1: 1}):
    if n not in memo:
        memo[n] = fib(n - 1, memo) + fib(n - 2, memo)
    return memo[n]

print([fib(i) for i in range(12)])  # [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]

Processors do the same in hardware. A modern core asks for a line of 64 bytes, first from a level that answers
in about 4 cycles, then from one that takes 14, then from one that takes 50 or more; only when all of them
miss does the request travel to main memory, which needs roughly 80 nanoseconds. Multiplying a large matrix by
a vector reads every weight once and uses it once, so no cache can help, and the speed is set by the bandwidth
of the memory alone. Multiplying the same matrix by eight vectors reads every weight once and uses it eight
times. That is why checking several guessed words together costs a language model hardly more than producing a
single one.

The capital of France is Paris, water boils at 100 degrees Celsius at sea level, and the derivative of x^3 is
3x^2. Historians still argue about why the library of Alexandria declined: a fire in 48 BC, the loss of royal
patronage, or simply centuries of neglect. What they agree on is that nobody kept a second copy.
"""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Mean KL(reference || imported) in nats, share of positions with the same most likely token, their number."""

    kl: float
    argmax_agreement: float
    n_tokens: int

    @property
    def faithful(self) -> bool:
        return self.kl <= FAITHFUL_KL and self.argmax_agreement >= FAITHFUL_AGREEMENT


def fidelity(
    ir_dir: Path, gguf_path: Path | None, *, properties: Mapping[str, str] = EXACT_PROPERTIES
) -> Fidelity | None:
    """Compare the IR, compiled with ``properties``, with its GGUF's weights dequantised to float32 (reference.py).

    None when the source is unknown: there is nothing to compare with. Raises ``ModelError`` when the source does not
    have the IR's vocabulary.
    """
    return None if gguf_path is None else fidelities(ir_dir, gguf_path, [Profile("given", dict(properties))])[0]


def fidelities(ir_dir: Path, gguf_path: Path, profiles: Sequence[Profile]) -> list[Fidelity]:
    """``fidelity`` in several profiles, with the reference computed once."""
    from wager.models import reference
    from wager.models.gguf_read import Source

    ids = probe_ids(ir_dir)
    source = Source(gguf_path)
    imported = [imported_logits(ir_dir, ids, p.properties, own_kernels=p.kernels) for p in profiles]
    n_vocab = imported[0].shape[1]
    if n_vocab != source.shape.vocab:
        counts = f"{source.shape.vocab} and {n_vocab} tokens"
        raise ModelError(f"`{gguf_path.name}` and `{ir_dir}` have {counts}: give the file it was imported from")
    kl, same, start = [0.0] * len(profiles), [0] * len(profiles), 0
    for rows in reference.logits(source, reference.hidden_states(source, ids), rows=_ROWS):
        for i, logits in enumerate(imported):
            ours = logits[start : start + len(rows)]
            kl[i] += float(divergence(rows, ours).sum())
            same[i] += int((rows.argmax(-1) == ours.argmax(-1)).sum())
        start += len(rows)
    return [Fidelity(k / len(ids), n / len(ids), len(ids)) for k, n in zip(kl, same, strict=True)]


def divergence(p_logits: F32, q_logits: F32) -> F64:
    """KL(p || q) in nats per row of two (R, V) arrays of logits, computed in float64: (R,)."""
    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return np.asarray((np.exp(p) * (p - q)).sum(-1))


def probe_ids(ir_dir: Path) -> list[int]:
    """The probe text as token ids of the model in ``ir_dir``, BOS included where it wants one: at most 512 of them."""
    import openvino_genai

    tokenizer = openvino_genai.Tokenizer(str(ir_dir))
    return [int(i) for i in tokenizer.encode(PROBE).input_ids.data[0][:_MAX_TOKENS]]


def imported_logits(ir_dir: Path, ids: list[int], properties: Mapping[str, str], *, own_kernels: bool = False) -> F32:
    """Logits (T, V) of the stateful graph in ``ir_dir`` for ``ids`` from position 0.

    ``own_kernels``: its products are ours where there are kernels; attention is the plugin's.
    """
    import openvino as ov

    core = ov.Core()
    graph = core.read_model(ir_dir / "openvino_model.xml")
    packed: dict[passes.Stored, passes.Packed] = {}
    found = kernels()[0] if own_kernels else None
    if found is not None:
        passes.own_products(graph, found, packed)
    compiled = core.compile_model(graph, "CPU", dict(properties))
    n = len(ids)
    inputs = {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, n), np.int64),
        "position_ids": np.arange(n, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    names = {port.any_name for port in compiled.inputs}
    request = compiled.create_infer_request()
    request.infer({name: value for name, value in inputs.items() if name in names})
    return np.array(request.get_tensor("logits").data[0], np.float32)


def log_softmax(logits: F32) -> F64:
    """Of (R, V) float32 logits, in float64."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
