"""What a step did, and the definition of every reported number (docs/numbers.md)."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.tree import depths
from wager.types import JSON, Draft, Verdict


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One target forward: its shape, what came of it, and where the time went (seconds)."""

    n_rows: int
    width: int
    n_seqs: int
    n_committed: int
    context: int
    draft_s: float
    target_s: float
    host_s: float

    @property
    def total_s(self) -> float:
        return self.draft_s + self.target_s + self.host_s


@dataclass(slots=True)
class RunStats:
    """Running totals of one sequence. A forward counts once for each sequence it decided a token for."""

    n_tokens: int = 0
    n_forwards: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    first_token_s: float = 0.0
    total_s: float = 0.0
    draft_s: float = 0.0
    target_s: float = 0.0
    host_s: float = 0.0
    n_tokens_first: int = 0
    accepted_by_depth: list[list[int]] = field(default_factory=list)  # [[accepted, drafted], …] by depth from 1

    def observe(self, draft: Draft, verdict: Verdict, n_committed: int) -> None:
        """One decided step: what was drafted, what the rule took, how many tokens were committed."""
        self.n_forwards += 1
        self.n_tokens += n_committed
        self.n_drafted += len(draft)
        self.n_accepted += len(verdict.path)
        for depth in range(max(depths(draft), default=0)):
            if depth == len(self.accepted_by_depth):
                self.accepted_by_depth.append([0, 0])
            self.accepted_by_depth[depth][1] += 1
            self.accepted_by_depth[depth][0] += depth < len(verdict.path)

    def clock(self, record: StepRecord, total_s: float) -> None:
        """Add a step's time (the whole step: sequences that share it wait for each other), ``total_s`` after arrival.

        ``observe`` comes first.
        """
        self.draft_s += record.draft_s
        self.target_s += record.target_s
        self.host_s += record.host_s
        self.total_s = total_s
        if self.n_forwards and not self.n_tokens_first:
            self.first_token_s, self.n_tokens_first = total_s, self.n_tokens

    @property
    def decode_s(self) -> float:
        """Seconds after the step that gave the first token."""
        return self.total_s - self.first_token_s

    @property
    def tokens_per_forward(self) -> float:
        """Committed tokens per (sequence, forward) pair, bonus token included."""
        return self.n_tokens / max(1, self.n_forwards)

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens; 0 where nothing was drafted."""
        return self.n_accepted / max(1, self.n_drafted)

    @property
    def tokens_per_s(self) -> float:
        """Tokens after the first step's, per second of decoding."""
        n = self.n_tokens - self.n_tokens_first
        return n / self.decode_s if n > 0 and self.decode_s > 0 else 0.0

    def to_json(self) -> JSON:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        derived = ("decode_s", "tokens_per_forward", "acceptance_rate", "tokens_per_s")
        return {**fields, **{name: getattr(self, name) for name in derived}}


def summed_by_depth(tables: ListLike[ListLike[ListLike[int]]]) -> list[list[int]]:
    """[[accepted, drafted], …] by depth from 1: the sum of such tables, which may end at different depths."""
    found = [[0, 0] for _ in range(max(map(len, tables), default=0))]
    for table in tables:
        for total, (accepted, drafted) in zip(found, table, strict=False):
            total[0] += accepted
            total[1] += drafted
    return found
