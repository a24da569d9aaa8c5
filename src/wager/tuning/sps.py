"""Exact finite-sample intervals for a slope: Sign-Perturbed Sums (arXiv 2401.15792) on randomly paired differences.

The intervals hold for any noise that is independent and symmetric about 0. Latency noise is skewed, but the difference
of two runs with the same noise law is symmetric: so runs are paired, before anybody looks at their times. The
intercept cancels in it. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike

import numpy as np

from wager.intervals import Interval
from wager.types import F64

_N_SUMS, _N_OUT = 100, 5  # 1 - 5/100 is the level; more sums only make the ends less random


def paired_levels(levels: ListLike[float], n_pairs: int, rng: np.random.Generator) -> F64:
    """(n_pairs, 2) what to measure, in this order: two different levels a pair, which comes first is chance.

    Drawn before anything is measured. Raises ValueError for fewer than two levels.
    """
    if len(set(levels)) < 2:
        raise ValueError(f"levels {list(levels)}: two different ones are needed")
    distinct = np.array(sorted(set(levels)), np.float64)
    first = rng.integers(0, len(distinct), n_pairs)
    second = (first + rng.integers(1, len(distinct), n_pairs)) % len(distinct)
    return distinct[np.stack([first, second], 1)]


def slope(x: F64, y: F64, *, rng: np.random.Generator) -> Interval:
    """The slope of pairs x (n, 2), y (n, 2): 95 % interval from their differences."""
    assert x.shape == y.shape, (x.shape, y.shape)
    return sign_perturbed(x[:, 1] - x[:, 0], y[:, 1] - y[:, 0], rng=rng)


def sign_perturbed(
    regressor: F64, y: F64, *, rng: np.random.Generator, n_sums: int = _N_SUMS, n_out: int = _N_OUT
) -> Interval:
    """Least-squares slope and interval of level 1 - n_out / n_sums for the b in y = b * regressor + noise, both (n,).

    Exact where the noise is independent and symmetric, whatever else it is. For one unknown the region is an
    interval: each of n_sums - 1 sign vectors gives two ends, and the n_out-th outermost on each side count. It contains
    the slope, and is unbounded where there are too few values.
    """
    assert regressor.shape == y.shape, (regressor.shape, y.shape)
    signs = rng.choice((-1.0, 1.0), (n_sums - 1, len(y)))
    a, b = float(regressor @ regressor), float(regressor @ y)
    if a <= 0:
        return Interval(0.0, -np.inf, np.inf, len(y))
    perturbed_a, perturbed_b = signs @ regressor**2, signs @ (regressor * y)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([(b - perturbed_b) / (a - perturbed_a), (b + perturbed_b) / (a + perturbed_a)])
    whole = np.isclose(np.abs(perturbed_a), a)
    low = np.where(whole, -np.inf, ends.min(0))
    high = np.where(whole, np.inf, ends.max(0))
    return Interval(b / a, float(np.sort(low)[n_out - 1]), float(np.sort(high)[-n_out]), len(y))
