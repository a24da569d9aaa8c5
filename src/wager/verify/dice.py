"""The chance in a rule, apart from the rule: real noise in use, every outcome in turn in a proof."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from wager.sampling import Noise
from wager.types import F64


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
        sums = np.cumsum(weights)
        assert sums[-1] > 0, "nothing to draw from"
        index = int(np.searchsorted(sums, u * sums[-1], side="right"))
        # rounding may reach the end: then the last index that has weight
        return index if index < len(sums) else int(np.flatnonzero(weights)[-1])
