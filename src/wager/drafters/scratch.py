"""Drafters made of the target: they read its K/V, and write what they draft behind it, where the verification will."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import replace

import numpy as np

from wager.drafters.branches import Branch, State
from wager.drafters.drawing import Drawing, shape_of
from wager.drafters.model import ModelDrafter
from wager.pack import Feed, Slots, pack
from wager.sampling import Noise
from wager.types import F32, Draft, Limits, Model, Sequence, TargetView

MAX_PENDING = 8  # tokens that the target has not read; with more of them it is about to read a prompt
Unseen = Callable[[int], tuple[int, int]]


class ScratchDrafter(ModelDrafter):
    """Drafts one path with ``model``, the target or a graph over the same K/V tensors, in rows behind the target's.

    ``unseen(n_tokens)``: half-open range of blocks that a draft after so many tokens does not look at. Drafts nothing
    where the target has more than ``max_pending`` tokens to read, or no block to spare.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_valid_ids: int,
        eos_ids: frozenset[int] = frozenset(),
        drawing: Drawing,
        name: str,
        unseen: Unseen | None = None,
        max_pending: int = MAX_PENDING,
    ) -> None:
        super().__init__(model, n_valid_ids=n_valid_ids, eos_ids=eos_ids, drawing=drawing, name=name)
        self._unseen = unseen
        self._max_pending = max_pending
        self._view: TargetView | None = None
        self._tables: dict[int, ListLike[int]] = {}

    def attach(self, view: TargetView) -> None:
        self._view = view

    def redrawn(self, drawing: Drawing) -> ScratchDrafter:
        return ScratchDrafter(
            self._model,
            n_valid_ids=self._n_valid,
            eos_ids=self._eos_ids,
            drawing=drawing,
            name=self.name,
            unseen=self._unseen,
            max_pending=self._max_pending,
        )

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        try:
            return super().propose(seqs, limits)
        finally:  # scratch rows are lent for this call only
            self._states.clear()
            self._tables.clear()

    def _catch_up(self, seqs: ListLike[Sequence], asked: dict[int, Limits]) -> dict[int, State]:
        assert self._view is not None, "no engine has shown its target yet"
        for seq in seqs:
            n, limit = len(seq.tokens), asked[seq.id]
            if n - seq.n_cached > self._max_pending:
                continue
            table = self._view.scratch(seq, n + limit.depth - 1)  # the last token is drawn, not read
            if table is not None:
                self._tables[seq.id] = table
                shape = shape_of(self.drawing, limit, n_leaves=1, greedy=seq.sampling.temperature == 0)
                branch = Branch(replace(seq, tokens=list(seq.tokens)))
                self._states[seq.id] = State(Noise(seq.seed, seq.sample), [branch], n, shape, limit.stop)
        return dict(self._states)

    def _forward(self, branches: ListLike[Branch]) -> dict[int, F32]:
        fed: list[Branch] = []
        n_left = self._model.max_rows
        for branch in branches:
            n_left -= len(branch.seq.tokens) - branch.seq.n_cached
            if fed and n_left < 0:
                break
            fed.append(branch)
        parts = [self._shown(branch.seq) for branch in fed]
        packed = pack(
            [Feed(seq, len(seq.tokens), rule="any") for seq, _, _ in parts],
            [Slots(table) for _, table, _ in parts],
            width_for=self._model.width_for,
            pad_blocks=self._pad_blocks,
            block_size=self._model.block_size,
        )
        # Rows close up over what is unseen, but a token stays at its position.
        n_gone = [gone for _, _, gone in parts] + [0] * (len(packed.batch.past) - len(parts))
        positions = packed.batch.positions + np.repeat(np.array(n_gone, np.int64), np.diff(packed.batch.starts))
        forward = self._model.forward(replace(packed.batch, positions=positions))
        logits = {}
        for branch, rows in zip(fed, packed.rows, strict=True):
            assert rows is not None, "all is fed up to the end"
            branch.seq.n_cached = len(branch.seq.tokens)
            logits[id(branch)] = forward.logits[rows[0], : self._n_valid]
        return logits

    def _shown(self, seq: Sequence) -> tuple[Sequence, ListLike[int], int]:
        """What a draft sees of a sequence and of its blocks, and how many tokens are left out."""
        table, start = self._tables[seq.id], self._states[seq.id].start
        first, last = (0, 0) if self._unseen is None else self._unseen(start)
        gone = (last - first) * self._model.block_size
        if not gone:
            return seq, table, 0
        shown = replace(seq, tokens=seq.tokens[gone:], n_cached=seq.n_cached - gone)  # all that is fed stays
        return shown, [*table[:first], *table[last:]], gone
