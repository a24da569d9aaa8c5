"""Draft the successors that the target ranked first the last time: a table of what it said after every token.

Token Recycling (Luo et al., 2408.08696): the logits after a rejected token are as true as those after an accepted one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence as ListLike
from typing import Any

from wager.drafters.base import DrafterInfo, refuse_argument
from wager.drafters.growing import Growing
from wager.drafters.successors import Row, Successors, learn_round
from wager.types import Draft, DraftKind, Limits, Seen, Sequence, Verdict

_MAX_ROWS = 1 << 18  # more than there are tokens
_LEVELS = 4  # longer streaks count as this one
# First guesses of the chance of a token's best successor by streak, and what the r-th one after it gets of the rest is
# a share / r, as on greedy answers of a 135M model.
_FIRST = (0.17, 0.44, 0.63, 0.75)
_NEXT = 0.15
_STRENGTH = 8.0  # a first guess weighs as much as this many trials
_FORGET = 0.999  # weight of the past after each trial


class Recycling:
    """Drafts from one table that all its sequences fill and that outlives them: token -> its ``n_successors`` best.

    After every round the rows of the last token and of the accepted nodes are written anew from the logits there, and
    before them those of rejected nodes whose row is older than ``stale`` rounds. A row that was never written drafts
    nothing. A tree grows by the product of chances, that of a successor being its running acceptance by rank and streak
    (how often in a row the token had the same best successor); a chain follows the best ones. ``support`` is the streak
    of the last token.

    Measured on greedy answers of a 135M model: ``stale`` 0, 16 and never gave 1.366, 1.364 and 1.352 tokens a forward
    for 3.0, 1.9 and 1.35 rows written; by support .17 .44 .63 .66 .85 of the first draft tokens were accepted.
    """

    name = "recycling"
    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(self, *, n_successors: int = 8, stale: int = 16) -> None:
        self._table = Successors(n=n_successors, stale=stale, n_rows=_MAX_ROWS)
        self._starts: dict[int, int] = {}  # sequence -> tokens when it was asked for a draft
        guesses = [[first, *((1 - first) * _NEXT / r for r in range(1, n_successors))] for first in _FIRST]
        self._hits = [[_STRENGTH * guess for guess in by_rank] for by_rank in guesses]
        self._trials = [[_STRENGTH] * n_successors for _ in guesses]

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        self._starts.update((seq.id, len(seq.tokens)) for seq in seqs)
        chances = [[h / t for h, t in zip(*pair, strict=True)] for pair in zip(self._hits, self._trials, strict=True)]
        return [self._draft(seq.tokens[-1], limit, chances) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, last: int, limit: Limits, chances: list[list[float]]) -> Draft:
        growing = Growing(limit)
        waiting: list[tuple[float, int, int, int]] = []
        n_seen = 0
        parent: int | None = -1
        token, value = last, -1.0
        while not growing.is_full:
            row = self._table.get((token,))
            if parent is not None and row is not None:
                by_rank = chances[_level(row)]
                for rank, successor in enumerate(row.ids[: limit.width]):
                    heapq.heappush(waiting, (value * by_rank[rank], n_seen, parent, successor))
                    n_seen += 1
            if not waiting:
                break
            value, _, above, token = heapq.heappop(waiting)
            parent = growing.add(above, token)
        row = self._table.get((last,))
        return growing.draft(0 if row is None else row.streak)

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Count which successors were right, then write the rows anew. Whose drafts they were does not matter."""
        self._table.next_round()
        rounds = []
        for seq, draft, verdict, said in zip(seqs, drafts, verdicts, seen, strict=True):
            start = self._starts.get(seq.id)
            if start is not None:
                rounds.append((seq.tokens[start - 1], draft, verdict, said))
        for last, draft, verdict, _ in rounds:
            self._judge([last, *draft.tokens.tolist()], draft, verdict)
        for last, draft, verdict, said in rounds:
            learn_round([(1, self._table)], [last], draft, verdict, said)

    def _judge(self, tokens: list[int], draft: Draft, verdict: Verdict) -> None:
        """``tokens`` (n + 1,) of the nodes, the last one before them in front. Only reached nodes were tried."""
        reached = {-1, *verdict.path}
        for node, parent in enumerate(draft.parents.tolist()):
            row = self._table.get((tokens[parent + 1],)) if parent in reached else None
            if row is not None and tokens[node + 1] in row.ids:
                level, rank = _level(row), row.ids.index(tokens[node + 1])
                self._hits[level][rank] = self._hits[level][rank] * _FORGET + (node in reached)
                self._trials[level][rank] = self._trials[level][rank] * _FORGET + 1

    def forget(self, seq_id: int) -> None:
        """What the sequence showed stays."""
        self._starts.pop(seq_id, None)

    def seconds(self, n_tokens: int) -> float:
        """Drafting, and learning from what was drafted."""
        return 6e-5 + 3e-5 * n_tokens if n_tokens else 0.0


def _level(row: Row) -> int:
    return min(row.streak, _LEVELS) - 1


def make(argument: str, target: Any) -> Recycling:
    """For the registry; the target does not matter."""
    refuse_argument("recycling", argument)
    return Recycling()


DRAFTER = DrafterInfo(
    make=make,
    drafts="the successors that the target ranked first the last time it read a token, rejected ones too",
    remembers="a table, in memory",
    costs="0.1 ms",
    source="Token Recycling, Luo et al. 2408.08696",
    needs_target=False,
)
