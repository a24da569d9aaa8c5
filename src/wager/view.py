"""What a drafter made of the target may use of it: its model, and scratch rows behind what it has cached."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

from wager.cache import BlockPool
from wager.types import Model, ReadsTarget, Sequence


class View:
    """``types.TargetView`` over an engine's block pool, shown to ``drafter`` if it asks for that.

    What was lent goes back with ``release``.
    """

    def __init__(self, model: Model, pool: BlockPool, drafter: object) -> None:
        self.model = model
        self._pool = pool
        self._lent: dict[int, Sequence] = {}
        if isinstance(drafter, ReadsTarget):
            drafter.attach(self)

    def scratch(self, seq: Sequence, n_rows: int) -> ListLike[int] | None:
        assert n_rows >= seq.n_cached, (n_rows, seq.n_cached)
        if not self._pool.reserve(seq.id, n_rows):
            return None
        self._lent[seq.id] = seq
        return self._pool.table(seq.id)

    def release(self) -> None:
        """Blocks behind the cached rows are free again."""
        for seq in self._lent.values():
            self._pool.keep(seq.id, seq.tokens, seq.n_cached)
        self._lent.clear()
