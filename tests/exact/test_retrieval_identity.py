"""Text does not depend on what a store suggests, good or bad, as chains and as trees: on the toy model."""

from __future__ import annotations

import numpy as np
import pytest

from engine_tools import V, prompts, run, toy
from store_tools import store_of
from wager.drafters.retrieval import Retrieval
from wager.policies import Fixed
from wager.types import Sampling

SAMPLINGS = {"greedy": Sampling(max_tokens=40), "sampled": Sampling(temperature=0.8, max_tokens=40)}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize(("depth", "width"), [(6, 1), (4, 3)])
def test_text_is_that_of_plain_decoding(sampling: Sampling, depth: int, width: int) -> None:
    """The store holds every text to come up to a random place (right drafts), and noise (wrong ones); seed 0."""
    plain = run(toy(), sampling)
    rng = np.random.default_rng(0)
    known = [tokens[: rng.integers(1, len(tokens) + 1)] for tokens in plain.tokens]
    store = store_of([*known, *rng.integers(0, V, (200, 30)).tolist()], V)
    drafter = Retrieval(store, n_valid_ids=V)
    drafted = run(toy(), sampling, drafter=drafter, policy=Fixed(depth * width, depth=depth, width=width))
    assert drafted.tokens == plain.tokens
    fewer = run(toy(), sampling, batch=prompts()[:2], drafter=drafter, policy=Fixed(3))
    assert fewer.tokens == plain.tokens[:2]
    n_drafted, n_accepted = (sum(getattr(s, n) for s in drafted.stats) for n in ("n_drafted", "n_accepted"))
    assert 0 < n_accepted < n_drafted, "right and wrong drafts are what this is about"
    assert sum(s.n_forwards for s in drafted.stats) < sum(s.n_forwards for s in plain.stats)
