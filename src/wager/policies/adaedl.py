"""Draft until the entropy of the draft's law makes acceptance unlikely (AdaEDL, 2410.18351)."""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from wager.policies.base import CHAIN, Tree
from wager.tree import depths
from wager.types import Draft, Drafter, Drawn, Limits, Sequence, Verdict

_GAMMA = 0.2
_RATE_MEMORY, _BOUND_MEMORY, _STEP = 0.5, 0.9, 0.01  # beta 1, beta 2 and epsilon of the paper
_START = 0.5  # of the bound, H up to 1.25 nats: it moves by .001 a step, so that it has to start near its place


@dataclass(frozen=True, slots=True)
class Unlikely:
    """Draws nothing where the lower bound of acceptance, 1 - sqrt(gamma H), is below ``least``."""

    least: float
    n_top: int = 0

    def before(self, path: Drawn, entropy: float) -> bool:
        return 1 - math.sqrt(_GAMMA * entropy) < self.least

    def after(self, paths: ListLike[Drawn]) -> list[bool]:
        return [False] * len(paths)


class AdaEdl:
    """At most ``n_tokens`` a path. ``least``, what the bound must reach, rises while a share of less than ``target`` of
    the drafted tokens is accepted, else it falls; it is one for all sequences, and rests in steps that drafted nothing.
    """

    def __init__(self, target: float, *, n_tokens: int, tree: Tree = CHAIN, least: float = _START) -> None:
        self.least = least
        self._target = target
        self._n_tokens = n_tokens
        self._tree = tree
        self._rate = target

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        return [self._tree.limits(self._n_tokens, stop=Unlikely(self.least))] * len(seqs)

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        n_drafted = sum(max(depths(draft), default=0) for draft in drafts)
        if not n_drafted:
            return
        rate = sum(len(verdict.path) for verdict in verdicts) / n_drafted
        self._rate = _RATE_MEMORY * self._rate + (1 - _RATE_MEMORY) * rate
        moved = self.least + (_STEP if self._rate < self._target else -_STEP)
        self.least = _BOUND_MEMORY * self.least + (1 - _BOUND_MEMORY) * moved

    def forget(self, seq_id: int) -> None:
        """The bound is for all."""
