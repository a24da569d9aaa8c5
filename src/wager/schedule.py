"""Who runs this step, and with how many tokens: a pure function of the sequences and the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

from wager.pack import extra_rows, least_rows
from wager.types import Limits, RowsRule, Sequence


@dataclass(frozen=True, slots=True)
class Budget:
    """``n_new`` uncached tokens a step (drafts included), ``n_rows`` rows in all, ``n_seqs`` sequences at once."""

    n_new: int
    n_rows: int
    n_seqs: int


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Feed ``n_new`` of the sequence's uncached tokens; the last of them where they are all that is left, and with it
    the ``n_below`` rows that it must not be fed without.
    """

    seq: Sequence
    n_new: int
    n_below: int = 0

    @property
    def reaches_end(self) -> bool:
        return self.seq.n_cached + self.n_new == len(self.seq.tokens)


def by_need(active: Iterable[Sequence]) -> list[Sequence]:
    """Sequences about to produce a token first, then prompts, both in the order they came in."""
    return sorted(active, key=lambda seq: len(seq.tokens) - seq.n_cached > 1)


def plan(
    active: ListLike[Sequence], budget: Budget, *, rule: RowsRule, below: Mapping[int, int] | None = None
) -> list[Turn]:
    """Turns in order of need: sequences about to produce a token first, then prompts in order of arrival.

    A turn may take one row more than its new tokens (``pack.extra_rows``). Nobody starves: the order of ``active`` is
    the order of arrival, and decoding sequences take one new token each. ``below``: by sequence id, rows that must be
    fed together with its last token; without room for them that one waits.
    """
    n_new, n_rows = budget.n_new, budget.n_rows
    turns: list[Turn] = []
    for seq in by_need(active)[: budget.n_seqs]:
        n_left, n_below = len(seq.tokens) - seq.n_cached, (below or {}).get(seq.id, 0)
        n = min(n_left, n_new, n_rows)
        if n_below and n == n_left and n + n_below > n_rows:
            n -= 1
            if n < 1:
                continue
        if n >= 1 and n + extra_rows(seq, n, 0, rule) > n_rows:
            n -= 1
        if n < 1:
            break
        turns.append(Turn(seq, n, n_below if n == n_left else 0))
        n_new -= n
        n_rows -= n + extra_rows(seq, n, 0, rule) + turns[-1].n_below
    return turns


def most_below(budget: Budget, *, rule: RowsRule) -> int:
    """Rows that may have to be fed together with a last token: half of them, or more where that leaves enough for all
    other sequences at their output, without which it would wait until older ones end.
    """
    n_beside = least_rows(rule) * budget.n_seqs
    return max(budget.n_rows // 2, budget.n_rows - n_beside) - 2


def rows_for(turn: Turn, turns: ListLike[Turn], budget: Budget, *, rule: RowsRule) -> int:
    """Rows a turn may take: an equal share of what the committed tokens of all turns leave."""
    n_least = sum(t.n_new + extra_rows(t.seq, t.n_new, 0, rule) + t.n_below for t in turns)
    share = (budget.n_rows - n_least) // sum(t.reaches_end for t in turns)
    return turn.n_new + extra_rows(turn.seq, turn.n_new, 0, rule) + max(0, share)


def at_most(limit: Limits, n_tokens: int | None) -> Limits:
    """``limit`` with at most ``n_tokens`` nodes (None: as it is)."""
    if n_tokens is None or limit.n_nodes <= n_tokens:
        return limit
    return replace(limit, n_nodes=n_tokens, depth=min(limit.depth, n_tokens))


def bounded(
    limit: Limits,
    turn: Turn,
    n_rows: int,
    budget: Budget,
    *,
    context: int,
    rule: RowsRule,
    masks: bool,
    trees: bool,
) -> Limits:
    """``limit`` no deeper than the tokens that may still be committed, the ``context``, and ``n_rows`` rows allow.

    Without ``masks`` each of the n_nodes / depth branches feeds what is pending by itself. Without ``trees`` a chain.
    """
    seq = turn.seq
    room = min(seq.sampling.max_tokens - seq.n_output, context - len(seq.tokens)) - 1
    n_committed = turn.n_new + extra_rows(seq, turn.n_new, 1, rule)
    n_nodes = max(0, min(limit.n_nodes, n_rows - n_committed, budget.n_new - turn.n_new))
    depth = max(0, min(limit.depth, room, n_nodes))
    if not masks and depth:
        n_nodes = max(depth, min(n_nodes, n_rows * depth // (n_committed + depth)))
    return replace(
        limit, n_nodes=n_nodes if depth else 0, depth=depth, width=limit.width if trees else min(limit.width, 1)
    )
