"""The chance in a rule, apart from the rule: real noise in use, every outcome in turn in a proof."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from wager.sampling import Noise
from wager.types import F64

_CHUNK = 1024


class Dice(Protocol):
    """What a rule may ask chance for."""

    def accept(self, probability: float) -> bool:
        """True with that probability; values outside [0, 1] count as the nearer end."""
        ...

    def draw(self, weights: F64) -> int:
        """An index of ``weights`` (m,), unnormalised, not all zero; never one of weight 0."""
        ...


class NoiseDice:
    """Dice from a request's noise: the n-th question of the round that starts at ``start`` tokens has its own value.

    Streams "accept" and "residual", so nothing is shared with drafts or with the walk.
    """

    def __init__(self, noise: Noise, start: int) -> None:
        self._noise, self._start = noise, start
        self._n_asked = 0

    def accept(self, probability: float) -> bool:
        self._n_asked += 1
        return bool(self._noise.uniform("accept", self._start, depth=self._n_asked)[0] < probability)

    def draw(self, weights: F64) -> int:
        self._n_asked += 1
        u = float(self._noise.uniform("residual", self._start, depth=self._n_asked)[0])
        return invert(weights, u)


def invert(weights: F64, u: float) -> int:
    """The index that holds the share ``u`` in (0, 1) of the summed ``weights`` (m,): first by chunk, then inside."""
    starts = np.arange(0, len(weights), _CHUNK)
    sums = np.cumsum(np.add.reduceat(weights, starts))
    assert sums[-1] > 0, "nothing to draw from"
    left = u * float(sums[-1])
    chunk = int(np.searchsorted(sums, left, side="right"))
    if chunk == len(sums):  # rounding ran past the end
        return int(np.flatnonzero(weights)[-1])
    some = weights[starts[chunk] : starts[chunk] + _CHUNK]
    index = int(np.searchsorted(np.cumsum(some), left - (sums[chunk - 1] if chunk else 0.0), side="right"))
    if index == len(some):
        index = int(np.flatnonzero(some)[-1])
    return int(starts[chunk]) + index
