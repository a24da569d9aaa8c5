"""Text does not depend on what a dense store suggests, right or wrong, as chains and as trees: toy and tiny models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine_tools import V, prompts, run, toy
from store_tools import dense_store_of
from wager.drafters.dense import Dense
from wager.drafters.together import Together
from wager.models.openvino import OpenVINOModel
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.types import Sampling

SAMPLINGS = {"greedy": Sampling(max_tokens=40), "sampled": Sampling(temperature=0.8, max_tokens=40)}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize(("depth", "width"), [(6, 1), (4, 3)])
@pytest.mark.parametrize("rule", ["pair", "split"])
def test_text_is_that_of_plain_decoding(sampling: Sampling, depth: int, width: int, rule: str) -> None:
    """The store holds every text to come up to a random place (right drafts), and noise (wrong ones); seed 0."""
    plain = run(toy(rows_rule=rule), sampling)
    rng = np.random.default_rng(0)
    known = [tokens[: rng.integers(1, len(tokens) + 1)] for tokens in plain.tokens]
    store = dense_store_of([*known, *rng.integers(0, V, (200, 30)).tolist()], toy())
    drafter, policy = Dense(store, n_valid_ids=V), Fixed(depth * width, depth=depth, width=width)
    drafted = run(toy(rows_rule=rule), sampling, drafter=drafter, policy=policy)
    assert drafted.tokens == plain.tokens
    fewer = run(toy(rows_rule=rule), sampling, batch=prompts()[:2], drafter=Together([drafter]), policy=Fixed(3))
    assert fewer.tokens == plain.tokens[:2]
    n_drafted, n_accepted = (sum(getattr(s, n) for s in drafted.stats) for n in ("n_drafted", "n_accepted"))
    assert 0 < n_accepted < n_drafted, "right and wrong drafts are what this is about"
    assert sum(s.n_forwards for s in drafted.stats) < sum(s.n_forwards for s in plain.stats)
    assert drafter._queries == {}, "something is kept of sequences that have ended"


def test_an_empty_store_is_plain_decoding() -> None:
    plain = run(toy(), SAMPLINGS["greedy"])
    drafted = run(toy(), SAMPLINGS["greedy"], drafter=Dense(dense_store_of([], toy()), n_valid_ids=V), policy=Fixed(4))
    assert (drafted.tokens, drafted.n_steps) == (plain.tokens, plain.n_steps)
    assert sum(s.n_drafted for s in drafted.stats) == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_on_openvino_the_corpus_of_a_model_tells_its_own_text(tiny_llama: Path, temperature: float) -> None:
    """The model read its own answers: nearly every draft is right."""
    model = OpenVINOModel(tiny_llama, kv_cache_bytes=1 << 24, context_length=512)
    exactness = check_exact(model, model.vocab_size)
    assert exactness.reason is None
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    sampling = Sampling(temperature=temperature, max_tokens=24, ignore_eos=True)
    batch = [[5, 9, 12, 40, 41, 5, 9, 12], [7], list(range(60, 130)), [44] * 32]
    plain = run(model, sampling, batch=batch)
    drafter = Dense(dense_store_of(plain.tokens, model), n_valid_ids=model.vocab_size)
    drafted = run(model, sampling, batch=batch, drafter=drafter, policy=Fixed(4))
    assert drafted.tokens == plain.tokens
    assert sum(s.n_accepted for s in drafted.stats) > 40
