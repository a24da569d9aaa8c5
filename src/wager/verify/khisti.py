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

_N_WEIGHED = 12
_TINY = 1e-15  # of probability: not worth passing on


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """The tokens that may meet: ``rank`` (m,) by p / q, ``some`` (s,) whose pairs have weights."""

    p: F64
    q: F64
    rank: I64
    some: I64
    by_rank: F64  # (s, s): 1 where the row's token has the higher rank
    below_q: F64  # (m,) chance of a draft of lower rank


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Who wins when an earlier winner meets a new draft: ``weights`` among ``some``, else the higher rank."""

    field: Field
    weights: F64  # (s, s): chance that the row's token beats the column's
    law: F64  # of the winner

    def win(self, old: int, new: int) -> float:
        """Chance that ``old`` goes on."""
        some = self.field.some.tolist()
        if old in some and new in some:
            return float(self.weights[some.index(old), some.index(new)])
        return float(self.field.rank[old] > self.field.rank[new])


def khisti(here: Local, dice: Dice) -> int:
    """A token of p from i.i.d. children: the tournament's winner against its own law, as ``naive`` does with one."""
    p, r = here.p, here.q
    winner, *others = here.drafted
    for x, step in zip(others, meetings(p, r), strict=False):
        if x != winner and not dice.accept(step.win(winner, x)):
            winner = x
        r = step.law
    if dice.accept(ratio(p, r, winner)):
        return winner
    return dice.draw(normalised(positive(p - r), p))


def winner_law(p: F64, q: F64, k: int) -> F64:
    """r after k drafts: the acceptance of the winner is sum min(p, r)."""
    r = q
    for step in islice(meetings(p, q), k - 1):
        r = step.law
    return r


def meetings(p: F64, q: F64) -> Iterator[Meeting]:
    """The first draft with the second, the winner with the third, and so on."""
    field, r = field_of(p, q), q
    while True:
        step = meeting(field, r)
        yield step
        r = step.law


def field_of(p: F64, q: F64) -> Field:
    """Target and draft (m,) as meetings need them."""
    order = np.argsort(ratios(p, q, otherwise=np.inf), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    n = min(_N_WEIGHED, int(np.count_nonzero(q)))
    some = np.sort(np.argsort(-q, kind="stable")[:n])
    by_rank = (rank[some][:, None] > rank[some]).astype(np.float64)
    return Field(p, q, rank, some, by_rank, _below(q, order, rank))


def _below(x: F64, order: I64, rank: I64) -> F64:
    """What ``x`` (m,) has at lower ranks."""
    sums: F64 = np.cumsum(x[order])
    return np.concatenate([[0.0], sums[:-1]])[rank]


def meeting(field: Field, r: F64) -> Meeting:
    """The meeting of a winner with law ``r`` (m,) and a draft."""
    q, rank, some = field.q, field.rank, field.some
    order = np.empty(len(rank), np.int64)
    order[rank] = np.arange(len(rank))
    law = r * q + r * field.below_q + q * _below(r, order, rank)  # as if rank decided all pairs
    mass = np.outer(r[some], q[some])
    mass += mass.T  # of the two orders of a pair
    np.fill_diagonal(mass, 0)
    rest = law[some] - (mass * field.by_rank).sum(axis=1)
    weights = _weigh(field.p[some], rest, mass, field.by_rank)
    law[some] = rest + (mass * weights).sum(axis=1)
    return Meeting(field, weights, normalised(positive(law), q))


def _weigh(p: F64, rest: F64, mass: F64, weights: F64) -> F64:
    """(s, s) weights that maximise sum min(p, rest + won), from other ones; ``mass`` (s, s) of the pairs.

    A largest flow: tokens that win more than p of them pass it on, through pairs, to those that win less.
    """
    wins = mass * weights
    over = (rest + wins.sum(axis=1) - p).tolist()
    rich, poor = ({i for i, x in enumerate(over) if sign * x > _TINY} for sign in (1, -1))
    beats = [set(np.flatnonzero(row > _TINY).tolist()) for row in wins]
    won = wins.tolist()
    while way := _way(beats, rich, poor):
        first, last = way[0], way[-1]
        amount = min(over[first], -over[last], *(won[i][j] for i, j in pairwise(way)))
        over[first] -= amount
        over[last] += amount
        if over[first] <= _TINY:
            rich.remove(first)
        if over[last] >= -_TINY:
            poor.remove(last)
        for i, j in pairwise(way):
            won[i][j] -= amount
            won[j][i] += amount
            if won[i][j] <= _TINY:
                beats[i].remove(j)
            if won[j][i] > _TINY:
                beats[j].add(i)
    return np.asarray(np.clip(np.divide(won, mass, out=weights.copy(), where=mass > 0), 0.0, 1.0))


def _way(beats: ListLike[set[int]], rich: set[int], poor: set[int]) -> list[int]:
    """A shortest way from a rich token to a poor one, each of which beats the next now and then; empty: none."""
    before = dict.fromkeys(rich, -1)
    found = list(rich)
    for i in found:
        for j in beats[i] & poor:
            way = [j, i]
            while before[way[-1]] >= 0:
                way.append(before[way[-1]])
            return way[::-1]
        for j in beats[i] - before.keys():
            before[j] = i
            found.append(j)
    return []
