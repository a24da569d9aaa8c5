"""Block pool for paged K/V: who owns which block. Bookkeeping only; the tensors belong to the model.

A sequence's table lists the blocks that hold its rows [0, n). Full blocks of committed tokens are registered under
(parent block, tokens in the block, how many of them were read together), so a later sequence with the same beginning
shares them where its own rows would have the same bits; registered blocks hold what any sharer would write. Where it
agrees with the first rows of one more block, full or not, it starts from a copy of that (a tail). Blocks nobody uses
are remembered until the space is needed (least recently used goes first).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

_Key = tuple[int, tuple[int, ...], int]  # (uid of the parent block's content, tokens in this block, n read together)
_ROOT = 0
_MOST_TAILS = 64  # remembered after the same beginning


def n_common(a: ListLike[int], b: ListLike[int]) -> int:
    """Leading entries that two sequences share; quickly where one of two lists, or tuples, begins the other."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), n)


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch of a sequence, or of another fork: ``table`` shares the full blocks of that one below the branch point,
    ``n_shared`` in number; ``copies`` (src, dst) are due.
    """

    table: tuple[int, ...]
    n_shared: int
    copies: tuple[tuple[int, int], ...]


class BlockPool:
    """Hands out blocks [first, first + n_blocks) of ``block_size`` rows each."""

    def __init__(self, n_blocks: int, block_size: int, *, first: int = 0, prefix_caching: bool = True) -> None:
        self.n_blocks, self.block_size, self.first = n_blocks, block_size, first
        self.prefix_caching = prefix_caching
        self._free: OrderedDict[int, None] = OrderedDict((b, None) for b in range(first, first + n_blocks))
        self._refs: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._parent: dict[int, tuple[int, int]] = {}  # seq_id -> (uid of its last registered block, how many)
        self._n_read: dict[int, int] = {}
        self._block_of: dict[_Key, int] = {}
        self._key_of: dict[int, tuple[_Key, int]] = {}  # block -> (key, uid)
        self._tails: dict[int, dict[int, tuple[tuple[int, ...], int]]] = {}  # uid -> block -> (tokens, n read together)
        self._tail_of: dict[int, int] = {}  # block -> uid of what is before it
        self._next_uid = _ROOT + 1
        self.n_prefix_queries = 0  # rows asked for since the start, of tables that were opened
        self.n_prefix_hits = 0  # those served from the pool

    @property
    def n_free(self) -> int:
        """Blocks nobody uses (registered contents may still sit in them)."""
        return len(self._free)

    def blocks_for(self, n_rows: int) -> int:
        return -(-n_rows // self.block_size)

    def table(self, seq_id: int) -> ListLike[int]:
        return self._tables[seq_id]

    def is_open(self, seq_id: int) -> bool:
        return seq_id in self._tables

    def found(self, tokens: ListLike[int], *, n_read: int = sys.maxsize, limit: int | None = None) -> int:
        """Rows that ``open`` and ``start_tail`` would find."""
        blocks, uid = self._shared(tokens, n_read, limit)
        first = len(blocks) * self.block_size
        return first + self._best_tail(uid, tokens, first, n_read, limit)[1]

    def open(self, seq_id: int, tokens: ListLike[int], *, n_read: int = sys.maxsize, limit: int | None = None) -> int:
        """Start a table; returns how many rows came from the pool: whole blocks, at most ``limit`` rows, and never the
        row before that (it may be fed again). The default leaves out the last token: its row is always fed.

        The first ``n_read`` tokens are read together, the others one by one (``pack.n_read``): their K/V differ in
        the last bits, so blocks are shared only between equals.
        """
        assert seq_id not in self._tables, seq_id
        blocks, uid = self._shared(tokens, n_read, limit)
        for block in blocks:
            self._acquire(block)
        self._n_read[seq_id] = n_read
        self._tables[seq_id] = blocks
        self._parent[seq_id] = (uid, len(blocks))
        self.n_prefix_queries += len(tokens)
        self.n_prefix_hits += len(blocks) * self.block_size
        return len(blocks) * self.block_size

    def start_tail(
        self, seq_id: int, tokens: ListLike[int], *, limit: int | None = None
    ) -> tuple[int, tuple[int, int]] | None:
        """A first block of its own for a table just opened, and how many rows it holds after the copy (src, dst) that
        is due before any other block is written; None where nothing is found or no block is free.
        """
        uid, n_blocks = self._parent[seq_id]
        first = n_blocks * self.block_size
        src, n = self._best_tail(uid, tokens, first, self._n_read[seq_id], limit)
        if not n:
            return None
        self._acquire(src)
        dst = self._take() if self._free else None
        self._release(src)
        if dst is None:
            return None
        self._tables[seq_id].append(dst)
        self.n_prefix_hits += n
        return first + n, (src, dst)

    def _shared(self, tokens: ListLike[int], n_read: int, limit: int | None) -> tuple[list[int], int]:
        """Registered blocks that begin ``tokens``, and the uid of the last one's content."""
        limit = len(tokens) - 1 if limit is None else limit
        blocks, uid = [], _ROOT
        for i in range(max(0, limit - 1) // self.block_size if self.prefix_caching else 0):
            block = self._block_of.get(self._key(n_read, uid, tokens, i))
            if block is None:
                break
            uid = self._key_of[block][1]
            blocks.append(block)
        return blocks, uid

    def _best_tail(
        self, uid: int, tokens: ListLike[int], first: int, n_read: int, limit: int | None
    ) -> tuple[int, int]:
        """(block, rows) of the remembered tail that agrees longest with ``tokens`` from ``first`` on; rows 0: none."""
        limit = len(tokens) - 1 if limit is None else limit
        wanted, n_together = tuple(tokens[first : min(limit, first + self.block_size)]), self._together(n_read, first)
        best = (-1, 0)
        for block, (held, n_held) in self._tails.get(uid, {}).items():
            n = n_common(held, wanted)
            if n_held != n_together:  # rows that one reads together and the other alone have other bits
                n = min(n, n_held, n_together)
            if n > best[1]:
                best = (block, n)
            if n == len(wanted):
                break
        return best

    def reserve(self, seq_id: int, n_rows: int) -> bool:
        """Make room for rows [0, n_rows); all or nothing."""
        table = self._tables[seq_id]
        missing = self.blocks_for(n_rows) - len(table)
        if missing > self.n_free:
            return False
        table.extend(self._take() for _ in range(missing))
        return True

    def blocks_for_fork(self, n_kept: int, n_rows: int) -> int:
        """Blocks that ``fork`` takes."""
        return self.blocks_for(n_rows) - n_kept // self.block_size

    def fork(self, seq_id: int, n_kept: int, n_rows: int, *, of: Fork | None = None) -> Fork | None:
        """A table for another continuation of the sequence, or of its fork ``of``, from row ``n_kept`` up to
        ``n_rows``; None where blocks run out.
        """
        n_shared = n_kept // self.block_size
        n_new = self.blocks_for_fork(n_kept, n_rows)
        if n_new > self.n_free:
            return None
        mine = self._tables[seq_id] if of is None else of.table
        new = [self._take() for _ in range(n_new)]
        for block in mine[:n_shared]:
            self._acquire(block)
        copies = ((mine[n_shared], new[0]),) if n_kept % self.block_size else ()
        return Fork((*mine[:n_shared], *new), n_shared, copies)

    def adopt(self, seq_id: int, fork: Fork) -> None:
        """The fork becomes the sequence's table; its former tail is released. The other forks are to be dropped."""
        for i, block in enumerate(self._tables[seq_id]):
            if i >= fork.n_shared:  # its fork goes on from here
                self._forget_tail(block)
            self._release(block)
        self._tables[seq_id] = list(fork.table)

    def drop(self, fork: Fork) -> None:
        for block in fork.table:
            self._release(block)

    def keep(self, seq_id: int, tokens: ListLike[int], n_cached: int) -> None:
        """Rows [0, n_cached) are final: register full blocks (all but the last row's), release what lies beyond."""
        table, bs = self._tables[seq_id], self.block_size
        n_keep = self.blocks_for(n_cached)
        for block in table[n_keep:]:
            self._release(block)
        del table[n_keep:]
        if not self.prefix_caching:
            return
        uid, n_registered = self._parent[seq_id]
        # The row n_cached - 1 may be fed once more (pack.extra_rows), so its block is not final yet.
        for i in range(n_registered, max(0, n_cached - 1) // bs):
            key = self._key(self._n_read[seq_id], uid, tokens, i)
            twin = self._block_of.get(key)
            if twin is None:
                self._remember(seq_id, tokens, i, uid, n_cached)
                uid, self._next_uid = self._next_uid, self._next_uid + 1
                self._block_of[key] = table[i]
                self._key_of[table[i]] = (key, uid)
            else:  # same content already registered: share it
                uid = self._key_of[twin][1]
                if twin != table[i]:
                    self._forget_tail(table[i])
                    self._acquire(twin)
                    self._release(table[i])
                    table[i] = twin
            n_registered = i + 1
            self._parent[seq_id] = (uid, n_registered)
        self._remember(seq_id, tokens, n_registered, uid, n_cached)

    def close(self, seq_id: int) -> None:
        for block in self._tables.pop(seq_id):
            self._release(block)
        del self._parent[seq_id], self._n_read[seq_id]

    def forget(self) -> None:
        """The memory was used by others: no block holds what was registered for it. Needs all tables closed."""
        assert not self._tables, "a table is open"
        for held in (self._block_of, self._key_of, self._tails, self._tail_of):
            held.clear()

    def check(self, forks: ListLike[Fork] = ()) -> None:
        """Raise AssertionError unless every block is free or owned exactly as often as tables say, and has one place
        in all of them; one of its owners may write to it, unless it is registered.
        """
        owned: dict[int, int] = {}
        places: dict[int, int] = {}
        n_writers: dict[int, int] = {}
        for table, n_shared in [*((t, 0) for t in self._tables.values()), *((f.table, f.n_shared) for f in forks)]:
            assert len(set(table)) == len(table), f"a block twice in one table: {table}"
            for place, block in enumerate(table):
                owned[block] = owned.get(block, 0) + 1
                assert places.setdefault(block, place) == place, f"block {block} is in two places"
                n_writers[block] = n_writers.get(block, 0) + (place >= n_shared)
        assert owned == self._refs, f"reference counts {self._refs} but tables own {owned}"
        assert not set(owned) & set(self._free), "a block both free and owned"
        assert len(owned) + len(self._free) == self.n_blocks, "a block is lost"
        for key, block in self._block_of.items():
            assert self._key_of[block][0] == key, f"block {block} registered under another content"
        assert len(self._block_of) == len(self._key_of)
        for block, n in n_writers.items():
            assert n <= 1 or block in self._key_of, f"unregistered block {block} has {n} writers"

    def _remember(self, seq_id: int, tokens: ListLike[int], i: int, uid: int, n_cached: int) -> None:
        """Of block ``i`` of a table, which follows what ``uid`` names, the rows below ``n_cached``, for copies."""
        first = i * self.block_size
        held = tuple(tokens[first : min(n_cached, first + self.block_size)])
        if not held:
            return
        block = self._tables[seq_id][i]
        self._forget_tail(block)
        tails = self._tails.setdefault(uid, {})
        if len(tails) >= _MOST_TAILS:
            oldest = next(iter(tails))
            del tails[oldest], self._tail_of[oldest]
        tails[block] = (held, self._together(self._n_read[seq_id], first))
        self._tail_of[block] = uid

    def _forget_tail(self, block: int) -> None:
        uid = self._tail_of.pop(block, None)
        if uid is not None:
            del self._tails[uid][block]
            if not self._tails[uid]:
                del self._tails[uid]

    def _together(self, n_read: int, first: int) -> int:
        """Rows of the block that begins at ``first`` which are read together."""
        return min(max(n_read - first, 0), self.block_size)

    def _key(self, n_read: int, parent: int, tokens: ListLike[int], i: int) -> _Key:
        first = i * self.block_size
        return parent, tuple(tokens[first : first + self.block_size]), self._together(n_read, first)

    def _take(self) -> int:
        block, _ = self._free.popitem(last=False)
        registered = self._key_of.pop(block, None)
        if registered is not None:
            del self._block_of[registered[0]]
        self._forget_tail(block)
        self._refs[block] = 1
        return block

    def _acquire(self, block: int) -> None:
        self._free.pop(block, None)
        self._refs[block] = self._refs.get(block, 0) + 1

    def _release(self, block: int) -> None:
        self._refs[block] -= 1
        if not self._refs[block]:
            del self._refs[block]
            self._free[block] = None
            if block not in self._key_of and block not in self._tail_of:  # nothing to remember: first to be taken again
                self._free.move_to_end(block, last=False)
