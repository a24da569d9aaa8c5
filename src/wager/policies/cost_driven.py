"""Draft as much as pays: expected tokens by running acceptance against the measured time of a forward."""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike

from wager.cost import StepCost
from wager.policies.acceptance import Acceptance
from wager.policies.allocate import Kept, fill
from wager.policies.probe import Probe
from wager.tree import prune
from wager.types import Draft, Drafter, Limits, Sequence, Verdict, chain

_RATE_MEMORY = 0.95
_CHEAP = 0.15  # a drafter below this share of a plain step is always asked: weighing it would take as long


class CostDriven:
    """Maximises committed tokens a second. 0 draft tokens is a possible answer, and so is another one every step.

    Steps are weighed by tokens / rate - seconds, with the running rate of this very policy: over a run of unlike steps
    that maximises total tokens over total time (Dinkelbach 1967), which the best ratio of each step would not.
    Changing the width costs ``cost.switch_s``; when that is worth it is decided by work functions (Borodin, Linial,
    Saks 1992), which need no forecast. ``max_nodes`` bounds the draft of one sequence, ``width`` the children a node;
    ``min_rows`` is the fewest rows a sequence feeds, ``forks`` whether branches of a tree are fed one by one.
    """

    def __init__(
        self, cost: StepCost, *, max_nodes: int = 31, width: int = 1, min_rows: int = 2, forks: bool = True
    ) -> None:
        self.cost = cost
        self.acceptance = Acceptance()
        self._max_nodes = max_nodes
        self._width = width
        self._min_rows = min_rows
        self._forks = forks
        self._name = "none"
        self._draft_s = 0.0
        self._rates: dict[int, tuple[float, float]] = {}  # number of sequences -> (tokens, seconds), both fading
        self._work: dict[int, float] = {}
        self._weighed: dict[int, float] = {}  # width -> expected tokens a second, at the last cut
        self._last_width = 0
        self._probe = Probe()

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        """How much to draft, before the drafts are seen: all that could pay with the support last seen."""
        self._name = drafter.name
        room = max(self.cost.widths[-1] - self._min_rows * (len(seqs) - 1) - 1, self._min_rows - 1)
        if drafter.seconds(1) == 0:  # not known yet: the one token that fills the second row will tell
            room = 1
        most = min(self._max_nodes, room)
        plain_s = self.cost.predict(self._min_rows * len(seqs), len(seqs), longest(seqs))
        if drafter.seconds(most) * len(seqs) <= _CHEAP * plain_s:
            counts = [most] * len(seqs)
        else:
            counts = self._worth_drafting(seqs, drafter, most)
        self._draft_s = sum(drafter.seconds(n) for n in counts)
        return [Limits(n, n, self._width) for n in counts]

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        """The part of each draft that pays, jointly for the batch; padding up to a held width is filled."""
        if not seqs:
            return []
        values = [self.acceptance.values(self._name, seq.id, d) for seq, d in zip(seqs, drafts, strict=True)]
        options = self._options(drafts, values)
        times = {w: self.cost.predict(w, len(seqs), longest(seqs)) + self._draft_s for w in options}
        tokens = {w: len(seqs) + kept.value for w, kept in options.items()}
        width = self._settle(len(seqs), tokens, times)
        self._weighed = {w: tokens[w] / times[w] for w in options}
        self._remember(len(seqs), len(seqs) + options[width].value, times[width])
        return [prune(draft, nodes) for draft, nodes in zip(drafts, options[width].nodes, strict=True)]

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Learn from one step."""
        self.acceptance.next_round()
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            self.acceptance.observe(self._name, seq.id, draft, verdict)

    def forget(self, seq_id: int) -> None:
        self.acceptance.forget(seq_id)

    def explain(self, seq_id: int) -> str:
        """Tokens a second that were expected of each width, and the one taken."""
        speeds = (f"{w} rows {speed:.0f}/s" + " *" * (w == self._last_width) for w, speed in self._weighed.items())
        return "expected " + ", ".join(speeds)

    def _options(
        self, drafts: ListLike[Draft], values: ListLike[ListLike[float]], floor: float = 0.0
    ) -> dict[int, Kept]:
        """By held width: the best nodes for it, up to the first width that takes every node."""
        least = self.cost.width_for(self._min_rows * len(drafts))
        widths = [least, *(w for w in self.cost.widths if w > least)]
        options: dict[int, Kept] = {}
        n_nodes = sum(map(len, drafts))
        for width, kept in fill(drafts, values, widths, min_rows=self._min_rows, forks=self._forks, floor=floor):
            if not options or self.cost.width_for(kept.n_rows) == width:
                options[width] = kept
            if sum(map(len, kept.nodes)) == n_nodes:
                break
        return options

    def _settle(self, n_seqs: int, tokens: dict[int, float], times: dict[int, float]) -> int:
        """The width to feed: least work so far + loss now + cost of getting there from the last width."""
        switch = self.cost.switch_s
        rate = self._rate(n_seqs, tokens, times)
        floor = min(self._work.values(), default=0.0)
        work = {w: self._work.get(w, floor + switch) + times[w] - tokens[w] / rate for w in tokens}
        best = min(work, key=lambda w: (work[w] + switch * (w != self._last_width), w))
        least = min(work.values())
        everything = set(work) | set(self._work)
        self._work = {w: min(work.get(w, math.inf), least + switch) - least for w in everything}
        self._last_width = best
        return best

    def _rate(self, n_seqs: int, tokens: dict[int, float], times: dict[int, float]) -> float:
        if n_seqs not in self._rates:
            return max(tokens[w] / times[w] for w in tokens)
        total, seconds = self._rates[n_seqs]
        return total / seconds

    def _remember(self, n_seqs: int, tokens: float, seconds: float) -> None:
        total, time = self._rates.get(n_seqs, (0.0, 0.0))
        self._rates[n_seqs] = (total * _RATE_MEMORY + tokens, time * _RATE_MEMORY + seconds)

    def _worth_drafting(self, seqs: ListLike[Sequence], drafter: Drafter, most: int) -> list[int]:
        """Draft lengths for a drafter whose own time counts, as if every draft were a chain."""
        drafts = [chain([0] * most) for _ in seqs]
        values = [self.acceptance.chain_values(drafter.name, seq.id, most) for seq in seqs]
        per_token = drafter.seconds(most) / most
        plain_s = self.cost.predict(self._min_rows * len(seqs), len(seqs), longest(seqs))
        options = self._options(drafts, values, per_token * self._rate(len(seqs), {0: len(seqs)}, {0: plain_s}))
        lengths = {w: [len(nodes) for nodes in kept.nodes] for w, kept in options.items()}
        none = [0] * len(seqs)
        tokens = {w: len(seqs) + kept.value for w, kept in options.items()} | {0: float(len(seqs))}
        times = {
            w: self.cost.predict(w, len(seqs), longest(seqs)) + sum(map(drafter.seconds, lengths[w])) for w in options
        } | {0: plain_s}
        rate = self._rate(len(seqs), tokens, times)
        best = max(tokens, key=lambda w: (tokens[w] / rate - times[w], -w))
        counts = lengths.get(best, none)
        return [1] * len(counts) if self._probe.is_due(any(counts)) else counts


def longest(seqs: ListLike[Sequence]) -> int:
    """Tokens of the longest sequence: what the time of a forward goes by."""
    return max(len(seq.tokens) for seq in seqs)
