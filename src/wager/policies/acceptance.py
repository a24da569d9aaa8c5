"""How likely a draft node is to be the chosen token, given that its parent was: learnt from the verdicts so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wager.types import F64, Draft, Verdict

_DEPTHS = 16  # deeper nodes are pooled
_RANKS = 4  # later siblings are pooled
# First guesses by support (0, 1, 2, 3-4, 5-8, 9-16, more): look-up on greedy answers of a 135M model to 42 prompts
# of six tasks gave .23 .52 .68 .79 .89 .98 from support 1 on.
_PRIOR = (0.6, 0.25, 0.5, 0.65, 0.75, 0.85, 0.95)
_DEEPER = 0.75  # first guess for a deeper node: its parent's chance of failing, times this (there it fell faster)
_STRENGTH = 4.0  # a first guess weighs as much as this many trials
_FORGET = 0.99  # weight of the past after each trial
_HALF_LIFE = 256.0  # rounds without a trial after which the past counts half, so that given-up depths are tried again
_OWN_STRENGTH = 6.0  # a sequence's own record against the common table, in trials
_OWN_FORGET = 0.97


def bucket(support: int) -> int:
    """0, 1, 2, 3–4, 5–8, 9–16, more."""
    return min((support - 1).bit_length() + 1, 6) if support > 0 else 0


@dataclass(slots=True)
class _Count:
    hits: float = 0.0
    trials: float = 0.0
    round: int = 0


@dataclass(slots=True)
class _Own:
    """One sequence: trials, hits, and the hits that the common table expected."""

    trials: float = 0.0
    hits: float = 0.0
    expected: float = 0.0
    support: int = 0


@dataclass(slots=True)
class Acceptance:
    """Running conditional acceptance per (drafter, support, sibling rank, depth), and how a sequence departs from it.

    A cell starts from the cell one level up in the draft, so good news travels down. ``next_round`` once a step.
    """

    _counts: dict[tuple[str, int, int, int], _Count] = field(default_factory=dict)
    _own: dict[int, _Own] = field(default_factory=dict)
    _round: int = 0

    def chances(self, name: str, support: int, depth: int) -> list[float]:
        """Common conditional acceptance of the first child at depths 1 … ``depth``."""
        out: list[float] = []
        prior = _PRIOR[bucket(support)]
        for level in range(1, depth + 1):
            if level <= _DEPTHS + 1:
                prior = self._mean((name, bucket(support), 0, level), prior)
            out.append(prior)
            prior = 1 - (1 - prior) * _DEEPER if level <= _DEPTHS else prior
        return out

    def values(self, name: str, seq_id: int, draft: Draft) -> F64:
        """(n,) probability that each node is accepted: the product of the chances on its path."""
        values = np.ones(len(draft))
        for i, chance in enumerate(self._conditional(name, draft)):
            parent = int(draft.parents[i])
            values[i] = (values[parent] if parent >= 0 else 1.0) * self._shift(seq_id, chance)
        return values

    def chain_values(self, name: str, seq_id: int, depth: int) -> list[float]:
        """Values of a chain not drafted yet, with the support that the sequence's last draft had."""
        own = self._own.get(seq_id)
        value, values = 1.0, []
        for chance in self.chances(name, own.support if own else 0, depth):
            value *= self._shift(seq_id, chance)
            values.append(value)
        return values

    def observe(self, name: str, seq_id: int, draft: Draft, verdict: Verdict) -> None:
        """Every node whose parent was reached was tried; those on the path were hit."""
        if len(draft) == 0:
            return
        chances = self._conditional(name, draft)
        ranks, depths = _ranks(draft), _depths(draft)
        own = self._own.setdefault(seq_id, _Own())
        own.support = draft.support
        path = set(verdict.path)
        for i, parent in enumerate(draft.parents.tolist()):
            if parent >= 0 and parent not in path:
                continue
            key = (name, bucket(draft.support), min(ranks[i], _RANKS - 1), min(depths[i], _DEPTHS + 1))
            count = self._counts.setdefault(key, _Count(round=self._round))
            weight = self._aged(count) * _FORGET
            count.hits, count.trials = count.hits * weight + (i in path), count.trials * weight + 1
            count.round = self._round
            own.trials = own.trials * _OWN_FORGET + 1
            own.hits = own.hits * _OWN_FORGET + (i in path)
            own.expected = own.expected * _OWN_FORGET + chances[i]

    def next_round(self) -> None:
        self._round += 1

    def forget(self, seq_id: int) -> None:
        self._own.pop(seq_id, None)

    def _conditional(self, name: str, draft: Draft) -> list[float]:
        depths, ranks = _depths(draft), _ranks(draft)
        first = self.chances(name, draft.support, max(depths, default=0))
        out = []
        for depth, rank in zip(depths, ranks, strict=True):
            chance = first[depth - 1]
            for r in range(1, min(rank, _RANKS - 1) + 1):
                # A sibling wins only where the earlier ones lost: guess an equal share of what they left.
                left = (name, bucket(draft.support), r, min(depth, _DEPTHS + 1))
                chance = self._mean(left, (1 - chance) * chance)
            out.append(chance)
        return out

    def _mean(self, key: tuple[str, int, int, int], prior: float) -> float:
        count = self._counts.get(key)
        if count is None:
            return prior
        weight = self._aged(count)
        return (count.hits * weight + _STRENGTH * prior) / (count.trials * weight + _STRENGTH)

    def _aged(self, count: _Count) -> float:
        return float(0.5 ** ((self._round - count.round) / _HALF_LIFE))

    def _shift(self, seq_id: int, chance: float) -> float:
        """The common chance, its odds scaled by how the sequence's hits and misses depart from the expected ones."""
        own = self._own.get(seq_id)
        if own is None:
            return chance
        k = _OWN_STRENGTH
        hits = (own.hits + k) / (own.expected + k)
        misses = (own.trials - own.hits + k) / (own.trials - own.expected + k)
        odds = hits / misses * chance / max(1 - chance, 1e-9)
        return odds / (1 + odds)


def _depths(draft: Draft) -> list[int]:
    depths: list[int] = []
    for parent in draft.parents.tolist():
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return depths


def _ranks(draft: Draft) -> list[int]:
    seen: dict[int, int] = {}
    ranks = []
    for parent in draft.parents.tolist():
        ranks.append(seen.get(parent, 0))
        seen[parent] = ranks[-1] + 1
    return ranks
