"""A tiny language model over real paged bookkeeping: every mistake in blocks, forks or rollback shows.

A K/V slot holds (token, position, hash of the whole prefix). A forward reads the context of each row through the block
table and checks all three, so a stale, foreign, unwritten or misplaced slot trips an assert; logits are a hash of the
last ``order`` tokens, so the law is a Markov chain that tests can enumerate.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence as ListLike

import numpy as np
import numpy.typing as npt

from wager.sampling import Noise, probabilities, scores
from wager.types import F32, Batch, Forward, RowsRule, Sampling

_UNWRITTEN = -1
_PREFIX_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class ToyModel:
    """``types.Model`` with made-up logits in [-scale, scale], a function of the last ``order`` tokens and ``seed``.

    ``rows_rule`` "pair" asserts that no wanted row is alone in its subsequence; under "split" logits depend on which
    rows of the context were fed alone, as those of real kernels do. ``banned`` tokens have
    logits -inf. Hidden states (H,) = (``n_hidden``,) are another function of the same tokens and ``seed``. What is
    handed out is overwritten with NaN by the next forward.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        n_blocks: int = 64,
        block_size: int = 4,
        order: int = 2,
        seed: int = 0,
        scale: float = 3.0,
        context_length: int = 1 << 30,
        rows_rule: RowsRule = "any",
        max_rows: int = 64,
        banned: ListLike[int] = (),
        n_hidden: int = 8,
    ) -> None:
        self.vocab_size = vocab_size
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.context_length = context_length
        self.n_forwards = 0
        self._order = order
        self._noise = Noise(seed)
        self._scale = scale
        self.rows_rule = rows_rule
        self.tree_masks = False
        self.kv_owner: object = None
        self.max_rows = max_rows
        self._banned = list(banned)
        self._tokens = np.full((n_blocks, block_size), _UNWRITTEN, np.int64)
        self._positions = np.full((n_blocks, block_size), _UNWRITTEN, np.int64)
        self._prefixes = np.zeros((n_blocks, block_size), np.uint64)
        self._alone = np.zeros((n_blocks, block_size), np.bool_)
        self._hidden: dict[tuple[int, ...], F32] = {}
        self._table: dict[tuple[int, ...], F32] = {}
        self._n_hidden = n_hidden
        self._handed_out = Forward(np.empty((0, vocab_size), np.float32), np.empty((0, n_hidden), np.float32))

    @property
    def masks_are_exact(self) -> bool:
        return self.rows_rule == "any"

    def width_for(self, n_rows: int) -> int:
        """Rows are padded to an even number."""
        return n_rows + n_rows % 2

    def law(self, context: ListLike[int]) -> F32:
        """Logits (V,) after ``context``. Read only."""
        key = self._key(context)
        if key not in self._table:
            u = np.exp(-self._noise.exponential(self._address(key), vocab_size=self.vocab_size))
            row = (self._scale * (2 * u - 1)).astype(np.float32)
            row[self._banned] = -np.inf
            self._table[key] = row
        return self._table[key]

    def hidden(self, context: ListLike[int]) -> F32:
        """Hidden state (H,) after ``context``, in [-1, 1]: equal where ``law`` is."""
        key = self._key(context)
        if key not in self._hidden:
            uniform = self._noise.uniform("draft", self._address(key), n=self._n_hidden)
            self._hidden[key] = (2 * uniform - 1).astype(np.float32)
        return self._hidden[key]

    def _key(self, context: ListLike[int]) -> tuple[int, ...]:
        return tuple(int(t) for t in context[-self._order :]) if self._order else ()

    def _address(self, key: tuple[int, ...]) -> int:
        address = 0
        for token in key:
            address = address * (self.vocab_size + 1) + token + 1
        return address

    def exact_law(self, prompt: ListLike[int], n: int, sampling: Sampling) -> dict[tuple[int, ...], float]:
        """Probability of every continuation of n tokens, by enumeration; impossible ones are left out."""
        law: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(n):
            law = {
                (*head, token): p_head * float(p)
                for head, p_head in law.items()
                for token, p in enumerate(self._next(list(prompt), head, sampling))
                if p > 0
            }
        return law

    def _next(self, prompt: list[int], head: tuple[int, ...], sampling: Sampling) -> npt.NDArray[np.float64]:
        context = [*prompt, *head]
        guide = sampling.constraint.guide(None) if sampling.constraint is not None else None
        allowed = guide.allowed(head) if guide is not None else None
        x = scores(self.law(context), sampling, tokens=context, n_prompt=len(prompt), allowed=allowed)
        if sampling.temperature == 0:
            x = np.where(np.arange(len(x)) == int(x.argmax()), 0.0, -np.inf)
        return probabilities(x)

    def forward(self, batch: Batch) -> Forward:
        """Writes the rows of every subsequence, then reads each row's context back through its block table."""
        self._check(batch)
        self.n_forwards += 1
        for array in (self._handed_out.logits, self._handed_out.hidden):
            if array is not None:
                array[:] = np.nan
        subsequences = range(len(batch.past))
        written: dict[tuple[int, int], tuple[int, int]] = {}
        for b in subsequences:
            self._write(batch, b, written)
        wanted = {int(row) for row in batch.rows}
        contexts = {row: context for b in subsequences for row, context in self._read(batch, b, wanted).items()}
        logits = np.empty((len(batch.rows), self.vocab_size), np.float32)
        hidden = np.empty((len(batch.rows), self._n_hidden), np.float32)
        for r, row in enumerate(batch.rows):
            logits[r] = self.law(contexts[int(row)])
            hidden[r] = self.hidden(contexts[int(row)])
            if self.rows_rule == "split":
                logits[r] += self._kernel_trace(batch, int(row))
        self._handed_out = Forward(logits, hidden)
        return self._handed_out

    def copy(self, src_blocks: ListLike[int], dst_blocks: ListLike[int]) -> None:
        """K/V of whole blocks; all sources are read before any target is written."""
        assert len(src_blocks) == len(dst_blocks) == len(set(dst_blocks)), (src_blocks, dst_blocks)
        src, dst = np.asarray(src_blocks, np.int64), np.asarray(dst_blocks, np.int64)
        for array in (self._tokens, self._positions, self._prefixes, self._alone):
            array[dst] = array[src]

    def _kernel_trace(self, batch: Batch, row: int) -> F32:
        """What a row's logits owe to the way each row of its context was fed, alone or not: large enough to show."""
        b = int(np.searchsorted(batch.starts, row, side="right")) - 1
        blocks, offsets = self._slots(batch, b, int(batch.past[b] + row - batch.starts[b]) + 1)
        ways = zlib.crc32(self._alone[blocks, offsets].tobytes())
        return (2 * Noise(ways).uniform("draft", 0, n=self.vocab_size) - 1).astype(np.float32)

    def poison(self, blocks: ListLike[int]) -> None:
        """Forget what these blocks hold: reading a slot before it is written again trips an assert."""
        self._tokens[list(blocks)] = _UNWRITTEN
        self._positions[list(blocks)] = _UNWRITTEN

    def _check(self, batch: Batch) -> None:
        n_rows, n_seqs = len(batch.tokens), len(batch.past)
        assert len(batch.positions) == n_rows
        assert len(batch.starts) == len(batch.block_starts) == n_seqs + 1
        assert batch.starts[0] == batch.block_starts[0] == 0
        assert batch.starts[-1] == n_rows
        assert batch.block_starts[-1] == len(batch.blocks)
        n_fed = np.diff(batch.starts)
        asked = {int(np.searchsorted(batch.starts, row, side="right")) - 1 for row in batch.rows}
        if self.rows_rule == "pair":
            assert all(n_fed[b] >= 2 for b in asked), f"a subsequence feeds {n_fed.min()} rows"
        assert n_rows <= self.width_for(self.max_rows), f"{n_rows} rows in one forward"
        assert np.all((batch.tokens >= 0) & (batch.tokens < self.vocab_size)), batch.tokens
        assert np.all((batch.blocks >= 0) & (batch.blocks < self.n_blocks)), batch.blocks
        assert np.all((batch.rows >= 0) & (batch.rows < n_rows)), batch.rows
        assert np.all(batch.positions < self.context_length), batch.positions
        n_slots = np.diff(batch.block_starts) * self.block_size
        assert np.all(batch.past + n_fed <= n_slots), (batch.past, n_fed, n_slots)

    def _slots(self, batch: Batch, b: int, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Block and offset (n,) of the first n slots of subsequence b."""
        blocks = batch.blocks[batch.block_starts[b] : batch.block_starts[b + 1]]
        assert len(set(blocks.tolist())) == len(blocks), f"a block table names a block twice: {blocks}"
        slots = np.arange(n)
        return blocks[slots // self.block_size].astype(np.int64), slots % self.block_size

    def _write(self, batch: Batch, b: int, written: dict[tuple[int, int], tuple[int, int]]) -> None:
        start, stop, past = int(batch.starts[b]), int(batch.starts[b + 1]), int(batch.past[b])
        visible = _visible(batch, b)
        blocks, offsets = (x[past:].tolist() for x in self._slots(batch, b, past + stop - start))
        tokens, positions = batch.tokens[start:stop].tolist(), batch.positions[start:stop].tolist()
        prefixes: list[int] = []
        for i, (token, position, *slot) in enumerate(zip(tokens, positions, blocks, offsets, strict=True)):
            parents = range(i) if visible is None else np.flatnonzero(visible[i, :i]).tolist()
            assert position == past + len(parents), f"row {start + i}: position {position} after {past + len(parents)}"
            prefix = prefixes[parents[-1]] if parents else self._prefix(batch, b, past)
            prefixes.append((prefix * int(_PREFIX_FACTOR) + token + 1) % 2**64)
            at = (slot[0], slot[1])
            # Forks may rewrite a shared slot, but only with what the others write there.
            assert written.setdefault(at, (token, position)) == (token, position), f"slot {at} written twice"
            self._tokens[at], self._positions[at], self._prefixes[at] = token, position, prefixes[i]
            self._alone[at] = stop - start == 1

    def _prefix(self, batch: Batch, b: int, n: int) -> int:
        """Hash of the first n tokens that a subsequence finds."""
        if n == 0:
            return 0
        block = batch.blocks[batch.block_starts[b] + (n - 1) // self.block_size]
        return int(self._prefixes[block, (n - 1) % self.block_size])

    def _read(self, batch: Batch, b: int, wanted: set[int]) -> dict[int, list[int]]:
        start, stop, past = int(batch.starts[b]), int(batch.starts[b + 1]), int(batch.past[b])
        visible = _visible(batch, b)
        blocks, offsets = self._slots(batch, b, past + stop - start)
        if visible is None:  # the last row sees what every row sees
            tokens = self._context(stop - 1, blocks, offsets)
            return {row: tokens[: past + row - start + 1] for row in range(start, stop) if row in wanted}
        contexts = {}
        for i, row in enumerate(range(start, stop)):
            seen = np.concatenate([np.arange(past), past + np.flatnonzero(visible[i])])
            tokens = self._context(row, blocks[seen], offsets[seen])
            if row in wanted:
                contexts[row] = tokens
        return contexts

    def _context(self, row: int, blocks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> list[int]:
        """The tokens in these slots, which must be those of one text."""
        tokens, positions = self._tokens[blocks, offsets], self._positions[blocks, offsets]
        prefixes = self._prefixes[blocks, offsets]
        assert not np.any(positions == _UNWRITTEN), f"row {row} reads a slot that was never written"
        assert np.array_equal(positions, np.arange(len(blocks))), f"row {row} reads positions {positions}"
        before = np.concatenate([np.zeros(1, np.uint64), prefixes[:-1]])
        assert np.array_equal(prefixes, _extend(before, tokens)), f"row {row} reads rows of another text"
        found: list[int] = tokens.tolist()
        return found


def _visible(batch: Batch, b: int) -> npt.NDArray[np.bool_] | None:
    """(n, n): which rows of its own subsequence each row sees, itself included; None: all up to itself."""
    n = int(batch.starts[b + 1] - batch.starts[b])
    mask = batch.masks[b] if batch.masks is not None else None
    if mask is None:
        return None
    assert mask.shape == (n, n), (mask.shape, n)
    visible: npt.NDArray[np.bool_] = mask.astype(np.bool_)
    assert np.all(np.diag(visible)), "a row must see itself"
    assert not np.any(np.triu(visible, 1)), "a row sees a later row"
    return visible


def _extend(prefixes: npt.NDArray[np.uint64], tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hashes (n,) of prefixes and one token more each."""
    return prefixes * _PREFIX_FACTOR + tokens.astype(np.uint64) + np.uint64(1)
