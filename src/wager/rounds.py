"""What the engine keeps beside a sequence, and what one does in a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace

from wager.commit import TextStream, terminal_ids
from wager.pack import Feed, Packed, Slots
from wager.record import RunStats, StepRecord
from wager.sampling import Noise
from wager.types import EMPTY, F32, Draft, Drafter, Event, Sequence, Verdict
from wager.verify import Rows, Rule

# (first token, logits after it and those that follow, in the order of tokens or of a tree's nodes)
Hear = Callable[[int, ListLike[F32]], None]


@dataclass(slots=True, eq=False)
class Run:
    """A sequence and what the engine keeps beside it. Where it is only read: who hears the logits after its tokens from
    ``first`` on, or after the last of them and every node of a ``tree`` below it.
    """

    seq: Sequence
    noise: Noise
    text: TextStream
    drafter: Drafter | None
    hear: Hear | None = None
    first: int | None = None
    tree: Draft = EMPTY
    most_drafted: int | None = None  # a step
    stats: RunStats = field(default_factory=RunStats)
    submitted_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What one sequence does in this step. ``draft`` is what the rule sees; the feed has every context of it once, and
    ``node_of`` (n,) tells where.
    """

    run: Run
    draft: Draft
    node_of: ListLike[int]
    feed: Feed
    slots: Slots


def settled(
    rounds: ListLike[Round], packed: Packed, logits: F32, rule: Rule, eos_ids: frozenset[int]
) -> list[Verdict | None]:
    """The rule's verdict per sequence, in nodes of its feed, by ``logits`` (R, V); None where it only reads."""
    verdicts: list[Verdict | None] = []
    for round_, index in zip(rounds, packed.rows, strict=True):
        run, seq = round_.run, round_.feed.seq
        if index is None or run.hear is not None:
            if index is not None and run.hear is not None:
                first = max(seq.n_cached, run.first) if run.first is not None else len(seq.tokens) - 1
                run.hear(first, [logits[i] for i in index])
            verdicts.append(None)
            continue
        banned = terminal_ids(seq.sampling, eos_ids)
        seen = [int(index[0]), *(int(index[node + 1]) for node in round_.node_of)]
        rows = Rows(logits, seen, seq, round_.draft, banned=banned)
        verdict = rows.ended(rule(rows, round_.draft, run.noise))
        verdicts.append(replace(verdict, path=tuple(round_.node_of[node] for node in verdict.path)))
    return verdicts


def recorded(
    rounds: ListLike[Round], packed: Packed, events: ListLike[Event], *, times: tuple[float, float, float, float]
) -> StepRecord:
    """The step that ends now, which the totals of its sequences have taken in. ``times``: when it began, had drafted,
    began its forward and ended it.
    """
    start, drafted, before, after = times
    now = time.perf_counter()
    record = StepRecord(
        n_rows=packed.n_real,
        width=len(packed.batch.tokens),
        n_seqs=len(rounds),
        n_committed=sum(len(e.tokens) for e in events),
        context=max(r.feed.stop for r in rounds),
        draft_s=drafted - start,
        target_s=after - before,
        host_s=(before - drafted) + (now - after),
    )
    for round_ in rounds:
        round_.run.stats.clock(record, now - round_.run.submitted_s)
    return record
