"""What every rule on (values, weights) checks first, and how rounding is kept from deciding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wager.errors import OptionError
from wager.types import F64

# Weights that add up to the same in exact arithmetic differ by rounding: nearer than this they are tied.
TIE = 1e-12
# 0.3 - 0.2 is a little less than 0.1, and 5.2 - 5.1 a little more: both are within 0.1, by this relative slack.
SLACK = 1e-9


def shares(weights: npt.ArrayLike, n: int) -> F64:
    """(n,) weights that sum to 1. Raises ``OptionError`` where they are not n >= 1 finite numbers >= 0, not all 0."""
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n,) or not n or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise OptionError(f"`weights` is {weights!r} for {n} values: give one finite number >= 0 per value, not all 0")
    return np.asarray(w / w.sum(), dtype=np.float64)


def numbers(values: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[F64, F64]:
    """(n,) values and (n,) weights that sum to 1. Raises ``OptionError`` for values that are not finite numbers."""
    y = np.asarray(values, dtype=np.float64)
    if y.ndim != 1 or not np.isfinite(y).all():
        raise OptionError(f"`values` is {values!r}: give a list of finite numbers")
    return y, shares(weights, len(y))


def first_best(scores: F64) -> int:
    """Index of the first of (n,) scores that is as large as any, up to rounding."""
    return int(np.argmax(scores >= scores.max() - TIE * max(1.0, float(np.abs(scores).max()))))


def best_first(scores: F64) -> tuple[int, ...]:
    """Indices of (n,) scores from large to small; equal ones, up to rounding, in the order of their indices."""
    scale = float(np.abs(scores).max()) if len(scores) else 0.0
    rounded = np.round(scores / scale, 12) if scale > 0 else scores
    return tuple(int(i) for i in np.argsort(-rounded, kind="stable"))
