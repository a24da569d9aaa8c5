"""Which draft nodes to feed under a budget of rows: pure functions of the nodes' values."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

import numpy as np

from wager.types import F64, Draft


@dataclass(slots=True)
class Kept:
    """Nodes to feed per draft (ascending), their summed value, and the rows all sequences feed together."""

    nodes: list[list[int]]
    value: float
    n_rows: int


@dataclass(slots=True)
class _Branches:
    """The kept part of one draft as branches that are fed one by one (forks)."""

    draft: Draft
    depths: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    inner: set[int] = field(default_factory=set)  # kept nodes, and the root -1, with a kept child

    def rows_for(self, node: int, *, min_rows: int, forks: bool) -> int:
        """Rows that adding ``node`` costs; its parent is kept."""
        parent = int(self.draft.parents[node])
        if parent in self.inner and forks:
            return max(min_rows, 1 + self.depths[node])
        if parent == -1 and not self.inner:
            return max(min_rows, 2) - min_rows
        return 1


def fill(
    drafts: ListLike[Draft], values: ListLike[F64], *, width: int, min_rows: int, forks: bool = True, floor: float = 0.0
) -> Kept:
    """The most valuable prefix-closed nodes that fit ``width`` rows, each worth more than ``floor``.

    A sequence feeds its last token and the nodes, at least ``min_rows`` rows: the first draft token is free where that
    is 2. As forks each further branch feeds its shared nodes again. Values fall along a path, so taking them by value
    takes parents first (TETRIS, 2505.15197, for chains).
    """
    branches = [_branches(draft) for draft in drafts]
    n_rows = min_rows * len(drafts)
    total = 0.0
    order = sorted((-float(v), s, i) for s, vs in enumerate(values) for i, v in enumerate(vs))
    for negative, s, node in order:
        if -negative <= floor:
            break
        b = branches[s]
        parent = int(b.draft.parents[node])
        if parent >= 0 and parent not in b.kept:
            continue
        extra = b.rows_for(node, min_rows=min_rows, forks=forks)
        if n_rows + extra > width:
            continue
        b.kept.add(node)
        b.inner.add(parent)
        n_rows += extra
        total -= negative
    return Kept([sorted(b.kept) for b in branches], total, n_rows)


def prune(draft: Draft, nodes: ListLike[int]) -> Draft:
    """The draft with only ``nodes`` (ascending, prefix-closed)."""
    if len(nodes) == len(draft):
        return draft
    kept = np.asarray(nodes, np.int64)
    new = np.full(len(draft) + 1, -1, np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    probs = None if draft.probs is None else draft.probs[kept]
    return Draft(draft.tokens[kept], new[draft.parents[kept]], probs, draft.kind, draft.support)


def _branches(draft: Draft) -> _Branches:
    depths: list[int] = []
    for parent in draft.parents.tolist():
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return _Branches(draft, depths)
