"""Importance-weighted list (Khisti et al. 2410.18234): pick one of the drafts well, then verify it alone.

Drafts meet in pairs, one after another, and a weight decides who goes on. The winner has a law r that follows from the
weights, so the rule is right for any of them. Their linear program, over the likeliest tokens as they cut it too, makes
sum min(p, r) as large as weights can; it is solved as the flow that it is. Pairs with a token outside it go to the
larger p / q. Two drafts over a few tokens reach the optimum (their theorem 3); ``transport`` reaches it always.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from wager.types import F64, I64
from wager.verify.dice import Dice
from wager.verify.local import Local, normalised, positive, ratio, ratios
from wager.wide import top_indices

_N_WEIGHED = 12
_TINY = 1e-15  # of probability: not worth passing on
_LOWER = np.tri(_N_WEIGHED, k=-1)  # who has the higher rank


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """The tokens that may meet, by rising p / q: their place there is their rank."""

    rank: I64  # (m,)
    order: I64  # (m,) the token of a rank
    p: F64  # (m,) by rank, as the rest
    q: F64
    upto: F64  # sums of q
    some: I64  # (s,) rising ranks of those whose pairs have weights


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Who wins when an earlier winner meets a new draft: among ``some`` (s,) by weights, else the higher rank.

    ``law`` (m,) of the winner by rank; ``mass`` (s, s) of pairs, ``won`` (s, s) by the row's against the column's.
    """

    some: list[int]
    mass: list[list[float]]
    won: list[list[float]]
    law: F64

    def win(self, old: int, new: int) -> float:
        """Chance that ``old`` goes on; ranks."""
        if old in self.some and new in self.some:
            i, j = self.some.index(old), self.some.index(new)
            if self.mass[i][j] > 0:
                return min(max(self.won[i][j] / self.mass[i][j], 0.0), 1.0)
        return float(old > new)


def khisti(here: Local, dice: Dice) -> int:
    """A token of p from i.i.d. children: the tournament's winner against its own law, as ``naive`` does with one."""
    field = field_of(here.p, here.q)
    p, r = field.p, field.q
    winner, *others = field.rank[list(here.drafted)].tolist()
    for x, step in zip(others, meetings(field), strict=False):
        if x != winner and not dice.accept(step.win(winner, x)):
            winner = x
        r = step.law
    if not dice.accept(ratio(p, r, winner)):
        winner = dice.draw(normalised(positive(p - r), p))
    return int(field.order[winner])


def winner_law(p: F64, q: F64, k: int) -> F64:
    """r (m,) after k drafts: the acceptance of the winner is sum min(p, r)."""
    field = field_of(p, q)
    r = field.q
    for step in islice(meetings(field), k - 1):
        r = step.law
    return np.asarray(r[field.rank])


def meetings(field: Field) -> Iterator[Meeting]:
    """The first draft with the second, the winner with the third, and so on."""
    r = field.q
    while True:
        step = meeting(field, r)
        yield step
        r = step.law


def field_of(p: F64, q: F64) -> Field:
    """Target and draft (m,) as meetings need them."""
    order = ratios(p, q, otherwise=np.inf).argsort(kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    n = min(_N_WEIGHED, int(np.count_nonzero(q)))
    some = np.sort(rank[top_indices(q, n)])
    by_rank = q[order]
    return Field(rank, order, p[order], by_rank, by_rank.cumsum(), some)


def meeting(field: Field, r: F64) -> Meeting:
    """The meeting of a winner with law ``r`` (m,) by rank and a draft.

    A largest flow: tokens that win more than p of them pass it on, through pairs, to those that win less.
    """
    law = r * field.upto + field.q * (r.cumsum() - r)  # as if rank decided all pairs
    some, p = field.some, field.p[field.some]
    mass = r[some][:, None] * field.q[some]
    mass += mass.T  # of the two orders of a pair
    won = (mass * _LOWER[: len(some), : len(some)]).tolist()
    over = (law[some] - p).tolist()
    _pass_on(over, won)
    law[some] = p + over
    return Meeting(some.tolist(), mass.tolist(), won, normalised(positive(law), field.q))


def _pass_on(over: list[float], won: list[list[float]]) -> None:
    """Move what is ``over`` (s,) to where it is below 0, by changing what tokens have ``won`` (s, s) of each other."""
    rich, poor = ([i for i, x in enumerate(over) if sign * x > _TINY] for sign in (1, -1))
    for i in rich:  # straight from one to the other first: that is most of it
        for j in poor:
            amount = min(over[i], -over[j], won[i][j])
            if amount > _TINY:
                _move(amount, (i, j), over, won)
    while way := _way(over, won):
        _move(min(over[way[0]], -over[way[-1]], *(won[i][j] for i, j in pairwise(way))), way, over, won)


def _move(amount: float, way: ListLike[int], over: list[float], won: list[list[float]]) -> None:
    over[way[0]] -= amount
    over[way[-1]] += amount
    for i, j in pairwise(way):
        won[i][j] -= amount
        won[j][i] += amount


def _way(over: ListLike[float], won: ListLike[ListLike[float]]) -> list[int]:
    """A shortest way from a token that is over to one below 0, each of which beats the next; empty: none."""
    found = [i for i, x in enumerate(over) if x > _TINY]
    poor = {i for i, x in enumerate(over) if x < -_TINY}
    if not poor:
        return []
    before = dict.fromkeys(found, -1)
    for i in found:
        for j, beaten in enumerate(won[i]):
            if beaten > _TINY and j not in before:
                before[j] = i
                found.append(j)
                if j in poor:
                    way = [j]
                    while before[way[-1]] >= 0:
                        way.append(before[way[-1]])
                    return way[::-1]
    return []
