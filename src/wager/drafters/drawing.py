"""How a model drafter draws: the ways that verification rules ask for, as pure functions of a row of scores.

A level is the depth of the node that children are drawn at: 0 below the last committed token. ``start`` is the number
of committed tokens in the round. Sampled kinds race on the stream "draft", at (start, branch, level): rules never do,
save for the one that shares this very noise (``verify.shared_noise``).
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.errors import OptionError
from wager.sampling import Noise, Scores
from wager.types import F64, SAMPLED, DraftKind, Law, Limits
from wager.wide import entropy, log_partition, top_indices

KINDS: tuple[DraftKind, ...] = ("deterministic", "coupled", "iid", "without_replacement")
MAX_LAW = 512  # ids kept of a draft law where nobody asks for fewer
_LENT = 1e-6  # share that a short law lends to each id it is topped up with


@dataclass(frozen=True, slots=True)
class Drawing:
    """The ``kind`` of drafts and their form.

    ``laws``: coupled drafts carry the laws of their contexts too (sampled ones always do), and then hold nothing
    outside them. ``trunk``: levels with a single child before branching starts. ``levels``: levels after it at which
    every node gets ``Limits.width`` children, before chains; i.i.d. drafts have no such thing, there the width is the
    number of sequences. ``max_law``: ids kept of a law (0: ``MAX_LAW``). Raises OptionError.
    """

    kind: DraftKind = "coupled"
    laws: bool = False
    trunk: int = 0
    levels: int = 1
    max_law: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(f"`kind` is {self.kind!r}: give one of {', '.join(KINDS)}")
        for name, least in (("trunk", 0), ("levels", 1), ("max_law", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise OptionError(f"`{name}` is {value!r}: give an integer of at least {least}")
        if self.laws and self.kind == "deterministic":
            raise OptionError("`laws` is True but `kind` is 'deterministic': nobody draws such drafts, leave it out")

    @property
    def has_laws(self) -> bool:
        return self.laws or self.sampled

    @property
    def sampled(self) -> bool:
        """Whether rules rely on the chance in the draft: then its form must not depend on what is drawn."""
        return self.kind in SAMPLED

    @property
    def n_ids(self) -> int:
        """Ids kept of a law."""
        return self.max_law or MAX_LAW


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of one draft, known before anything is drawn (unsampled drafts may turn out smaller)."""

    depth: int
    trunk: int
    levels: int
    width: int

    @property
    def n_leaves(self) -> int:
        return int(self.width**self.levels)

    def n_children(self, level: int) -> int:
        return self.width if self.trunk <= level < self.trunk + self.levels else 1


def shape_of(drawing: Drawing, limit: Limits, *, n_leaves: int, greedy: bool) -> Shape:
    """The largest form within ``limit`` (depth at least 1) that has at most ``n_leaves`` leaves, but always one.

    First the last of the branching levels go, then children. ``greedy``: temperature 0, where nothing but the best
    token can be drawn without replacement.
    """
    trunk = trunk_of(drawing, limit)
    levels = min(1 if drawing.kind == "iid" else drawing.levels, limit.depth - trunk)
    width = max(1, min(limit.width, n_leaves))
    if drawing.kind == "without_replacement":
        width = 1 if greedy else min(width, drawing.n_ids)
    while levels > 1 and width**levels > n_leaves:
        levels -= 1
    return Shape(limit.depth, trunk, levels, width if levels else 1)


def trunk_of(drawing: Drawing, limit: Limits) -> int:
    """Levels with a single child before branching starts."""
    return min(drawing.trunk if limit.trunk is None else limit.trunk, limit.depth)


@dataclass(frozen=True, slots=True)
class Belief:
    """What a draft model thinks of a token to come: log-weights ``x`` (V,), their log-sum ``total``, the entropy."""

    x: Scores
    total: float
    entropy: float

    def of(self, token: int) -> float:
        """Probability of a token, before a law is cut to fewer ids."""
        return float(np.exp(float(self.x[token]) - self.total))


def belief(x: Scores, n_top: int) -> Belief:
    """The belief behind scores (V,); its entropy (nats) over the ``n_top`` likeliest tokens alone, or over all (0)."""
    best = float(x.max())
    some: Scores = x
    if 0 < n_top < len(x):
        near = x[x > best - 8.0]  # few as a rule; the top ones are among them if they are enough
        some = np.partition(near if len(near) >= n_top else x, -n_top)[-n_top:].astype(np.float64)
    return Belief(x, best + log_partition(x), max(0.0, entropy(some)))


def law_of(x: Scores, temperature: float, n_ids: int) -> Law:
    """The law of scores (V,), cut to its ``n_ids`` largest ids and normalised; at temperature 0 all on the best."""
    best = int(np.argmax(x))
    assert x[best] > -np.inf, "the scores hold NaN, or nothing to draw"
    if temperature == 0:
        return Law(np.array([best], np.int64), np.ones(1))
    alive = np.flatnonzero(x > -np.inf)
    ids = alive if len(alive) <= n_ids else np.sort(top_indices(x, n_ids))
    weights = np.exp(np.subtract(x[ids], x[best], dtype=np.float64))
    kept = weights > 0
    weights = weights[kept]
    return Law(ids[kept], weights / weights.sum())


def topped_up(law: Law, raw: Scores, n: int) -> Law:
    """The law with at least ``n`` ids: of what options dropped, the best by ``raw`` (V,) join with hardly any weight.

    So the number of children drawn without replacement is the same at every context. Banned ids stay out (-inf).
    """
    n_missing = n - len(law.ids)
    if n_missing <= 0:
        return law
    best = top_indices(raw, n)
    more = best[(raw[best] > -np.inf) & ~np.isin(best, law.ids)][:n_missing]
    ids = np.concatenate([law.ids, more])
    probs = np.concatenate([law.probs * (1 - _LENT * len(more)), np.full(len(more), _LENT)])
    order = np.argsort(ids)
    return Law(ids[order], probs[order] / probs.sum())


def draw_iid(law: Law, noise: Noise, start: int, sequences: ListLike[int], level: int) -> list[int]:
    """The token of each of ``sequences``, which share a context: each has a race E / q of its own."""
    races = [noise.race("draft", start, branch=k, depth=level, token_ids=law.ids) for k in sequences]
    return [int(law.ids[np.argmin(_arrivals(race, law))]) for race in races]


def draw_without_replacement(law: Law, noise: Noise, start: int, branch: int, level: int, k: int) -> list[int]:
    """The ``k`` tokens that arrive first in one race: k draws without putting back, in their order."""
    race = noise.race("draft", start, branch=branch, depth=level, token_ids=law.ids)
    return [int(token) for token in law.ids[np.argsort(_arrivals(race, law), kind="stable")[:k]]]


def _arrivals(race: F64, law: Law) -> F64:
    with np.errstate(over="ignore"):  # at a low temperature what is next to impossible never arrives
        return np.asarray(race / law.probs)
