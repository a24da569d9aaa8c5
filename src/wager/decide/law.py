"""The law of an answer: distinct outcomes and their weights. What every rule decides on.

A value is a float (numbers), a str (labels, texts), a frozenset (label sets) or a tuple of numbers (one 0/1 or one
gain per item: label vectors, relevance vectors).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from wager.errors import OptionError
from wager.types import F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """``n`` distinct values, most often in the order in which they came, and weights (n,) >= 0 that sum to 1.

    ``covered`` is the probability mass the values stand for (a candidate set), or the share of draws that parsed.
    ``n_tokens`` were spent on it. An empty law (nothing parsed) has no values and covers nothing: ``Law.of([])``.
    """

    values: tuple[Any, ...]
    weights: F64
    covered: float = 1.0
    n_tokens: int = 0

    def __post_init__(self) -> None:
        assert self.weights.shape == (len(self.values),), (self.weights.shape, len(self.values))
        assert not len(self.values) or abs(float(self.weights.sum()) - 1) < 1e-9, self.weights
        assert 0 <= self.covered <= 1, self.covered

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def of(
        values: Iterable[Any], weights: npt.ArrayLike | None = None, *, covered: float = 1.0, n_tokens: int = 0
    ) -> Law:
        """The law with equal values merged, in order of first appearance; weights (equal ones by default) normalised.

        None stands for a draw that did not parse: it has no value, and its share is taken off ``covered``.
        Raises ``OptionError`` for weights that are negative, not finite, all zero, or not one per value.
        """
        listed = list(values)
        mass = np.ones(len(listed)) if weights is None else np.asarray(weights, dtype=np.float64)
        if mass.shape != (len(listed),) or not np.isfinite(mass).all() or (mass < 0).any():
            raise OptionError(f"`weights` is {weights!r}: give {len(listed)} finite numbers >= 0, one per value")
        if len(listed) and not mass.any():
            raise OptionError(f"`weights` are all zero for {len(listed)} values: leave them out for equal ones")
        merged: dict[Any, float] = {}
        for value, weight in zip(listed, mass.tolist(), strict=True):
            if not isinstance(value, Hashable):
                raise OptionError(f"{value!r} cannot be counted: give numbers, texts, frozensets or tuples")
            if value is not None and weight > 0:
                merged[value] = merged.get(value, 0.0) + weight
        kept = np.array(list(merged.values()), dtype=np.float64)
        if not merged:
            return Law(values=(), weights=kept, covered=0.0, n_tokens=n_tokens)
        share = min(1.0, float(kept.sum() / mass.sum()))
        return Law(values=tuple(merged), weights=kept / kept.sum(), covered=covered * share, n_tokens=n_tokens)

    @staticmethod
    def scored(values: ListLike[Any], logprobs: npt.ArrayLike, *, n_tokens: int = 0) -> Law:
        """The law of scored candidates: weights softmax(``logprobs``), natural logs (n,); -inf is impossible.

        Surface forms of one value are summed: give the value once per form. ``covered`` is the mass of them all.
        Raises ``OptionError`` for log-probabilities that are NaN or +inf, or not one per value.
        """
        logs = np.asarray(logprobs, dtype=np.float64)
        if logs.shape != (len(values),) or np.isnan(logs).any() or (logs == np.inf).any():
            raise OptionError(f"`logprobs` is {logprobs!r}: give {len(values)} log-probabilities, one per value")
        if not len(logs) or np.isneginf(logs).all():
            return Law.of([], n_tokens=n_tokens)
        covered = min(1.0, float(np.exp(logs).sum()))
        return Law.of(values, np.exp(logs - logs.max()), covered=covered, n_tokens=n_tokens)


def average(laws: ListLike[Law], weights: npt.ArrayLike | None = None) -> Law:
    """The mean of laws, one per reasoning chain: E over chains of p(answer | chain). Tokens are added up.

    ``weights`` (n,) are the chains' own, equal by default. A chain with an empty law has no say; it lowers ``covered``.
    """
    shares = np.ones(len(laws)) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.shape != (len(laws),):
        raise OptionError(f"`weights` is {weights!r}: give {len(laws)} numbers, one per law")
    n_tokens = sum(law.n_tokens for law in laws)
    full = [(law, share) for law, share in zip(laws, shares.tolist(), strict=True) if len(law) and share > 0]
    if not full:
        return Law.of([], n_tokens=n_tokens)
    covered = sum(law.covered * share for law, share in full) / float(shares.sum())
    values = [value for law, _ in full for value in law.values]
    return Law.of(
        values, np.concatenate([law.weights * share for law, share in full]), covered=covered, n_tokens=n_tokens
    )


def tempering(logprobs: npt.ArrayLike, *, temperature: float) -> F64:
    """(n,) importance weights that sum to 1 for draws at temperature 1 when ``temperature`` is wanted: p^(1/T - 1).

    ``logprobs`` (n,) are the draws' own, natural logs over the whole answer. What the weights aim at is the law
    p(answer)^(1/T) over whole answers, which for answers of several tokens is sharper or flatter than what sampling
    each token at T gives. Raises ``OptionError`` for a temperature that is not positive.
    """
    if not temperature > 0:
        raise OptionError(f"`temperature` is {temperature!r}: give a positive number")
    return importance(np.asarray(logprobs, dtype=np.float64) / temperature, logprobs)


def importance(wanted: npt.ArrayLike, drawn: npt.ArrayLike) -> F64:
    """(n,) weights that sum to 1, proportional to exp(wanted - drawn): self-normalised importance sampling.

    ``wanted`` and ``drawn`` (n,) are log-probabilities of the draws, up to a constant each, under the law that is
    wanted and the law they were drawn from.
    """
    gap = np.asarray(wanted, dtype=np.float64) - np.asarray(drawn, dtype=np.float64)
    if gap.ndim != 1 or not len(gap) or np.isnan(gap).any() or np.isneginf(gap).all():
        raise OptionError(f"log-probabilities give the log weights {gap!r}: give one finite number per draw")
    raw = np.exp(gap - gap.max())
    return np.asarray(raw / raw.sum(), dtype=np.float64)


def effective_size(weights: npt.ArrayLike) -> float:
    """How many equally weighted draws weigh as much: (sum w)^2 / sum w^2 (Kish). 0 for none."""
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0


def as_numbers(law: Law) -> F64:
    """(n,) the values as floats. Raises ``OptionError`` where one is not a finite number."""
    for value in law.values:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise OptionError(f"the law has the value {value!r}: this metric needs numbers, so parse the answers")
        if not math.isfinite(float(value)):
            raise OptionError(f"the law has the value {value!r}: give finite numbers, and None for what did not parse")
    return np.array(law.values, dtype=np.float64)


def as_mapping(law: Law) -> dict[Any, float]:
    """Value -> probability."""
    return dict(zip(law.values, law.weights.tolist(), strict=True))
