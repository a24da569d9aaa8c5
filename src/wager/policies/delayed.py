"""A trunk, then branches: which lengths, and how many branches, by running acceptance and measured times.

Delayed trees are those of 2602.16994, whose choice is a trained network's; here the same quotient, expected tokens over
expected time, is taken from running averages. It depends on the past alone, so any rule may follow.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import NamedTuple

import numpy as np

from wager.cost import StepCost
from wager.policies.acceptance import Acceptance
from wager.policies.cost_driven import longest
from wager.policies.probe import Probe
from wager.types import F64, I64, Draft, Drafter, Limits, Sequence, Verdict

_LONGEST = 8  # tokens of a trunk, and of a branch


class Form(NamedTuple):
    """``trunk`` tokens, then ``width`` branches of ``branch`` tokens each."""

    width: int
    trunk: int
    branch: int

    @property
    def depth(self) -> int:
        return self.trunk + self.branch


def forms(width: int) -> list[Form]:
    """All of up to ``width`` branches, each once: single paths have no trunk. Small ones first."""
    chains = [Form(1, 0, n) for n in range(2 * _LONGEST + 1)]
    parts = range(1, _LONGEST + 1)
    return chains + [Form(k, i, j) for k in range(2, width + 1) for i in (0, *parts) for j in parts]


def n_expected(table: I64, chances: F64) -> F64:
    """Committed tokens a step (m,) of forms ``table`` (m, 3), from the conditional ``chances`` (d, r) of acceptance by
    depth (from 1) and sibling rank, those of first children positive.
    """
    width, trunk, branch = table.T
    path = np.append(1.0, np.cumprod(chances[:, 0]))  # that a path is accepted to a depth
    sums = np.cumsum(path) - 1
    some = np.cumsum(chances, axis=1)[trunk, width - 1]
    # what lies below the first node of a branch is as likely there as it would be on the path itself
    below = (sums[trunk + branch] - sums[trunk + 1]) / path[trunk + 1]
    return np.asarray(1 + sums[trunk] + np.where(branch > 0, path[trunk] * some * (1 + below), 0.0))


def n_rows(table: I64, *, forks: bool) -> I64:
    """Rows (m,) that forms ``table`` (m, 3) feed with the last committed token, by themselves or under a mask."""
    width, trunk, branch = table.T
    return np.asarray(width * (1 + trunk + branch) if forks else 1 + trunk + width * branch)


class Delayed:
    """Every step the form with the most expected tokens a second, of at most ``width`` branches; none is possible too.

    Each sequence chooses as if the others fed as many rows. ``min_rows`` is the fewest rows a sequence feeds, ``forks``
    whether branches are fed one by one.
    """

    def __init__(self, cost: StepCost, *, width: int, min_rows: int = 2, forks: bool = True) -> None:
        self.acceptance = Acceptance()
        self._cost = cost
        self._width = width
        self._forms = np.array(forms(width), np.int64)
        self._depths = self._forms[:, 1] + self._forms[:, 2]
        self._n_rows = np.maximum(min_rows, n_rows(self._forms, forks=forks))
        self._probe = Probe()
        self._name = "none"

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        self._name = drafter.name
        if drafter.seconds(1) == 0:  # not known yet: one token will tell
            chosen = [Form(1, 0, 1)] * len(seqs)
        else:
            chosen = self._chosen(seqs, drafter)
        return [Limits(f.width * f.depth, f.depth, f.width, trunk=f.trunk) for f in chosen]

    def _chosen(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Form]:
        n, context = len(seqs), longest(seqs)
        fits = np.flatnonzero((self._n_rows * n <= self._cost.widths[-1]) | (self._depths == 0))
        target_s = {rows: self._cost.predict(rows * n, n, context) for rows in set(self._n_rows[fits].tolist())}
        draft_s = [n * drafter.seconds(depth) for depth in range(2 * _LONGEST + 1)]
        places = zip(self._n_rows[fits].tolist(), self._depths[fits].tolist(), strict=True)
        times = np.array([target_s[rows] + draft_s[depth] for rows, depth in places])
        chosen = []
        for seq in seqs:
            chances = self.acceptance.chances_by_rank(drafter.name, seq.id, 2 * _LONGEST, self._width)
            rates = n_expected(self._forms[fits], np.array(chances)) / times
            chosen.append(Form(*self._forms[fits[np.argmax(rates)]].tolist()))
        return [Form(1, 0, 1)] * n if self._probe.is_due(any(form.depth for form in chosen)) else chosen

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        self.acceptance.next_round()
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            self.acceptance.observe(self._name, seq.id, draft, verdict)

    def forget(self, seq_id: int) -> None:
        self.acceptance.forget(seq_id)
