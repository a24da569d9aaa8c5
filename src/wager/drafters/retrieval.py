"""Draft what followed in a corpus: the most frequent continuations of the last tokens (REST, He et al. 2311.08252)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np
import numpy.typing as npt

from wager import stores
from wager.drafters.base import DrafterInfo
from wager.types import EMPTY, F64, I32, I64, Draft, DraftKind, Limits, Seen, Sequence, Verdict

Ranks = tuple[int, ...]  # a path: at every depth the rank among siblings


class Retrieval:
    """Looks the newest tokens up in a store, which all sequences share; nothing is kept for any of them.

    The longest of the last ``longest`` … ``shortest`` tokens that the corpus has, something following, is the match and
    the draft's ``support``. At most ``n_samples`` of its places are looked at, evenly spread over the sorted suffixes.
    Drafted are the most frequent prefixes of what follows there, to the end of a document at most; ids from
    ``n_valid_ids`` on are never drafted.
    """

    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(
        self,
        store: stores.Store,
        *,
        n_valid_ids: int,
        name: str = "retrieval",
        longest: int = 16,
        shortest: int = 2,
        n_samples: int = 5000,
    ) -> None:
        assert 1 <= shortest <= longest, (shortest, longest)
        assert n_samples >= 1, n_samples
        self.name = name
        self._store = store
        self._n_valid_ids = n_valid_ids
        self._longest, self._shortest = longest, shortest
        self._n_samples = n_samples

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        return [self._draft(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, seq: Sequence, limit: Limits) -> Draft:
        if min(limit.n_nodes, limit.depth, limit.width) < 1:
            return EMPTY
        recent = seq.tokens[-self._longest :]
        match, low, high = longest_match(self._store, recent, shortest=self._shortest)
        if low == high:
            return EMPTY
        follow = following(self._store, low, high, match, n_most=self._n_samples)
        return most_frequent(self._store.tokens, follow, limit, self._n_valid_ids, support=match)

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to learn: the corpus stays as it is."""

    def forget(self, seq_id: int) -> None:
        """Nothing is kept."""

    def seconds(self, n_tokens: int) -> float:
        return 5e-5 + 5e-6 * n_tokens if n_tokens else 0.0


def longest_match(store: stores.Store, recent: list[int], *, shortest: int) -> tuple[int, int, int]:
    """(n, low, high): the last n of ``recent`` begin the suffixes [low, high), and a token follows them in each.

    The largest n from ``shortest`` on, found by halving: where n tokens occur the last n - 1 of them do. (0, 0, 0)
    where there is none.
    """
    found = low = 0
    least, most = shortest, len(recent)
    while least <= most:
        n = (least + most) // 2
        place = first_with(store, recent[-n:])
        if place is None:
            most = n - 1
        else:
            found, low, least = n, place, n + 1
    return (found, low, _end(store, recent[-found:], low)) if found else (0, 0, 0)


def places_with(store: stores.Store, query: list[int]) -> tuple[int, int]:
    """The suffixes [low, high) that begin with ``query`` and a token after it."""
    low = first_with(store, query)
    return (0, 0) if low is None else (low, _end(store, query, low))


def following(store: stores.Store, low: int, high: int, n: int, *, n_most: int) -> I64:
    """Where the text goes on (m,) after the first ``n`` tokens of the suffixes [low, high), not empty: of all, or of
    ``n_most`` that are evenly spread.
    """
    places = low + np.arange(m := min(high - low, n_most)) * (high - low) // m
    return np.minimum(store.suffixes[places].astype(np.int64) + n, len(store.tokens) - 1)  # the last: of a damaged one


def first_with(store: stores.Store, query: list[int]) -> int | None:
    """The first suffix that begins with ``query`` and a token after it; None where there is none.

    Suffixes that end right after ``query`` sort before it: separators are below every token.
    """
    n = len(query)
    low, high = _begin_with(store, query[0])
    place = bisect_left(range(high), [*query, 0], lo=low, key=lambda place: _beginning(store, place, n + 1))
    return place if place < high and _beginning(store, place, n) == query else None


def _end(store: stores.Store, query: list[int], low: int) -> int:
    """The end of the suffixes that begin with ``query``; ``low`` is one of them."""
    n, (_, high) = len(query), _begin_with(store, query[0])
    return bisect_right(range(high), query, lo=low, key=lambda place: _beginning(store, place, n))


def _begin_with(store: stores.Store, token: int) -> tuple[int, int]:
    """The suffixes that begin with ``token``: half of a search for nothing."""
    return (store.starts.item(token), store.starts.item(token + 1)) if token + 1 < len(store.starts) else (0, 0)


def _beginning(store: stores.Store, place: int, n: int) -> list[int]:
    at = store.suffixes.item(place)
    beginning: list[int] = store.tokens[at : at + n].tolist()
    return beginning


def most_frequent(
    tokens: I32,
    follow: I64,
    limit: Limits,
    n_valid_ids: int,
    *,
    support: int,
    weights: F64 | None = None,
    ends: Collection[int] = (),
) -> Draft:
    """The most frequent prefixes of the texts that start at ``follow`` (m,), sorted as texts, within ``limit``.

    ``weights`` (m,): what each text counts, else 1; nothing follows one of ``ends``. Of equally frequent prefixes the
    shorter is taken, then the one further to the left; children are ordered by frequency, then id. A prefix is a range
    of ``follow``, so counting is finding where its next token changes. The nodes come depth first: the first path is
    the most frequent child of the most frequent child.
    """
    sums = np.arange(len(follow) + 1) if weights is None else np.concatenate(((0.0,), np.cumsum(weights)))
    chosen: dict[Ranks, int] = {}
    heap: list[tuple[float, int, Ranks, int, int]] = []  # (-count, depth, path, range of follow)
    grow: tuple[Ranks, int, int] = (), 0, len(follow)
    while True:
        path, low, high = grow
        if len(path) < limit.depth and chosen.get(path) not in ends:
            at, counted = follow[low:high] + len(path), sums[low : high + 1]
            for rank, (start, stop) in enumerate(_children(tokens, at, counted, limit.width, n_valid_ids)):
                count = sums.item(low + stop) - sums.item(low + start)
                heapq.heappush(heap, (-count, len(path) + 1, (*path, rank), low + start, low + stop))
        if not heap or len(chosen) == limit.n_nodes:
            break
        _, depth, path, low, high = heapq.heappop(heap)
        chosen[path] = tokens.item(follow.item(low) + depth - 1)
        grow = path, low, high
    paths = sorted(chosen)
    node = {path: i for i, path in enumerate(paths)} | {(): -1}
    parents = np.array([node[path[:-1]] for path in paths], np.int32)
    return Draft(np.array([chosen[path] for path in paths], np.int32), parents, None, "deterministic", support)


def _children(tokens: I32, at: I64, sums: npt.NDArray[Any], width: int, n_valid_ids: int) -> list[tuple[int, int]]:
    """Ranges of ``at`` (m,) with one token, for the ``width`` most frequent valid tokens, most frequent first.

    ``tokens[at]`` ascends, separators first; ``sums`` (m + 1,): what all before each count.
    """
    if len(at) == 1:  # most of the nodes of a long draft: ten times as fast
        return [(0, 1)] if 0 <= tokens.item(at.item()) < n_valid_ids else []
    column = tokens[at]
    bounds = np.concatenate(((0,), (column[1:] != column[:-1]).nonzero()[0] + 1, (len(column),)))
    first = column[bounds[:-1]]
    counts = (sums[bounds[1:]] - sums[bounds[:-1]]) * ((first >= 0) & (first < n_valid_ids))
    best = (-counts).argsort(kind="stable")[:width].tolist()
    return [(bounds.item(i), bounds.item(i + 1)) for i in best if counts[i]]


def make(argument: str, target: Any) -> Retrieval:
    """For the registry: ``argument`` names a store of the target's vocabulary."""
    store = stores.opened("retrieval", argument)
    stores.check_vocabulary(store, target.text)
    return Retrieval(store, n_valid_ids=target.n_valid_ids, name=f"retrieval:{argument}")


def check(argument: str) -> None:
    """Raises ``OptionError`` for a store that is not there."""
    stores.opened("retrieval", argument)


DRAFTER = DrafterInfo(
    make=make,
    argument="STORE",
    drafts="the most frequent continuations in a corpus of yours",
    needs="a store (`wager store build`)",
    remembers="the store",
    costs="0.1 ms",
    source="REST, He et al. 2311.08252",
    check=check,
)
