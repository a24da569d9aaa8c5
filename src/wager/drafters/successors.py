"""What the target said would follow: the largest logits after a context, the last time it read it.

Logits after a rejected token are as true as those after an accepted one (Token Recycling, Luo et al., 2408.08696).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as ListLike
from typing import NamedTuple

import numpy as np

from wager.types import F32, I64, Draft, Seen, Verdict
from wager.wide import top_indices

Context = tuple[int, ...]


class Row(NamedTuple):
    """``ids`` of the largest ``logits``, best first; the best one was the same ``streak`` times in a row."""

    ids: list[int]
    logits: list[float]
    streak: int
    round: int


class Successors:
    """Context -> the ``n`` likeliest tokens after it, of the ``n_rows`` contexts written last.

    A round of the engine writes the rows of the last token and of accepted nodes anew, and before them those of
    rejected ones that are older than ``stale`` rounds.
    """

    def __init__(self, *, n: int, stale: int, n_rows: int) -> None:
        assert min(n, n_rows) >= 1, (n, n_rows)
        assert stale >= 0, stale
        self.n = n
        self._stale = stale
        self._n_rows = n_rows
        self._round = 0
        self._rows: OrderedDict[Context, Row] = OrderedDict()  # the newest last

    def get(self, context: Context) -> Row | None:
        return self._rows.get(context)

    def next_round(self) -> None:
        self._round += 1

    def learn(self, context: Context, ids: list[int], logits: list[float]) -> None:
        """``ids`` have the largest ``logits`` after ``context``, best first."""
        old = self._rows.pop(context, None)
        streak = old.streak + 1 if old is not None and old.ids[:1] == ids[:1] else 1
        self._rows[context] = Row(ids, logits, streak, self._round)
        if len(self._rows) > self._n_rows:
            self._rows.popitem(last=False)

    def is_stale(self, context: Context) -> bool:
        row = self._rows.get(context)
        return row is None or self._round - row.round > self._stale


def learn_round(
    tables: ListLike[tuple[int, Successors]], before: ListLike[int], draft: Draft, verdict: Verdict, seen: Seen
) -> None:
    """Write into each (context length, table) what the target said in a round. ``before``: the last committed tokens
    when it began, as many as the longest context has.
    """
    longest = max(length for length, _ in tables)
    paths = [tuple(before[-longest:])]  # the end of each node's, by node + 1
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        paths.append((*paths[parent + 1], token)[-longest:])
    taken = {-1, *verdict.path}
    for node in sorted(range(-1, len(draft)), key=lambda node: node in taken):
        contexts = [(table, paths[node + 1][-length:]) for length, table in tables if len(paths[node + 1]) >= length]
        due = [(table, context) for table, context in contexts if node in taken or table.is_stale(context)]
        if due:
            logits = seen.logits(node)
            best = most_likely(logits, max(table.n for table, _ in due))
            ids, values = best.tolist(), logits[best].tolist()
        for table, context in due:
            table.learn(context, ids[: table.n], values[: table.n])


def most_likely(logits: F32, k: int) -> I64:
    """Ids of the k largest logits (V,), best first, equal ones by lowest id; -inf never."""
    ids = top_indices(logits, k)
    return ids[logits[ids] > -np.inf]
