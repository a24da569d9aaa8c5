"""Who reads what another is about to read anyway waits for it: what sequences share is read once, though they arrive
together.

Without it n samples of one prompt, or rows of a data set with the same examples in front, would all read that in the
same step, before any of it can be found in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListLike

from wager.cache import BlockPool, n_common
from wager.pack import n_read
from wager.schedule import Budget, by_need
from wager.types import RowsRule, Sequence

_WORTH_A_STEP = 48  # rows: about what a step more costs
_ROOMY = 2  # free blocks per sequence


def may_run(
    seqs: Iterable[Sequence], cache: BlockPool, budget: Budget, *, rule: RowsRule, first: dict[int, int]
) -> list[Sequence]:
    """Those of ``seqs`` (in order of arrival) that a step may plan, in the same order: never none.

    ``first``: by sequence id, the first token whose logits are wanted, where that is not the last.
    """
    ready: list[Sequence] = []
    waiting: dict[int, list[tuple[Sequence, int]]] = {}  # by whom they wait for: (sequence, rows saved)
    n_new = 0
    for seq in by_need(seqs):
        if len(ready) >= budget.n_seqs or n_new >= budget.n_new:
            break
        n_known = seq.n_cached
        if not cache.is_open(seq.id):
            limit = first.get(seq.id, len(seq.tokens) - 1)
            n_known = cache.found(seq.tokens, n_read=n_read(seq, rule), limit=limit)
            reader, n_saved = _reader(seq, ready, n_known, limit, rule) if cache.prefix_caching else (None, 0)
            if reader is not None:
                waiting.setdefault(reader.id, []).append((seq, n_saved))
                continue
        ready.append(seq)
        n_new += len(seq.tokens) - n_known
    for group in waiting.values():
        if sum(n_saved for _, n_saved in group) < _WORTH_A_STEP:
            ready += [seq for seq, _ in group]
    return sorted(ready, key=lambda seq: seq.id)


def open_tables(
    seqs: ListLike[Sequence], cache: BlockPool, *, rule: RowsRule, first: dict[int, int]
) -> list[tuple[int, int]]:
    """Open those that are not, with what is found of them; returns the copies (src, dst) of blocks that are due.

    Where blocks are short those that run already need them more: then no tails are copied.
    """
    copies: list[tuple[int, int]] = []
    for seq in seqs:
        if cache.is_open(seq.id):
            continue
        limit = first.get(seq.id)
        seq.n_cached = cache.open(seq.id, seq.tokens, n_read=n_read(seq, rule), limit=limit)
        roomy = cache.n_free >= _ROOMY * len(seqs)
        tail = cache.start_tail(seq.id, seq.tokens, limit=limit) if roomy else None
        if tail is not None:
            seq.n_cached, copy = tail
            copies.append(copy)
    return copies


def _reader(
    seq: Sequence, ready: list[Sequence], n_known: int, limit: int, rule: RowsRule
) -> tuple[Sequence | None, int]:
    """Who reads more of the beginning of ``seq``'s first ``limit`` tokens than the ``n_known`` that are found, and how
    much more.
    """
    for other in ready:
        if len(other.tokens) - other.n_cached == 1 or other.tokens[:n_known] != seq.tokens[:n_known]:
            continue  # it reads nothing, or something else
        end = limit
        if n_read(other, rule) != n_read(seq, rule):  # rows read together and rows read alone are not shared
            end = min(limit, n_read(other, rule), n_read(seq, rule))
        n_more = n_common(other.tokens[n_known:], seq.tokens[n_known:end])
        if n_known + n_more > max(n_known, other.n_cached):
            return other, n_more
    return None, 0
