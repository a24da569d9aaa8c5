"""What the engine keeps beside a sequence, and what one does in a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.commit import TextStream
from wager.pack import Feed, Packed, Slots
from wager.record import RunStats, StepRecord
from wager.sampling import Noise
from wager.types import F32, Draft, Drafter, Event, Sequence

Hear = Callable[[int, ListLike[F32]], None]  # (first token, logits after it and those that follow)


@dataclass(slots=True, eq=False)
class Run:
    """A sequence and what the engine keeps beside it. Where it is only read: who hears the logits after its tokens from
    ``first`` on.
    """

    seq: Sequence
    noise: Noise
    text: TextStream
    drafter: Drafter | None
    hear: Hear | None = None
    first: int | None = None
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
