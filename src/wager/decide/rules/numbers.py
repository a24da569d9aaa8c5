"""The best number to predict. ``values`` (n,) are outcomes, ``weights`` (n,) their probabilities (any scale).

All raise ``OptionError`` for an empty law. Where several numbers are equally good, the lowest is given unless a rule
says otherwise. Source: Lukasik et al. 2403.04182 for the idea, textbooks for the closed forms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import SLACK, TIE, first_best, numbers
from wager.errors import OptionError
from wager.types import F64


def mean(values: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Best for squared error; as a score, for the correlation with the targets and for multipartite AUC."""
    y, w = numbers(values, weights)
    return float(w @ y)


def quantile(values: npt.ArrayLike, weights: npt.ArrayLike, *, tau: float) -> float:
    """Best for the pinball loss at ``tau`` in (0, 1): the smallest value with cumulative weight >= tau."""
    if not 0 < tau < 1:
        raise OptionError(f"`tau` is {tau!r}: give a number in (0, 1)")
    y, w = numbers(values, weights)
    order = np.argsort(y, kind="stable")
    reached = np.cumsum(w[order]) >= tau - TIE
    return float(y[order][int(np.argmax(reached)) if reached.any() else -1])


def median(values: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Best for absolute error: the lower weighted median."""
    return quantile(values, weights, tau=0.5)


def percentage_median(values: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Best for |y - x| / |y|: the median under weights w / |y|. Outcomes of 0 count for nothing; if all are, 0."""
    y, w = numbers(values, weights)
    some = (y != 0) & (w > 0)
    return median(y[some], w[some] / np.abs(y[some])) if some.any() else 0.0


def log_mean(values: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Best for squared error of log(1 + y). Raises ``OptionError`` for outcomes <= -1."""
    y, w = numbers(values, weights)
    if (y <= -1).any():
        raise OptionError(f"the law has the value {float(y.min())!r}, where log(1 + y) is not defined: give y > -1")
    return float(np.expm1(w @ np.log1p(y)))


def huber_point(values: npt.ArrayLike, weights: npt.ArrayLike, *, delta: float) -> float:
    """Best for the Huber loss: the lowest x with sum w clip(y - x, -delta, delta) <= 0.

    The sum falls in x and is linear between the y +- delta, so the root is found exactly, not by bisection.
    """
    if not delta > 0:
        raise OptionError(f"`delta` is {delta!r}: give a positive number")
    y, w = numbers(values, weights)
    y, w = y[w > 0], w[w > 0]
    knots = np.unique(np.concatenate([y - delta, y + delta]))
    pull = np.clip(y[None, :] - knots[:, None], -delta, delta) @ w
    right = int(np.argmax(pull <= delta * TIE))
    assert right > 0, pull  # below every outcome the pull is delta
    slope = (pull[right - 1] - pull[right]) / (knots[right] - knots[right - 1])
    return float(min(knots[right], knots[right - 1] + pull[right - 1] / slope))


def window_centre(values: npt.ArrayLike, weights: npt.ArrayLike, *, eps: float) -> float:
    """Best for being within ``eps`` >= 0: the window of width 2 eps with most weight (the lowest such).

    Given is the middle between the lowest and the highest outcome in the window.
    """
    if not eps >= 0:
        raise OptionError(f"`eps` is {eps!r}: give a number >= 0")
    y, w = numbers(values, weights)
    order = np.argsort(y, kind="stable")
    y, w = y[order], w[order]
    total = np.concatenate([[0.0], np.cumsum(w)])
    end = np.searchsorted(y, y + 2 * eps * (1 + SLACK), side="right")
    first = first_best(total[end] - total[:-1])
    return float((y[first] + y[end[first] - 1]) / 2)


def expected_rank(values: npt.ArrayLike, weights: npt.ArrayLike, *, reference: npt.ArrayLike) -> float:
    """E F(y), F the share of ``reference`` targets below y plus half the share equal to it: a score in [0, 1].

    For rank correlations no rule is exactly best; this and the mean are the usual ones.
    """
    y, w = numbers(values, weights)
    known = np.sort(np.asarray(reference, dtype=np.float64))
    if not len(known):
        raise OptionError("`reference` is empty: give the numbers that ranks are to be taken in")
    middle = np.searchsorted(known, y, side="left") + np.searchsorted(known, y, side="right")
    return float(w @ middle / (2 * len(known)))


def on_grid(
    values: npt.ArrayLike, weights: npt.ArrayLike, *, grid: npt.ArrayLike, loss: Callable[[F64, F64], F64]
) -> float:
    """The number of ``grid`` with the least expected ``loss``(targets, predictions), the lowest of equally good ones.

    For squared error this is the grid's point nearest to the mean.
    """
    y, w = numbers(values, weights)
    points = np.sort(np.asarray(grid, dtype=np.float64))
    if points.ndim != 1 or not len(points):
        raise OptionError(f"`grid` is {grid!r}: give the numbers that may be predicted")
    losses = loss(np.repeat(y[None, :], len(points), axis=0), np.repeat(points[:, None], len(y), axis=1))
    known = ~np.isnan(losses).all(axis=0)  # an outcome that the metric leaves out has no loss
    return float(points[first_best(-(losses[:, known] @ w[known]))]) if known.any() else float(points[0])
