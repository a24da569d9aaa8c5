"""What the engine keeps beside a sequence, and what one does in a step."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.commit import TextStream
from wager.pack import Feed, Slots
from wager.record import RunStats
from wager.sampling import Noise
from wager.types import Draft, Drafter, Sequence


@dataclass(slots=True, eq=False)
class Run:
    """A sequence and what the engine keeps beside it."""

    seq: Sequence
    noise: Noise
    text: TextStream
    drafter: Drafter | None
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
