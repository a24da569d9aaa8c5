"""Importance-weighted list (Khisti et al. 2410.18234): pick one of the drafts well, then verify it alone.

Drafts meet in pairs, one after another, and a weight decides who goes on. The winner has a law r that follows from the
weights, so the rule is right for any of them; a linear program over the likeliest tokens makes sum min(p, r) large, and
pairs with a token outside it go to the larger p / q. Two drafts over a few tokens reach the optimum (their theorem 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wager.types import F64, I64
from wager.verify.dice import Dice
from wager.verify.local import Local, normalised, positive, ratio, ratios
from wager.verify.transport import maximise

_N_WEIGHED = 12


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Who wins when an earlier winner meets a new draft: ``weights`` among ``some``, else the higher ``rank``."""

    rank: I64
    some: I64
    weights: F64  # (s, s): chance that the row's token beats the column's
    law: F64  # of the winner

    def win(self, old: int, new: int) -> float:
        """Chance that ``old`` goes on."""
        at = np.flatnonzero(self.some == old), np.flatnonzero(self.some == new)
        if len(at[0]) and len(at[1]):
            return float(self.weights[at[0][0], at[1][0]])
        return float(self.rank[old] > self.rank[new])


def khisti(here: Local, dice: Dice) -> int:
    """A token of p from i.i.d. children: the tournament's winner against its own law, as ``naive`` does with one."""
    p, q, r = here.p, here.q, here.q
    winner = here.drafted[0]
    for x in here.drafted[1:]:
        step = meeting(p, r, q)
        if x != winner and not dice.accept(step.win(winner, x)):
            winner = x
        r = step.law
    if dice.accept(ratio(p, r, winner)):
        return winner
    return dice.draw(normalised(positive(p - r), p))


def winner_law(p: F64, q: F64, k: int) -> F64:
    """r after k drafts: the acceptance of the winner is sum min(p, r)."""
    r = q
    for _ in range(k - 1):
        r = meeting(p, r, q).law
    return r


def meeting(p: F64, r: F64, q: F64) -> Meeting:
    """The meeting of a winner with law ``r`` and a draft with law ``q``, all (V,)."""
    order = np.argsort(ratios(p, q, otherwise=np.inf), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    below_r, below_q = (np.concatenate([[0.0], np.cumsum(x[order])[:-1]])[rank] for x in (r, q))
    law = r * q + r * below_q + q * below_r  # as if rank decided all pairs
    some = np.sort(np.argsort(-q, kind="stable")[: min(_N_WEIGHED, int((q > 0).sum()))])
    mass = np.outer(r[some], q[some])
    mass += mass.T  # of the two orders of a pair; the diagonal is not used
    by_rank = (rank[some][:, None] > rank[some]).astype(np.float64)
    weights = _weigh(p[some], law[some] - _won(mass, by_rank), mass)
    law = law.copy()
    law[some] += _won(mass, weights) - _won(mass, by_rank)
    return Meeting(rank, some, weights, normalised(positive(law), q))


def _won(mass: F64, weights: F64) -> F64:
    """What each token wins in its meetings with the others of the program."""
    won = mass * weights
    np.fill_diagonal(won, 0)
    return np.asarray(won.sum(axis=1))


def _weigh(p: F64, fixed: F64, mass: F64) -> F64:
    """(s, s) weights that maximise sum min(p, fixed + won): a linear program in one variable a pair and one a token."""
    s = len(p)
    first, second = np.triu_indices(s, 1)
    n_pairs = len(first)
    weights = np.full((s, s), 0.5)
    if n_pairs == 0:
        return weights
    pairs = np.arange(n_pairs)
    m = mass[first, second]
    # t_i - sum_j m_ij w_ij <= fixed_i, where the second of a pair wins m (1 - w)
    rows = np.concatenate([np.arange(s), first, second, s + pairs])
    columns = np.concatenate([n_pairs + np.arange(s), pairs, pairs, pairs])
    values = np.concatenate([np.ones(s), -m, m, np.ones(n_pairs)])
    bounds = np.concatenate([fixed + np.bincount(second, m, s), np.ones(n_pairs)])
    gain = np.concatenate([np.zeros(n_pairs), np.ones(s)])
    rows = np.concatenate([rows, s + n_pairs + np.arange(s)])
    columns = np.concatenate([columns, n_pairs + np.arange(s)])
    values = np.concatenate([values, np.ones(s)])
    best = maximise(gain, rows, columns, values, np.concatenate([bounds, p]))[:n_pairs]
    best = np.clip(best, 0.0, 1.0)
    weights[first, second], weights[second, first] = best, 1 - best
    return weights
