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

_WORTH_A_STEP = 16  # rows: what a step more costs, and a bit
_ROOMY = 2  # free blocks per sequence


def may_run(
    seqs: Iterable[Sequence], cache: BlockPool, budget: Budget, *, rule: RowsRule, first: dict[int, int]
) -> list[Sequence]:
    """Those of ``seqs`` (in order of arrival) that a step may plan, in the same order: never none.

    ``first``: by sequence id, the first token whose logits are wanted, where that is not the last.
    """
    ready: list[Sequence] = []
    waiting: list[Sequence] = []
    n_new = n_saved = 0
    for seq in by_need(seqs):
        if len(ready) >= budget.n_seqs or n_new >= budget.n_new:
            break
        n_known = seq.n_cached
        if not cache.is_open(seq.id):
            limit = first.get(seq.id, len(seq.tokens) - 1)
            n_known = cache.found(seq.tokens, n_read=n_read(seq, rule), limit=limit)
            n_more = _n_being_read(seq, ready, n_known, limit, rule) if cache.prefix_caching else 0
            if n_more:
                n_saved += n_more
                waiting.append(seq)
                continue
        ready.append(seq)
        n_new += len(seq.tokens) - n_known
    if n_saved < _WORTH_A_STEP:
        ready += waiting
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


def _n_being_read(seq: Sequence, ready: list[Sequence], n_known: int, limit: int, rule: RowsRule) -> int:
    """Of the first ``limit`` tokens of ``seq``, those beyond the ``n_known`` found that another is about to read."""
    for other in ready:
        if len(other.tokens) - other.n_cached == 1 or other.tokens[:n_known] != seq.tokens[:n_known]:
            continue  # it reads nothing, or something else
        end = limit
        if n_read(other, rule) != n_read(seq, rule):  # rows read together and rows read alone are not shared
            end = min(limit, n_read(other, rule), n_read(seq, rule))
        n_more = n_common(other.tokens[n_known:], seq.tokens[n_known:end])
        if n_known + n_more > max(n_known, other.n_cached):
            return n_more
    return 0
