"""What the engine asks a policy, in the order it asks."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Protocol

from wager.types import Draft, Drafter, Limits, Sequence, Stop, Verdict


@dataclass(frozen=True, slots=True)
class Tree:
    """``trunk`` tokens in one path, then ``levels`` levels at which a node has ``width`` children, then paths."""

    width: int = 1
    trunk: int = 0
    levels: int = 1

    def n_nodes(self, depth: int) -> int:
        """Nodes of its root-to-leaf paths, ``depth`` each: as forks are fed, what paths share counts with each."""
        return depth * int(self.width ** max(0, min(self.levels, depth - self.trunk)))

    def limits(self, depth: int, *, stop: Stop | None = None) -> Limits:
        """The whole tree, ``depth`` tokens deep."""
        return Limits(self.n_nodes(depth), depth, self.width, stop=stop)


CHAIN = Tree()


class Policy(Protocol):
    """How much to draft. It never sees what a token is: what it decides follows from the past, the number of sequences
    and the form of the drafts (depths, ranks, support; confidence too, save that of sampled ones). Under the walk
    nothing it does could change the text. Under the other rules that is what keeps ``cut`` lossless: the form of a
    sampled draft does not depend on what was drawn (drafters/model.py), so neither does what is cut from it.

    ``limits`` before drafting, one per sequence; ``cut`` once the drafts are seen: same length, each a prefix-closed
    part of its draft; ``observe`` after the commit, with the drafts as fed.
    """

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]: ...
    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]: ...
    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None: ...
    def forget(self, seq_id: int) -> None: ...
