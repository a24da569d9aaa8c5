"""Sign-Perturbed Sums: simulated coverage. Seed 0; 4000 simulations a case, so the share of intervals that contain the
truth has a standard error of .0034: a deviation of .015 is 4.3 of them, a false alarm in 60 000 cases.
"""

from __future__ import annotations

import numpy as np
import pytest

from wager.tuning.sps import paired_levels, sign_perturbed, slope

_N = 4000
_TRUE = 1.7
_LEVELS = (2, 4, 8, 16)


def symmetric(rng, size):
    """Laplace noise whose spread differs from value to value."""
    return rng.laplace(size=size) * rng.uniform(0.2, 3.0, size=size)


def skewed(rng, size):
    """What latency looks like: never below a floor, now and then far above; its mean is 0."""
    return rng.lognormal(sigma=1.5, size=size) - np.exp(1.5**2 / 2)


def covered(found) -> bool:
    return found.low <= _TRUE <= found.high


@pytest.mark.parametrize(("noise", "n_pairs"), [(symmetric, 10), (skewed, 30)])
def test_paired_intervals_hold_for_any_noise(noise, n_pairs):
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(_N):
        x = paired_levels(_LEVELS, n_pairs, rng)
        y = 40 + _TRUE * x + noise(rng, x.shape)
        found = slope(x, y, rng=rng)
        hits += covered(found)
    assert hits / _N == pytest.approx(0.95, abs=0.015)


def test_without_pairing_skewed_noise_breaks_them():
    """The reason for pairs: the same interval on the runs themselves, intercept known, covers far less."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(_N):
        x = rng.choice(_LEVELS, 30).astype(np.float64)
        found = sign_perturbed(x, _TRUE * x + skewed(rng, 30), rng=rng)
        hits += covered(found)
    assert hits / _N < 0.95 - 0.05


def test_without_pairing_symmetric_noise_is_fine():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(_N):
        x = rng.choice(_LEVELS, 30).astype(np.float64)
        found = sign_perturbed(x, _TRUE * x + symmetric(rng, 30), rng=rng)
        hits += covered(found)
    assert hits / _N == pytest.approx(0.95, abs=0.015)


def test_an_interval_holds_the_slope_and_shrinks():
    rng = np.random.default_rng(0)
    spans = []
    for n in (20, 320):
        x = paired_levels(_LEVELS, n, rng)
        found = slope(x, _TRUE * x + rng.standard_normal(x.shape), rng=rng)
        assert found.low <= found.value <= found.high
        assert found.n == n
        spans.append(found.high - found.low)
    assert spans[1] < spans[0] / 2


def test_too_few_values_promise_nothing():
    rng = np.random.default_rng(0)
    found = sign_perturbed(np.array([1.0, 1.0]), np.array([1.0, 2.0]), rng=rng)
    assert (found.low, found.high) == (-np.inf, np.inf)
    found = sign_perturbed(np.zeros(5), np.arange(5.0), rng=rng)
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_pairs_have_two_levels_in_an_order_of_chance():
    pairs = paired_levels((1, 2, 2), 400, np.random.default_rng(0))
    assert (pairs.sum(1) == 3).all()
    assert 130 < (pairs[:, 0] == 1).sum() < 270  # 7 standard deviations
    with pytest.raises(ValueError, match="two different ones"):
        paired_levels((8, 8), 3, np.random.default_rng(0))
