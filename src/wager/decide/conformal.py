"""Split-conformal sets of labels and intervals of numbers, and when to withhold an answer.

What is promised, for rows exchangeable with the calibration rows: the share of rows whose target is inside is at least
the level *on average* over calibration sets and rows. Nothing is promised for a group of rows, for one calibration set
or after the data drift. Everything that was fitted (a line, lambda, a temperature, a prompt) must have been fitted on
other rows. Source: Vovk et al. 2005; APS 2006.02544; SAPS 2310.06430; CQR 1905.03222.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wager.decide.law import Law, as_mapping, as_numbers
from wager.decide.options import member
from wager.decide.rules.numbers import quantile
from wager.errors import OptionError
from wager.types import F64

SetMethod = Literal["aps", "saps"]
IntervalMethod = Literal["absolute", "normalised", "quantile"]
SET_METHODS: tuple[SetMethod, ...] = ("aps", "saps")
INTERVAL_METHODS: tuple[IntervalMethod, ...] = ("absolute", "normalised", "quantile")


def conformal_threshold(scores: npt.ArrayLike, *, level: float) -> float:
    """The ceil((n + 1) level)-th smallest of n scores; inf where there is none, as with n < level / (1 - level)."""
    if not 0 < level < 1:
        raise OptionError(f"`level` is {level!r}: give a number in (0, 1)")
    known = np.sort(np.asarray(scores, dtype=np.float64))
    place = math.ceil((len(known) + 1) * level - 1e-9)  # 0.9 x 10 must be 9, whatever rounding says
    return float(known[place - 1]) if place <= len(known) else math.inf


def label_scores(law: Law, labels: ListLike[Any], *, method: SetMethod, u: float, lam: float) -> F64:
    """(L,) how strange each label would be, ``u`` in [0, 1] breaking ties (1: no randomising). Empty laws give inf.

    "aps": the mass of likelier labels + u times its own; 1 + u for a label without mass, which draws leave many of: by
    the formula it would be no stranger than a label that has all. "saps": u times the largest mass for the likeliest
    label, and the largest mass + (rank - 2 + u) ``lam`` for the others; equal masses rank in the order of ``labels``.
    """
    if not len(law):
        return np.full(len(labels), math.inf)
    mass = as_mapping(law)
    for value in law.values:
        member(value, labels)
    p = np.array([mass.get(label, 0.0) for label in labels])
    if method == "aps":
        likelier = np.where(p[None, :] > p[:, None], p[None, :], 0.0).sum(axis=1)
        scores = likelier + np.where(p > 0, u * p, u)
    else:
        ranks = np.empty(len(p))
        ranks[np.argsort(-p, kind="stable")] = np.arange(1, len(p) + 1)
        scores = np.where(ranks == 1, u * p.max(), p.max() + (ranks - 2 + u) * lam)
    return np.asarray(np.round(scores, 12), dtype=np.float64)  # equal scores must not differ by the order of a sum


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSets:
    """Sets that hold the target's label with probability >= ``level``; all labels where ``n`` rows were too few.

    ``randomised`` sets are smaller and may be empty; they need one u in [0, 1) per row, drawn by the caller.
    """

    labels: tuple[Any, ...]
    level: float
    threshold: float
    n: int
    method: SetMethod = "aps"
    randomised: bool = False
    lam: float = 0.1

    def of(self, law: Law, *, u: float | None = None) -> tuple[Any, ...]:
        """The labels in the set, in the order of ``labels``; all of them for an empty law."""
        if not len(law):
            return self.labels
        scores = label_scores(law, self.labels, method=self.method, u=_u(self.randomised, u), lam=self.lam)
        return tuple(label for label, score in zip(self.labels, scores, strict=True) if score <= self.threshold)


def calibrate_sets(
    laws: ListLike[Law],
    targets: ListLike[Any],
    *,
    labels: ListLike[Any],
    level: float = 0.9,
    method: SetMethod = "aps",
    lam: float = 0.1,
    us: npt.ArrayLike | None = None,
) -> LabelSets:
    """From n rows with targets. ``us`` (n,) in [0, 1) makes the sets randomised; without, they are somewhat larger."""
    _check_rows(len(laws), len(targets))
    if method not in SET_METHODS:
        raise OptionError(f"`method` is {method!r}: give one of {', '.join(SET_METHODS)}")
    draws = np.ones(len(laws)) if us is None else np.asarray(us, dtype=np.float64)
    index = {label: i for i, label in enumerate(labels)}
    scores = [
        label_scores(law, labels, method=method, u=u, lam=lam)[index[member(y, labels)]]
        for law, y, u in zip(laws, targets, draws.tolist(), strict=True)
    ]
    return LabelSets(
        labels=tuple(labels),
        level=level,
        threshold=conformal_threshold(scores, level=level),
        n=len(scores),
        method=method,
        randomised=us is not None,
        lam=lam,
    )


def tuned_lam(
    laws: ListLike[Law],
    targets: ListLike[Any],
    *,
    labels: ListLike[Any],
    level: float = 0.9,
    lams: ListLike[float] = (0.02, 0.05, 0.1, 0.2, 0.5),
) -> float:
    """The lambda of SAPS with the smallest sets on these rows (the first of equal ones). Calibrate on *other* rows."""

    def size(lam: float) -> float:
        sets = calibrate_sets(laws, targets, labels=labels, level=level, method="saps", lam=lam)
        return sum(len(sets.of(law)) for law in laws) / len(laws)

    return min(lams, key=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals that hold the target with probability >= ``level``; from -inf to inf where ``n`` rows were too few.

    "absolute": prediction +- threshold. "normalised": +- threshold x (the law's standard deviation + ``floor``).
    "quantile" (CQR): the law's central interval at ``level``, moved outwards by the threshold, or inwards.
    ``low`` and ``high`` bound what a target can be; intervals are cut to them.
    """

    level: float
    threshold: float
    n: int
    method: IntervalMethod = "absolute"
    floor: float = 0.1
    low: float = -math.inf
    high: float = math.inf

    def of(self, law: Law, prediction: float | None) -> tuple[float, float]:
        """(low, high); all that a target can be for an empty law or a missing prediction."""
        if not len(law) or prediction is None or math.isinf(self.threshold):
            return self.low, self.high
        if self.method == "quantile":
            low, high = central(law, self.level)
            reach = self.threshold
        else:
            low = high = float(prediction)
            reach = self.threshold * (1 if self.method == "absolute" else spread(law) + self.floor)
        low, high = low - reach, high + reach
        if low > high:  # moved inwards past each other: the middle stands for the empty interval
            low = high = (low + high) / 2
        return min(max(low, self.low), self.high), max(min(high, self.high), self.low)


def calibrate_intervals(
    laws: ListLike[Law],
    predictions: ListLike[float | None],
    targets: ListLike[float],
    *,
    level: float = 0.9,
    method: IntervalMethod = "absolute",
    floor: float = 0.1,
    low: float = -math.inf,
    high: float = math.inf,
) -> Intervals:
    """From n rows with targets; rows without an answer count as missed. ``floor`` > 0 is in the targets' units."""
    _check_rows(len(laws), len(targets))
    if method not in INTERVAL_METHODS:
        raise OptionError(f"`method` is {method!r}: give one of {', '.join(INTERVAL_METHODS)}")
    if not floor > 0:
        raise OptionError(f"`floor` is {floor!r}: give a positive number, in the units of the target")

    def score(law: Law, x: float | None, y: float) -> float:
        if not len(law) or x is None:
            return math.inf
        if method == "quantile":
            ends = central(law, level)
            return max(ends[0] - y, y - ends[1])
        return abs(y - x) / (1 if method == "absolute" else spread(law) + floor)

    scores = [score(law, x, y) for law, x, y in zip(laws, predictions, targets, strict=True)]
    threshold = conformal_threshold(scores, level=level)
    return Intervals(level=level, threshold=threshold, n=len(scores), method=method, floor=floor, low=low, high=high)


def central(law: Law, level: float) -> tuple[float, float]:
    """The (1 - level) / 2 and (1 + level) / 2 quantiles of a law of numbers."""
    y, tail = as_numbers(law), (1 - level) / 2
    return quantile(y, law.weights, tau=tail), quantile(y, law.weights, tau=1 - tail)


def spread(law: Law) -> float:
    """Standard deviation of a law of numbers."""
    y = as_numbers(law)
    return float(np.sqrt(law.weights @ (y - law.weights @ y) ** 2))


def confidence(law: Law) -> float:
    """Mass of the heaviest value, what did not parse or was not covered counting against it; 0 for an empty law."""
    return float(law.weights.max() * law.covered) if len(law) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """When an answer is given out: if its confidence is above ``threshold``.

    Promised: P(released | wrong) <= ``alpha``, so P(released and wrong) <= alpha, on average over calibration sets.
    Not promised: P(wrong | released), which may be anything. With under 1 / alpha - 1 wrong rows none is released.
    """

    alpha: float
    threshold: float
    n_wrong: int

    def of(self, confidence: float) -> bool:
        """Whether an answer of this confidence is released."""
        return confidence > self.threshold


def calibrate_release(confidences: npt.ArrayLike, wrong: npt.ArrayLike, *, alpha: float = 0.1) -> Release:
    """From the (n,) confidences of calibration answers and whether each was ``wrong`` (n,); right ones have no say."""
    c, bad = np.asarray(confidences, dtype=np.float64), np.asarray(wrong, dtype=np.bool_)
    _check_rows(len(c), len(bad))
    if not 0 < alpha < 1:
        raise OptionError(f"`alpha` is {alpha!r}: give a number in (0, 1)")
    return Release(alpha=alpha, threshold=conformal_threshold(c[bad], level=1 - alpha), n_wrong=int(bad.sum()))


def _u(randomised: bool, u: float | None) -> float:
    if not randomised:
        return 1.0
    if u is None or not 0 <= u < 1:
        raise OptionError(f"`u` is {u!r}: these sets are randomised, so give each row a number drawn from [0, 1)")
    return u


def _check_rows(n: int, n_targets: int) -> None:
    if n != n_targets:
        raise OptionError(f"there are {n} rows and {n_targets} targets: give one target per row")
