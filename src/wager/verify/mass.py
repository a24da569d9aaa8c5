"""A law over the whole vocabulary, of which only what is asked for is worked out."""

from __future__ import annotations

import numpy as np

from wager.sampling import Scores
from wager.types import F64, I64
from wager.wide import PART, exponentials, sums

_EXACT_REST = 1e-6  # a mass smaller than this is summed anew: a difference of sums near 1 would be rounding


class Mass:
    """Unnormalised probabilities (V,) of sum ``total``: sums over parts of the vocabulary, and what they are made of.

    ``softmax`` and ``given`` make one. ``entropy`` (nats) is known of the former.
    """

    __slots__ = ("_gone", "_parts", "_temperature", "_top", "_weights", "_x", "entropy", "total")

    def __init__(self, weights: F64 | None, parts: F64, total: float) -> None:
        self._weights, self._parts, self.total = weights, parts, total
        self._x: Scores = parts
        self._temperature, self._top = 1.0, 0.0
        self._gone: I64 | None = None
        self.entropy = 0.0

    @classmethod
    def softmax(cls, x: Scores, temperature: float) -> Mass:
        """exp((x - max x) / temperature) of x (V,); at temperature 0 1 for the lowest id of the largest, else 0."""
        if temperature == 0:
            weights = np.zeros(len(x))
            weights[int(x.argmax())] = 1
            return cls.given(weights)
        found = sums(x, temperature=temperature)
        made = cls(None, found.parts, found.total)
        made._x, made._temperature, made._top, made.entropy = x, temperature, found.top, found.entropy
        return made

    @classmethod
    def given(cls, weights: F64) -> Mass:
        parts = np.add.reduceat(weights, np.arange(0, len(weights), PART))
        return cls(weights, parts, float(parts.sum()))

    def weights(self) -> F64:
        """All of them (V,). Read only."""
        if self._weights is None:
            self._weights = exponentials(self._x, temperature=self._temperature)[0]
            if self._gone is not None:
                self._weights[self._gone] = 0
        return self._weights

    def at(self, ids: I64 | slice) -> F64:
        """Those of ``ids`` (m,)."""
        if self._weights is not None:
            return self._weights[ids]
        assert self._gone is None or isinstance(ids, slice), "not among what is left"
        with np.errstate(over="ignore"):  # a tiny temperature leaves the best alone
            y = np.subtract(self._x[ids], self._top, dtype=np.float64)
            y /= self._temperature
        found = np.exp(y, out=y)
        if self._gone is not None and isinstance(ids, slice):
            found[self._gone[(self._gone >= ids.start) & (self._gone < ids.stop)] - ids.start] = 0
        return np.asarray(found)

    def split(self, ids: I64) -> F64:
        """Probabilities (m + 1,): of ``ids`` (m,), all different, and last of all others together."""
        found = np.empty(len(ids) + 1)
        found[:-1] = self.at(ids)
        found[-1] = rest = self.total - float(found[:-1].sum())
        if rest < _EXACT_REST * self.total:
            found[-1] = self.outside(ids).total
        found /= self.total
        return found

    def outside(self, ids: I64) -> Mass:
        """The same without ``ids`` (m,), all different."""
        some = self.at(ids)
        rest = self.total - float(some.sum())
        if self._weights is not None or rest < _EXACT_REST * self.total:
            left = self.weights().copy()
            left[ids] = 0
            return Mass.given(left)
        parts = self._parts - np.bincount(ids // PART, some, len(self._parts))
        made = Mass(None, np.maximum(parts, 0.0, out=parts), rest)
        made._x, made._temperature, made._top, made._gone = self._x, self._temperature, self._top, ids
        return made

    def invert(self, u: float) -> int:
        """The id that holds the share ``u`` in (0, 1) of the mass, in the order of ids."""
        part, left = place(self._parts, u * float(self._parts.sum()))
        start = part * PART
        some = self.at(slice(start, start + PART))
        if some.any():
            return start + place(some, left)[0]
        whole = self.weights()  # rounding alone made that part look as if something were left
        return place(whole, u * float(whole.sum()))[0]


def place(weights: F64, mass: float) -> tuple[int, float]:
    """Where ``mass`` falls in the sums of ``weights`` (m,), at least one positive: the index, never one of weight 0,
    and how far into it.
    """
    sums = weights.cumsum()
    index = int(sums.searchsorted(mass, side="right"))
    if index == len(sums):  # rounding ran past the end
        index = int(weights.nonzero()[0][-1])
    return index, mass - (float(sums[index - 1]) if index else 0.0)
