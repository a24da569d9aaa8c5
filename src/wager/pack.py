"""From what each sequence feeds to one ragged Batch: the rows rule, branches as forks, padding. Pure functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wager.cache import Fork
from wager.tree import prune
from wager.types import EMPTY, I32, Batch, Draft, Model, RowsRule, Sequence


@dataclass(frozen=True, eq=False)
class Feed:
    """What one sequence feeds: its tokens [n_cached, stop), then the draft (only where stop is its last token).

    ``masked``: a tree is fed once under a mask; otherwise every root-to-leaf path is a fork. ``apart``: the tokens
    before such a tree may be a subsequence of their own. ``first``: logits are wanted after every token from that one
    on, not only after the last; then there is no draft.
    """

    seq: Sequence
    stop: int
    draft: Draft = EMPTY
    rule: RowsRule = "pair"
    masked: bool = False
    apart: bool = False
    first: int | None = None

    @cached_property  # asked for many times a step
    def branches(self) -> list[tuple[int, ...]]:
        """Nodes of every branch it feeds, the first on the sequence's own table."""
        return [tuple(range(len(self.draft)))] if self.masked else paths(self.draft)

    @cached_property
    def extra(self) -> int:
        return extra_rows(self.seq, self.stop - self.seq.n_cached, min(map(len, self.branches)), self.rule)

    @property
    def start(self) -> int:
        """First token fed: where a row more is needed, the committed token before is fed again (same K/V, no slot)."""
        return max(0, self.seq.n_cached - self.extra)

    @property
    def n_padding(self) -> int:
        """Rows that stand in for a token before the first. They take the next slot, which nothing else is fed to."""
        return max(0, self.extra - self.seq.n_cached)

    @property
    def n_slots(self) -> int:
        """Rows of K/V that the first branch needs, from the start of the sequence."""
        return self.stop + max(len(self.branches[0]), self.n_padding)

    @property
    def reaches_end(self) -> bool:
        return self.stop == len(self.seq.tokens)


def n_read(seq: Sequence, rule: RowsRule) -> int:
    """Tokens of a sequence that are read in subsequences of two and more rows; the others are alone in theirs."""
    if rule != "split":
        return sys.maxsize
    return seq.n_prompt if seq.n_prompt > 1 else 0


def least_rows(rule: RowsRule) -> int:
    """Fewest rows a sequence at its output feeds."""
    return 2 if rule == "pair" else 1


def n_pad_blocks(model: Model, n_rows: int) -> int:
    """Blocks that padding may need in forwards of at most ``n_rows`` rows: the first ones, which no sequence owns."""
    return -(-model.width_for(n_rows) // model.block_size)


def extra_rows(seq: Sequence, n_new: int, n_draft: int, rule: RowsRule) -> int:
    """Rows (0 or 1) fed beyond the new ones so that none is alone where the rule forbids it."""
    if rule == "pair":
        return max(0, 2 - n_new - n_draft)
    return int(rule == "split" and min(seq.n_cached + n_new, n_read(seq, rule)) - seq.n_cached == 1)


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Block tables of a feed: one per branch; the first is the sequence's own, the others are forks."""

    table: ListLike[int]
    forks: tuple[Fork, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """``batch`` and, per feed, ``rows`` (n+1,) i32: index into the logits after the last token and after each node, or
    after each new token from ``Feed.first`` on.
    """

    batch: Batch
    rows: tuple[I32 | None, ...]
    n_real: int


def paths(draft: Draft) -> list[tuple[int, ...]]:
    """Root-to-leaf node paths of a draft, in the order of their leaves; one empty path for an empty draft."""
    n = len(draft)
    if draft.is_chain:
        return [tuple(range(n))]
    inner = {int(p) for p in draft.parents}
    branches = []
    for leaf in range(n):
        if leaf in inner:
            continue
        path, node = [leaf], int(draft.parents[leaf])
        while node >= 0:
            path.append(node)
            node = int(draft.parents[node])
        branches.append(tuple(reversed(path)))
    return branches


def tree_rows(draft: Draft, n_committed: int) -> int:
    """Rows a draft takes as forks when every branch feeds ``n_committed`` tokens before its own nodes."""
    return sum(n_committed + len(path) for path in paths(draft))


def leading(draft: Draft, n_committed: int, n_rows: int) -> Draft:
    """The first root-to-leaf paths of a draft, as many as ``n_rows`` rows hold as forks; always the first one."""
    kept: set[int] = set()
    for i, path in enumerate(paths(draft)):
        n_rows -= n_committed + len(path)
        if n_rows < 0 and i > 0:
            break
        kept.update(path)
    return prune(draft, sorted(kept))


def n_fork_blocks(feed: Feed, draft: Draft, block_size: int) -> int:
    """Blocks that all branches of a draft take beyond the table of ``feed``, where that starts and stops."""
    if feed.masked:
        return -(-(feed.stop + len(draft)) // block_size) - -(-feed.n_slots // block_size)
    return sum(-(-(feed.stop + len(path)) // block_size) - feed.start // block_size for path in paths(draft)[1:])


def n_in_place(feed: Feed, path: ListLike[int]) -> int:
    """Accepted nodes whose K/V lies where the committed tokens want it: under a mask only the leading ones do."""
    return next((i for i, node in enumerate(path) if feed.masked and node != i), len(path))


def pack(
    feeds: ListLike[Feed],
    slots: ListLike[Slots],
    *,
    width_for: Callable[[int], int],
    pad_blocks: ListLike[int],
    block_size: int,
) -> Packed:
    """One Batch, padded to ``width_for`` its rows; padding is a sequence of its own in ``pad_blocks``.

    Raises nothing: the caller has reserved every slot.
    """
    builder = _Builder(block_size)
    rows = [_pack_feed(builder, feed, slot) for feed, slot in zip(feeds, slots, strict=True)]
    n_real = builder.n_rows
    n_pad = width_for(n_real) - n_real
    if n_pad > 0:
        builder.add([0] * n_pad, 0, pad_blocks[: -(-n_pad // block_size)])
    return Packed(builder.batch(), tuple(rows), n_real)


def _pack_feed(builder: _Builder, feed: Feed, slot: Slots) -> I32 | None:
    committed = feed.seq.tokens[feed.start : feed.stop]
    tables = [slot.table, *(fork.table for fork in slot.forks)]
    is_tree = feed.masked and not feed.draft.is_chain
    node_rows = np.full(len(feed.draft) + 1, -1, np.int32)
    for path, table in zip(feed.branches, tables, strict=True):
        tokens = committed + [int(feed.draft.tokens[node]) for node in path]
        rows = _add_tree(builder, feed, tokens, table) if is_tree else _add_branch(builder, feed, tokens, table)
        if feed.first is not None:
            wanted = [builder.want(row) for row in rows[max(feed.first, feed.seq.n_cached) - feed.start :]]
            return np.array(wanted, np.int32) if wanted else None
        if not feed.reaches_end:
            return None
        for node, row in zip((-1, *path), rows[len(committed) - 1 :], strict=True):
            if node_rows[node + 1] < 0:
                node_rows[node + 1] = builder.want(row)
    return node_rows


def _add_branch(builder: _Builder, feed: Feed, tokens: list[int], table: ListLike[int]) -> list[int]:
    """Feed the tokens of one branch, those that are read together first; returns the row of each."""
    n_together = min(len(tokens), max(0, n_read(feed.seq, feed.rule) - feed.start))
    rows: list[int] = []
    if n_together:
        first = builder.add(tokens[:n_together] + [0] * feed.n_padding, feed.start, table)
        rows += range(first, first + n_together)
    for i, token in enumerate(tokens[n_together:], start=feed.start + n_together):
        rows.append(builder.add([token], i, table))
    return rows


def _add_tree(builder: _Builder, feed: Feed, tokens: list[int], table: ListLike[int]) -> list[int]:
    """Feed a draft once, under a mask, after the committed tokens; returns the row of each token.

    Where several of those may be a subsequence of their own they are, a prompt above all: rows under a mask attend one
    by one, and a mask grows with the square of its rows.
    """
    n_committed = feed.stop - feed.start
    n_apart = n_committed if feed.apart and n_committed > 1 else 0
    if n_apart:
        builder.add(tokens[:n_apart], feed.start, table)
    mask = _tree_mask(feed.draft, n_committed - n_apart)
    first = builder.add(tokens[n_apart:], feed.start + n_apart, table, mask) - n_apart
    return list(range(first, first + len(tokens)))


def _tree_mask(draft: Draft, n_committed: int) -> npt.NDArray[np.uint8]:
    """(n, n) u8 over the fed rows: committed tokens see what is before them, a node its ancestors and itself."""
    mask = np.tril(np.ones((n_committed + len(draft),) * 2, np.uint8))
    for node, parent in enumerate(draft.parents):
        row = n_committed + node
        mask[row, n_committed:] = mask[n_committed + parent, n_committed:] if parent >= 0 else 0
        mask[row, row] = 1
    return mask


class _Builder:
    """Grows the flat arrays of one Batch."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.past: list[int] = []
        self.starts: list[int] = [0]
        self.blocks: list[int] = []
        self.block_starts: list[int] = [0]
        self.rows: list[int] = []
        self.masks: list[npt.NDArray[np.uint8] | None] = []

    @property
    def n_rows(self) -> int:
        return len(self.tokens)

    def add(
        self,
        tokens: ListLike[int],
        past: int,
        table: ListLike[int],
        mask: npt.NDArray[np.uint8] | None = None,
    ) -> int:
        """Append a subsequence; returns the index of its first row. Under a mask a row's position is what it sees."""
        base, end = len(self.tokens), past + len(tokens)
        n_blocks = -(-end // self.block_size)
        assert len(table) >= n_blocks, f"{end} rows do not fit {len(table)} blocks of {self.block_size}"
        self.tokens.extend(tokens)
        self.positions.extend(range(past, end) if mask is None else (past + mask.sum(axis=1) - 1).tolist())
        self.masks.append(mask)
        self.past.append(past)
        self.starts.append(len(self.tokens))
        self.blocks.extend(table[:n_blocks])
        self.block_starts.append(len(self.blocks))
        return base

    def want(self, row: int) -> int:
        self.rows.append(row)
        return len(self.rows) - 1

    def batch(self) -> Batch:
        def i32(values: list[int]) -> I32:
            return np.array(values, np.int32)

        return Batch(
            np.array(self.tokens, np.int64),
            np.array(self.positions, np.int64),
            i32(self.past),
            i32(self.starts),
            i32(self.blocks),
            i32(self.block_starts),
            np.array(self.rows, np.int64),
            tuple(self.masks) if any(mask is not None for mask in self.masks) else None,
        )
