"""How likely a draft node is to be the chosen token, given that its parent was: learnt from the verdicts so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from wager.tree import depths
from wager.types import SAMPLED, Draft, Verdict

_DEPTHS = 16  # deeper nodes are pooled
_CONFIDENCES = 12  # levels of a drafter's own confidence, and
_SURE_DEPTHS = 3  # the depths that are told apart where there is one
_RANKS = 4  # later siblings are pooled
# First guesses by support (0, 1, 2, 3-4, 5-8, 9-16, more): look-up on greedy answers of a 135M model to 42 prompts
# of six tasks gave .23 .52 .68 .79 .89 .98 from support 1 on.
_PRIOR = (0.6, 0.25, 0.5, 0.65, 0.75, 0.85, 0.95)
# First guess at depth d + 1: what could fail at d, less this share / root of d. Hopeful, so that depth is tried.
_DEEPER = 0.25
_STRENGTH = 8.0  # a first guess weighs as much as this many trials
_FORGET = 0.995  # weight of the past after each trial
_HALF_LIFE = 128.0  # rounds without a trial after which the past counts half, so that given-up depths are tried again
_OWN_STRENGTH = 16.0  # a sequence's own record against the common table, in trials
_OWN_FORGET = 0.98


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
    source: str = ""


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
        for level in range(1, min(depth, _DEPTHS + 1) + 1):
            mean = self._mean((name, bucket(support), 0, level), prior)
            out.append(mean)
            prior = 1 - (1 - mean) * (1 - _DEEPER / math.sqrt(level))
        return out + out[-1:] * (depth - len(out))

    def values(self, name: str, seq_id: int, draft: Draft) -> list[float]:
        """(n,) probability that each node is accepted: the product of the chances on its path.

        Of siblings that were drawn none is worth more than an earlier one: the rules want them cut from the end.
        """
        chances = self._conditional(name, draft)
        shift = self._shift(seq_id)
        drawn = draft.kind in SAMPLED
        last: dict[int, float] = {}
        values: list[float] = []
        for chance, parent in zip(chances, draft.parents.tolist(), strict=True):
            value = (values[parent] if parent >= 0 else 1.0) * _scaled(chance, shift)
            values.append(min(value, last.get(parent, value)) if drawn else value)
            last[parent] = values[-1]
        return values

    def chain_values(self, name: str, seq_id: int, depth: int) -> list[float]:
        """Values of a chain not drafted yet, with the support and the source that the sequence's last draft had."""
        own = self._own.get(seq_id, _Own())
        shift = self._shift(seq_id)
        chances = self.chances(own.source or name, own.support, depth)
        return list(accumulate((_scaled(chance, shift) for chance in chances), mul))

    def chances_by_rank(self, name: str, seq_id: int, depth: int, n_ranks: int) -> list[list[float]]:
        """Per depth 1 … ``depth`` the conditional acceptance of each of ``n_ranks`` siblings, with the support and the
        source that the sequence's last draft had.
        """
        own, shift = self._own.get(seq_id, _Own()), self._shift(seq_id)
        name = own.source or name
        return [
            [_scaled(self._of_rank(name, own.support, d, rank, chance), shift) for rank in range(n_ranks)]
            for d, chance in enumerate(self.chances(name, own.support, depth), start=1)
        ]

    def observe(self, name: str, seq_id: int, draft: Draft, verdict: Verdict) -> None:
        """Every node whose parent was reached was tried; those on the path were hit."""
        if len(draft) == 0:
            return
        name = draft.source or name
        chances = self._conditional(name, draft)
        levels, ranks = depths(draft), ranks_of(draft)
        own = self._own.setdefault(seq_id, _Own())
        own.support, own.source = draft.support, draft.source
        path, sure = set(verdict.path), _confidence(draft)
        for i, parent in enumerate(draft.parents.tolist()):
            if parent >= 0 and parent not in path:
                continue
            hit = i in path
            key = _cell(name, draft, levels[i], ranks[i], None if sure is None else sure[i])
            count = self._counts.setdefault(key, _Count(round=self._round))
            weight = self._aged(count) * _FORGET
            count.hits, count.trials = count.hits * weight + hit, count.trials * weight + 1
            count.round = self._round
            own.trials = own.trials * _OWN_FORGET + 1
            own.hits = own.hits * _OWN_FORGET + hit
            own.expected = own.expected * _OWN_FORGET + chances[i]

    def next_round(self) -> None:
        self._round += 1

    def forget(self, seq_id: int) -> None:
        self._own.pop(seq_id, None)

    def _conditional(self, name: str, draft: Draft) -> list[float]:
        name = draft.source or name
        levels = depths(draft)
        sure = _confidence(draft)
        if sure is not None:
            places = zip(levels, ranks_of(draft), sure, strict=True)
            return [self._mean(_cell(name, draft, d, r, chance), chance) for d, r, chance in places]
        chances = self.chances(name, draft.support, max(levels, default=0))
        by_rank = zip(levels, ranks_of(draft), strict=True)
        return [self._of_rank(name, draft.support, d, r, chances[d - 1]) for d, r in by_rank]

    def _of_rank(self, name: str, support: int, depth: int, rank: int, chance: float) -> float:
        """A sibling wins only where the earlier ones lost: guess an equal share of what they left."""
        for r in range(1, min(rank, _RANKS - 1) + 1):
            chance = self._mean((name, bucket(support), r, min(depth, _DEPTHS + 1)), (1 - chance) * chance)
        return chance

    def _mean(self, key: tuple[str, int, int, int], prior: float) -> float:
        count = self._counts.get(key)
        if count is None:
            return prior
        weight = self._aged(count)
        mean = (count.hits * weight + _STRENGTH * prior) / (count.trials * weight + _STRENGTH)
        return min(mean, 1.0)  # rounding: values must not rise along a path

    def _aged(self, count: _Count) -> float:
        return float(0.5 ** ((self._round - count.round) / _HALF_LIFE))

    def _shift(self, seq_id: int) -> float:
        """Factor on the odds of acceptance: how the sequence's hits and misses depart from the expected ones."""
        own = self._own.get(seq_id)
        if own is None:
            return 1.0
        hits = (own.hits + _OWN_STRENGTH) / (own.expected + _OWN_STRENGTH)
        misses = (own.trials - own.hits + _OWN_STRENGTH) / (own.trials - own.expected + _OWN_STRENGTH)
        return hits / misses


def _confidence(draft: Draft) -> list[float] | None:
    """The drafter's own, where the rule does not rely on chance: of a sampled draft it would tell what was drawn."""
    return None if draft.confidence is None or draft.kind in SAMPLED else draft.confidence.tolist()


def _cell(name: str, draft: Draft, depth: int, rank: int, confidence: float | None) -> tuple[str, int, int, int]:
    """Where a node is counted: by its drafter's own ``confidence`` in it, else by the support of the draft."""
    if confidence is None:
        return name, bucket(draft.support), min(rank, _RANKS - 1), min(depth, _DEPTHS + 1)
    level = min(int(-2 * math.log2(max(confidence, 1e-9))), _CONFIDENCES - 1)  # a factor of root 2 each
    return name, -1 - level, min(rank, _RANKS - 1), min(depth, _SURE_DEPTHS)


def _scaled(chance: float, shift: float) -> float:
    odds = shift * chance
    return odds / (odds + max(1 - chance, 0.0))


def ranks_of(draft: Draft) -> list[int]:
    """(n,) rank of each node among its siblings, from 0."""
    ranks: list[int] = []
    n_children: dict[int, int] = {}
    for parent in draft.parents.tolist():
        ranks.append(n_children.get(parent, 0))
        n_children[parent] = ranks[-1] + 1
    return ranks
