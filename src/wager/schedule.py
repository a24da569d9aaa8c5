"""Who runs this step, and with how many tokens: a pure function of the sequences and the budget."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from wager.pack import extra_rows
from wager.types import RowsRule, Sequence


@dataclass(frozen=True, slots=True)
class Budget:
    """``n_new`` uncached tokens a step (drafts included), ``n_rows`` rows in all, ``n_seqs`` sequences at once."""

    n_new: int
    n_rows: int
    n_seqs: int


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Feed ``n_new`` of the sequence's uncached tokens; the last of them where they are all that is left."""

    seq: Sequence
    n_new: int

    @property
    def reaches_end(self) -> bool:
        return self.seq.n_cached + self.n_new == len(self.seq.tokens)


def plan(active: ListLike[Sequence], budget: Budget, *, rule: RowsRule) -> list[Turn]:
    """Turns in order of need: sequences about to produce a token first, then prompts in order of arrival.

    A turn may take one row more than its new tokens (``pack.extra_rows``). Nobody starves: the order of ``active`` is
    the order of arrival, and decoding sequences take one new token each.
    """
    n_new, n_rows = budget.n_new, budget.n_rows
    turns: list[Turn] = []
    by_need = sorted(active, key=lambda seq: len(seq.tokens) - seq.n_cached > 1)
    for seq in by_need[: budget.n_seqs]:
        n = min(len(seq.tokens) - seq.n_cached, n_new, n_rows)
        if n >= 1 and n + extra_rows(seq, n, 0, rule) > n_rows:
            n -= 1
        if n < 1:
            break
        turns.append(Turn(seq, n))
        n_new -= n
        n_rows -= n + extra_rows(seq, n, 0, rule)
    return turns
