"""Draft as much as pays: expected tokens by running acceptance against the measured time of a forward."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListLike

from wager.cost import StepCost
from wager.policies.acceptance import Acceptance
from wager.policies.allocate import Kept, fill
from wager.policies.asking import Asking
from wager.policies.probe import Probe
from wager.stopwatch import Stopwatch
from wager.tree import prune
from wager.types import Draft, Drafter, Limits, Priced, Sequence, Verdict, chain

_RATE_MEMORY = 0.95
_CHEAP = 0.15  # of a plain step, for one sequence: what a draft of a drafter below comes to need not be foreseen
_PLAIN = 64  # steps with drafts after which one goes without: what that takes must not be forgotten
_OWN_S = 5e-5  # first guess of what weighing a draft takes


class CostDriven:
    """Maximises committed tokens a second. 0 draft tokens is a possible answer, and so is another one every step.

    Steps are weighed by tokens / rate - seconds, with the running rate of this very policy: over a run of unlike steps
    that maximises total tokens over total time (Dinkelbach 1967), which the best ratio of each step would not.
    Drafting takes time as well. Where it goes by the token, as a draft model's does, lengths are chosen before; where
    it is in the asking, ``Asking`` says which sequences are worth it.

    Changing the width costs ``cost.switch_s``; when that is worth it is decided by work functions (Borodin, Linial,
    Saks 1992), which need no forecast. ``max_nodes`` bounds the draft of one sequence, ``width`` the children a node;
    ``min_rows`` is the fewest rows a sequence feeds, ``forks`` whether branches of a tree are fed one by one.
    """

    def __init__(
        self,
        cost: StepCost,
        *,
        max_nodes: int = 31,
        width: int = 1,
        min_rows: int = 2,
        forks: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.cost = cost
        self.acceptance = Acceptance()
        self._max_nodes = max_nodes
        self._width = width
        self._min_rows = min_rows
        self._forks = forks
        self._name = "none"
        self._drafter: Drafter | None = None
        self._priced: Priced | None = None
        self._draft_s = 0.0
        self._asking = Asking()
        self._by_asking = False
        self._asked: list[bool] = []
        self._own = Stopwatch(_OWN_S, clock=clock)  # of weighing one draft, and learning from it
        self._rates: dict[int, tuple[float, float]] = {}  # number of sequences -> (tokens, seconds), both fading
        self._work: dict[int, float] = {}
        self._weighed: dict[int, float] = {}  # width -> expected tokens a second, at the last cut
        self._last_width = 0
        self._n_drafted = 0  # steps in a row that fed more than had to be
        self._probe = Probe()

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        """How much to draft, before the drafts are seen: all that could pay with the support last seen."""
        self._name, n = drafter.name, len(seqs)
        room = max(self.cost.widths[-1] - self._min_rows * (n - 1) - 1, self._min_rows - 1)
        if drafter.seconds(1) == 0:  # not known yet: the one token that fills the second row will tell
            room = 1
        most = min(self._max_nodes, room)
        plain_s = self.cost.predict(self._min_rows * n, n, longest(seqs))
        once, all_s = drafter.seconds(1), drafter.seconds(most)
        self._by_asking = all_s < 2 * once or all_s <= _CHEAP * plain_s
        if self._by_asking:
            counts = self._worth_asking(seqs, drafter, most, plain_s)
        else:
            counts = self._worth_drafting(seqs, drafter, most, plain_s)
        return [Limits(n, n, self._width) for n in counts]

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        """The part of each draft that pays, jointly for the batch; padding up to a held width is filled."""
        if not seqs:
            return []
        self._own.start()
        if not any(map(len, drafts)):
            self._feed_nothing(seqs)
            self._own.stop()
            return list(drafts)
        values = [self.acceptance.values(self._name, seq.id, d) for seq, d in zip(seqs, drafts, strict=True)]
        options = self._options(drafts, values)
        times = {w: s + self._draft_s for w, s in self._seconds(options, seqs).items()}
        tokens = {w: len(seqs) + kept.value for w, kept in options.items()}
        width = self._settle(len(seqs), tokens, times)
        self._weighed = {w: tokens[w] / times[w] for w in options}
        self._remember(len(seqs), tokens[width], times[width])
        if self._by_asking:
            self._learn_savings(seqs, values, options[width], times[width] - times[min(times)])
        cut = [prune(draft, nodes) for draft, nodes in zip(drafts, options[width].nodes, strict=True)]
        self._own.stop()
        return cut

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Learn from one step."""
        self._own.start()
        self.acceptance.next_round()
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            self.acceptance.observe(self._name, seq.id, draft, verdict)
        self._own.stop()
        self._own.lap(sum(self._asked))

    def forget(self, seq_id: int) -> None:
        self.acceptance.forget(seq_id)
        self._asking.forget(seq_id)

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
        n_nodes, narrower = sum(map(len, drafts)), 0
        for width, kept in fill(drafts, values, widths, min_rows=self._min_rows, forks=self._forks, floor=floor):
            if not options or kept.n_rows > narrower:
                options[width] = kept
            if sum(map(len, kept.nodes)) == n_nodes:
                break
            narrower = width
        return options

    def _seconds(self, widths: Iterable[int], seqs: ListLike[Sequence]) -> dict[int, float]:
        """Of a forward of each width (ascending): a wider one never takes less, whatever was measured."""
        n, context, most = len(seqs), longest(seqs), 0.0
        found: dict[int, float] = {}
        for width in widths:
            found[width] = most = max(most, self.cost.predict(width, n, context))
        return found

    def _settle(self, n_seqs: int, tokens: dict[int, float], times: dict[int, float]) -> int:
        """The width to feed: least work so far + loss now + cost of getting there from the last width."""
        switch = self.cost.switch_s
        rate = self._rate(n_seqs, tokens, times)
        floor = min(self._work.values(), default=0.0)
        work = {w: self._work.get(w, floor + switch) + times[w] - tokens[w] / rate for w in tokens}
        best, plain = min(work, key=lambda w: (work[w] + switch * (w != self._last_width), w)), min(work)
        self._n_drafted = 0 if best == plain else self._n_drafted + 1
        if self._n_drafted > _PLAIN:
            best, self._n_drafted = plain, 0
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

    def _worth_asking(self, seqs: ListLike[Sequence], drafter: Drafter, most: int, plain_s: float) -> list[int]:
        """Draft lengths for a drafter whose time is in the asking: all or nothing."""
        if drafter is not self._drafter:
            self._drafter, self._priced = drafter, drafter if isinstance(drafter, Priced) else None
        own_s = 2 * self._own.seconds  # what the engine does with a draft takes about as long as what is done here
        if self._priced is None:
            prices = [(own_s + drafter.seconds(most), 0.0)] * len(seqs)
        else:
            prices = [(own_s + now, once) for now, once in (self._priced.prices(seq, most) for seq in seqs)]
        self._asked = self._asking.choose(seqs, prices, plain_s)
        self._draft_s = sum(price for (price, _), ask in zip(prices, self._asked, strict=True) if ask)
        return [most if ask else 0 for ask in self._asked]

    def _feed_nothing(self, seqs: ListLike[Sequence]) -> None:
        """What ``cut`` does where nothing was drafted."""
        n = len(seqs)
        width = self.cost.width_for(self._min_rows * n)
        seconds = self.cost.predict(width, n, longest(seqs)) + self._draft_s
        self._settle(n, {width: float(n)}, {width: seconds})
        self._weighed = {width: n / seconds}
        self._remember(n, n, seconds)
        if self._by_asking and any(self._asked):
            self._learn_savings(seqs, [[]] * n, Kept([[]] * n, 0.0, width), 0.0)

    def _learn_savings(
        self, seqs: ListLike[Sequence], values: ListLike[ListLike[float]], kept: Kept, seconds: float
    ) -> None:
        """What each draft that was asked for saves: its tokens at the going rate, less its share of ``seconds``, which
        the rows of all take.
        """
        total, time = self._rates[len(seqs)]
        token_s, row_s = time / total, seconds / max(1, sum(map(len, kept.nodes)))
        for seq, ask, worth, nodes in zip(seqs, self._asked, values, kept.nodes, strict=True):
            if ask:
                saved_s = sum(worth[node] for node in nodes) * token_s - len(nodes) * row_s
                self._asking.observe(seq.id, len(seqs), saved_s)

    def _worth_drafting(self, seqs: ListLike[Sequence], drafter: Drafter, most: int, plain_s: float) -> list[int]:
        """Draft lengths for a drafter whose own time goes by the token, as if every draft were a chain."""
        drafts = [chain([0] * most) for _ in seqs]
        values = [self.acceptance.chain_values(drafter.name, seq.id, most) for seq in seqs]
        per_token = drafter.seconds(most) / most
        options = self._options(drafts, values, per_token * self._rate(len(seqs), {0: len(seqs)}, {0: plain_s}))
        lengths = {w: [len(nodes) for nodes in kept.nodes] for w, kept in options.items()}
        none = [0] * len(seqs)
        tokens = {w: len(seqs) + kept.value for w, kept in options.items()} | {0: float(len(seqs))}
        target_s = self._seconds(options, seqs)
        times = {w: target_s[w] + sum(map(drafter.seconds, lengths[w])) for w in options} | {0: plain_s}
        rate = self._rate(len(seqs), tokens, times)
        best = max(tokens, key=lambda w: (tokens[w] / rate - times[w], -w))
        counts = lengths.get(best, none)
        counts = [1] * len(counts) if self._probe.is_due(any(counts)) else counts
        self._draft_s = sum(drafter.seconds(n) for n in counts)
        self._asked = [n > 0 for n in counts]
        return counts


def longest(seqs: ListLike[Sequence]) -> int:
    """Tokens of the longest sequence: what the time of a forward goes by."""
    return max(len(seq.tokens) for seq in seqs)
