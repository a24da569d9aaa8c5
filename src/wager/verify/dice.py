"""The chance in a rule, apart from the rule: real noise in use, every outcome in turn in a proof."""

from __future__ import annotations

from typing import Protocol

from wager.sampling import Noise
from wager.types import F64
from wager.verify.mass import Mass, place
from wager.wide import LONG


class Dice(Protocol):
    """What a rule may ask chance for."""

    def accept(self, probability: float) -> bool:
        """True with that probability; values outside [0, 1] count as the nearer end."""
        ...

    def draw(self, weights: F64 | Mass) -> int:
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
        return self._noise.uniform_at("accept", self._start, depth=self._n_asked) < probability

    def draw(self, weights: F64 | Mass) -> int:
        self._n_asked += 1
        return invert(weights, self._noise.uniform_at("residual", self._start, depth=self._n_asked))


def invert(weights: F64 | Mass, u: float) -> int:
    """The index that holds the share ``u`` in (0, 1) of the summed ``weights`` (m,)."""
    if isinstance(weights, Mass):
        return weights.invert(u)
    if len(weights) >= LONG:  # by parts first: a sum of so many is long
        return Mass.given(weights).invert(u)
    return place(weights, u * float(weights.sum()))[0]
