"""Rows of a real vocabulary: what is computed in short form is right to what it says."""

from __future__ import annotations

import numpy as np
import pytest

from wager.sampling import scores
from wager.types import Draft, Sampling, Sequence
from wager.verify import Rows
from wager.wide import exponentials

V = 20_000
OPTIONS = [
    *(Sampling(temperature=t) for t in (0.05, 0.7, 1.0, 3.0)),
    Sampling(temperature=0.8, top_k=5),
    Sampling(temperature=1.0, top_p=0.9, min_p=0.01),
    Sampling(temperature=1.0, logit_bias={7: 3.0}, presence_penalty=0.5),
]


@pytest.mark.parametrize("sampling", OPTIONS)
def test_weights_of_a_long_row_are_those_of_its_scores(sampling: Sampling) -> None:
    """Large ones to the last bits, small ones to 1e-5 of themselves, in total to 1e-7; none where scores are -inf."""
    logits = np.random.default_rng(1).normal(0, 4, V).astype(np.float32)
    logits[::1000] += 15  # a few that matter
    seq = Sequence(0, [1, 7, 7], 1, sampling, seed=0)
    empty = Draft(np.empty(0, np.int32), np.empty(0, np.int32))
    rows = Rows(logits[None], [0], seq, empty)
    x = np.asarray(scores(logits, sampling, tokens=seq.tokens, n_prompt=1), np.float64)
    want, found = np.exp(x - x.max()), rows.weights(-1)
    large = want > np.exp(-8)
    assert large.any()
    assert found[large] == pytest.approx(want[large], rel=1e-15)
    assert found == pytest.approx(want, rel=1e-5, abs=1e-30)
    assert np.abs(found - want).sum() < 1e-7 * want.sum()
    assert np.all(found[want == 0] < 1e-30)
    p = want[want > 0] / want.sum()
    assert rows.entropy(-1) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("n", [5, V])
def test_a_tiny_temperature_leaves_the_best(n: int) -> None:
    x = np.linspace(-1, 1, n).astype(np.float32)
    for temperature in (1e-9, 1e-40, 1e-310):
        assert np.flatnonzero(exponentials(x, temperature=temperature)[0]).tolist() == [n - 1]
