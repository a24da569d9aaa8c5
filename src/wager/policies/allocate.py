"""Which draft nodes to feed under a budget of rows: pure functions of the nodes' values."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.tree import depths
from wager.types import Draft


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes to feed per draft (ascending), their summed value, and the rows all sequences feed together."""

    nodes: list[list[int]]
    value: float
    n_rows: int


@dataclass(slots=True)
class _Branches:
    """The kept part of one draft."""

    parents: list[int]
    depths: list[int]
    kept: set[int] = field(default_factory=set)
    inner: set[int] = field(default_factory=set)  # nodes, or the root -1, with a kept child

    def rows_for(self, node: int, *, min_rows: int, forks: bool) -> int:
        """Rows that adding ``node`` costs; its parent is kept."""
        parent = self.parents[node]
        if not self.inner:
            return max(min_rows, 2) - min_rows
        if parent in self.inner and forks:
            return max(min_rows, 1 + self.depths[node])
        return 1


def fill(
    drafts: ListLike[Draft],
    values: ListLike[ListLike[float]],
    widths: ListLike[int],
    *,
    min_rows: int,
    forks: bool = True,
    floor: float = 0.0,
) -> Iterator[tuple[int, Kept]]:
    """For each width (ascending) the most valuable prefix-closed nodes that fit, each worth more than ``floor``.

    A sequence feeds its last token and the nodes, at least ``min_rows`` rows: where that is 2 its first draft token is
    free and taken first. As forks, each further branch feeds its shared nodes again. Values fall along a path, so the
    order of value has parents first (TETRIS, 2505.15197, for chains).
    """
    if all(draft.is_chain for draft in drafts):
        yield from _fill_chains(values, widths, min_rows=min_rows, floor=floor)
        return
    branches = [_Branches(draft.parents.tolist(), depths(draft)) for draft in drafts]
    n_rows, total = min_rows * len(drafts), 0.0
    order = [(-v, s, i) for s, vs in enumerate(values) for i, v in enumerate(vs) if v > floor]
    order.sort(key=lambda item: (min_rows < 2 or item[2] > 0, item))
    for width in widths:
        waiting = []
        for at, item in enumerate(order):
            value, s, node = item
            b = branches[s]
            if n_rows == width and b.inner:  # the free ones came first
                waiting += order[at:]
                break
            parent = b.parents[node]
            n_more = b.rows_for(node, min_rows=min_rows, forks=forks)
            if n_rows + n_more > width or (parent >= 0 and parent not in b.kept):
                waiting.append(item)
                continue
            b.kept.add(node)
            b.inner.add(parent)
            n_rows += n_more
            total -= value
        order = waiting
        yield width, Kept([sorted(b.kept) for b in branches], total, n_rows)


def _fill_chains(
    values: ListLike[ListLike[float]], widths: ListLike[int], *, min_rows: int, floor: float
) -> Iterator[tuple[int, Kept]]:
    """``fill`` of chains, every step's most frequent case by far: along the order of value, as far as it fits."""
    n_rows = min_rows * len(values)
    n_free = 1 if min_rows > 1 else 0  # tokens of a chain that cost no row
    counts, total = [0] * len(values), 0.0
    for s, vs in enumerate(values):
        if n_free and vs and vs[0] > floor:
            counts[s], total = 1, total + vs[0]
    order = [(-v, s) for s, vs in enumerate(values) for v in vs[n_free:] if v > floor]
    order.sort()
    at = 0
    for width in widths:
        while at < len(order) and n_rows < width:
            value, s = order[at]
            counts[s], total, n_rows, at = counts[s] + 1, total - value, n_rows + 1, at + 1
        yield width, Kept([list(range(n)) for n in counts], total, n_rows)
