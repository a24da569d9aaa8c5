"""Metrics of numbers: losses per row (any shape, targets and predictions alike), and correlations of a whole set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import SLACK
from wager.errors import OptionError
from wager.types import F64


def squared(y: F64, x: F64) -> F64:
    """(y - x)^2."""
    return (y - x) ** 2


def absolute(y: F64, x: F64) -> F64:
    """|y - x|."""
    return np.abs(y - x)


def pinball(y: F64, x: F64, tau: float) -> F64:
    """tau (y - x) above the prediction, (1 - tau) (x - y) below it."""
    return np.maximum(tau * (y - x), (tau - 1) * (y - x))


def percentage(y: F64, x: F64) -> F64:
    """|y - x| / |y|, a share; NaN for targets of 0."""
    return np.abs(y - x) / np.where(y == 0, np.nan, np.abs(y))


def squared_log(y: F64, x: F64) -> F64:
    """(log(1 + y) - log(1 + x))^2. Raises ``OptionError`` for numbers <= -1."""
    low = min(float(np.min(y, initial=0.0)), float(np.min(x, initial=0.0)))
    if low <= -1:
        raise OptionError(f"msle met {low!r}, where log(1 + y) is not defined: give numbers above -1")
    return (np.log1p(y) - np.log1p(x)) ** 2


def huber(y: F64, x: F64, delta: float) -> F64:
    """Half the squared error up to ``delta``, and delta (|y - x| - delta / 2) beyond."""
    gap = np.abs(y - x)
    return np.where(gap <= delta, gap**2 / 2, delta * (gap - delta / 2))


def within(y: F64, x: F64, eps: float) -> F64:
    """1 where |y - x| <= eps, up to rounding."""
    return (np.abs(y - x) <= eps * (1 + SLACK)).astype(np.float64)


def pearson(y: F64, x: F64) -> float:
    """Correlation; NaN where targets or predictions are all the same, or fewer than two."""
    if len(y) < 2:
        return float("nan")
    dy, dx = y - y.mean(), x - x.mean()
    # A constant minus its own mean may leave rounding behind: that is no variation.
    if np.abs(dy).max() <= 1e-12 * np.abs(y).max() or np.abs(dx).max() <= 1e-12 * np.abs(x).max():
        return float("nan")
    return float(dy @ dx / np.sqrt((dy @ dy) * (dx @ dx)))


def middle_ranks(x: npt.ArrayLike) -> F64:
    """(n,) ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(x, dtype=np.float64), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], dtype=np.float64)


def spearman(y: F64, x: F64) -> float:
    """Correlation of the ranks."""
    return pearson(middle_ranks(y), middle_ranks(x))


def multipartite(y: F64, x: F64) -> float:
    """Share of pairs with y > y' that have x > x' (ties of x count half), pairs weighted by y - y'; NaN without pairs.

    y - y' is summed over the levels between the two, so this is a weighted mean of one AUC per level: n log n.
    With targets 0 and 1 it is the AUC.
    """
    order = np.argsort(y, kind="stable")
    levels, ranks = y[order], middle_ranks(x)[order]
    above = np.arange(len(y) - 1, 0, -1, dtype=np.float64)  # rows above the gap after row 0, 1, ...
    below = len(y) - above
    pairs = float(np.diff(levels) @ (above * below))
    if not pairs > 0:
        return float("nan")
    rank_sums = np.cumsum(ranks[::-1])[::-1][1:]
    return float(np.diff(levels) @ (rank_sums - above * (above + 1) / 2) / pairs)


def crps(y: float, values: F64, weights: F64) -> float:
    """E|V - y| - E|V - V'| / 2 for V, V' from the law: 0 for a sure and right one (Gneiting, Raftery 2007)."""
    spread = weights @ np.abs(values[:, None] - values[None, :]) @ weights
    return float(weights @ np.abs(values - y) - spread / 2)
