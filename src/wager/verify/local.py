"""One context of a draft as the mathematics sees it: target p and draft q over a short alphabet.

A draft law names few ids, and outside them q = 0. There every rule does the same to all tokens: it scales p. So the
alphabet is the ids of the law and one last symbol for all other tokens together; a rule costs what the law is long, and
the vocabulary is looked at again only when that symbol is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.types import F64, I64, Draft, Law
from wager.verify.base import Rows
from wager.verify.dice import Dice

_STEPS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """``p`` and ``q`` (m + 1,) over ``ids`` (m,) and the rest, where q is 0.

    ``drafted`` (k,): the children in draw order, as indices.
    """

    node: int
    ids: I64
    p: F64
    q: F64
    drafted: tuple[int, ...]

    def token(self, symbol: int, rows: Rows, dice: Dice) -> int:
        """The token that a symbol stands for: its own, or one of the rest, drawn from p."""
        if symbol < len(self.ids):
            return int(self.ids[symbol])
        return dice.draw(rows.mass(self.node).outside(self.ids))


def local(rows: Rows, draft: Draft, node: int, children: ListLike[int]) -> Local:
    """The context of ``node`` with its drafted ``children`` (at least one).

    A child nobody drew (deterministic) is the certain draw of itself. Several of them have no common law: q is 0, and
    only rules that do not look at q may take them.
    """
    law = law_of(draft, children)
    tokens = draft.tokens[list(children)]
    drafted = law.ids.searchsorted(tokens)
    assert (law.ids.take(drafted, mode="clip") == tokens).all(), "a token its law calls impossible"
    return Local(node, law.ids, rows.at(node, law.ids), np.append(law.probs, 0.0), tuple(drafted.tolist()))


def law_of(draft: Draft, children: ListLike[int]) -> Law:
    """The law that these siblings were drawn from."""
    if draft.laws is not None and draft.kind != "deterministic":
        return draft.laws[children[0]]
    ids = np.unique(draft.tokens[list(children)]).astype(np.int64)
    return Law(ids, np.ones(1) if len(ids) == 1 else np.zeros(len(ids)))


def positive(x: F64) -> F64:
    return np.maximum(x, 0.0)


def normalised(x: F64, otherwise: F64) -> F64:
    """``x`` with sum 1; ``otherwise`` where it sums to nothing, which only rounding brings about."""
    total = float(x.sum())
    return np.asarray(x / total) if total > 1e-15 else otherwise


def ratio(p: F64, q: F64, x: int) -> float:
    """p(x) / q(x) for a drafted x: a q that underflowed to 0 counts as infinitely small."""
    if q[x] > 0:
        return float(p[x]) / float(q[x])
    return np.inf if p[x] > 0 else 0.0


def ratios(p: F64, q: F64, *, otherwise: float) -> F64:
    """p / q (V,), infinite where it is too large for a number, and ``otherwise`` where q is 0."""
    with np.errstate(over="ignore"):
        return np.asarray(np.divide(p, q, out=np.full(len(p), otherwise), where=q > 0))


def raised(weight: float, p: F64, q: F64, x: int) -> float:
    """min(1, weight p(x) / q(x)) for a drafted x, without 0 times infinity where q underflowed."""
    mass = weight * float(p[x])
    if mass >= q[x]:
        return 1.0 if mass > 0 else 0.0
    return mass / float(q[x])


def without(q: F64, x: int) -> F64:
    """The law that is left of q once x is taken out, however little that is."""
    q = q.copy()
    q[x] = 0
    total = float(q.sum())
    return q / total if total > 0 else q


def crossing(f: Callable[[float], float], low: float, high: float, *, tolerance: float = 4e-16) -> tuple[float, float]:
    """Where a falling ``f`` with f(low) > 0 >= f(high) crosses 0: an interval with those signs, relatively short.

    Regula falsi in the Illinois form, with a bisection where it stalls. A step ends no nearer to an end than the
    interval may be short: once the root is found from one side, the next step closes in from the other.
    """
    f_low, f_high, last = f(low), f(high), 0
    for step in range(_STEPS):
        middle = (low + high) / 2
        if high - low <= tolerance * abs(high) or middle in (low, high):
            break
        secant = step % 4 < 3 and f_low > f_high
        x = (low * f_high - high * f_low) / (f_high - f_low) if secant else middle
        least = 0.5 * tolerance * abs(high)
        x = min(max(x, low + least), high - least)
        x = x if low < x < high else middle
        f_x = f(x)
        if f_x > 0:
            low, f_low, f_high = x, f_x, f_high / 2 if last > 0 else f_high
            last = 1
        else:
            high, f_high, f_low = x, f_x, f_low / 2 if last < 0 else f_low
            last = -1
    return low, high
