"""What a rule meets while it runs: wrapped, it is looked at without the engine knowing.

The wrapper looks once the verdict is there, so what the rule computes lazily stays the rule's; and it clocks itself, so
that its own seconds can be taken out of the host's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as ListLike
from dataclasses import asdict, dataclass, replace

import numpy as np

from wager.sampling import Noise
from wager.tree import children
from wager.types import F64, JSON, Draft, Verdict
from wager.verify import LOSSY, Rows, RuleInfo
from wager.verify.local import law_of
from wager.verify.lossy import kl
from wager.verify.transport import optimum


@dataclass(slots=True)
class Tally:
    """Sums over the rounds of one answer (docs/numbers.md); ``own_s`` is what looking took, ``rule_s`` the rule."""

    n_rounds: int = 0  # with a draft
    n_drawn: int = 0
    n_children: int = 0
    n_first: int = 0
    n_optima: int = 0
    optimum: float = 0.0
    n_contexts: int = 0
    kl: float = 0.0
    tv: float = 0.0
    rule_s: float = 0.0
    own_s: float = 0.0

    def to_json(self) -> JSON:
        return asdict(self)


def measuring(info: RuleInfo, tally: Tally) -> RuleInfo:
    """The same rule; every round is added to ``tally``."""

    def rule(rows: Rows, draft: Draft, noise: Noise) -> Verdict:
        start = time.perf_counter()
        verdict = info.rule(rows, draft, noise)
        settled = time.perf_counter()
        if len(draft):
            _look(info, rows, draft, verdict, tally)
        tally.rule_s += settled - start
        tally.own_s += time.perf_counter() - settled
        return verdict

    return replace(info, rule=rule)


def _look(info: RuleInfo, rows: Rows, draft: Draft, verdict: Verdict, tally: Tally) -> None:
    below = children(draft)
    tally.n_rounds += 1
    tally.n_drawn += len(draft)
    tally.n_children += len(below[-1])
    first = draft.tokens[verdict.path[0]] if verdict.path else verdict.token
    tally.n_first += int(first in draft.tokens[below[-1]])
    if draft.laws is not None:
        law = draft.laws[below[-1][0]]
        tally.optimum += optimum(rows.at(-1, law.ids), np.append(law.probs, 0.0), len(below[-1]))
        tally.n_optima += 1
    if info.name in LOSSY and rows.sampling.temperature > 0 and draft.is_chain:  # the laws are those of one child
        for node in (-1, *verdict.path):
            if node in below:
                p, out = output_law(info, rows, draft, node, below[node])
                tally.n_contexts += 1
                tally.kl += kl(out, p)
                tally.tv += float(np.abs(out - p).sum()) / 2


def output_law(info: RuleInfo, rows: Rows, draft: Draft, node: int, drafted: ListLike[int]) -> tuple[F64, F64]:
    """Target p and what a lossy rule puts in its place after ``node``, over the draft law's ids and the rest (m + 1,).

    Outside the law's ids every rule scales p by one factor, so nothing is lost by taking them together; a rule that
    looks at the whole of p gets it.
    """
    assert info.knob is not None, info.name
    law, family = law_of(draft, drafted), LOSSY[info.name]
    if not family.whole:
        p, q = rows.at(node, law.ids), np.append(law.probs, 0.0)
    else:
        p = rows[node]
        q = np.zeros(len(p))
        q[law.ids] = law.probs
    return p, family.law(p, q, info.knob)
