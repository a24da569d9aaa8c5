"""Always the same limits."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

from wager.types import Draft, Drafter, Limits, Sequence, Verdict


class Fixed:
    """``n_nodes`` a sequence, as a chain unless ``width`` allows more children a node."""

    def __init__(self, n_nodes: int, *, depth: int | None = None, width: int = 1) -> None:
        self._limits = Limits(n_nodes, n_nodes if depth is None else depth, width)

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        return [self._limits] * len(seqs)

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Nothing to learn."""

    def forget(self, seq_id: int) -> None:
        """Nothing is kept."""
