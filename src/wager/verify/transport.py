"""How often k drafted tokens can hold the target's token: optimal transport with membership cost (2310.15141).

``p`` target and ``q`` draft (V,) are laws over one alphabet; drafts are k i.i.d. draws from q unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.types import F64, I64
from wager.verify.dice import Dice
from wager.verify.local import Local, crossing, normalised, positive, ratio, ratios

Swap = tuple[int, int, float, float]


def optimum(p: F64, q: F64, k: int) -> float:
    """alpha*_k = min over token sets H of p(H) + 1 - q(H)^k: no rule accepts more often. O(V log V).

    The best H is a prefix of the tokens by rising p / q (max-flow, min-cut; checked against the linear program).
    """
    order = np.argsort(ratios(p, q, otherwise=np.inf), kind="stable")
    below_p = np.concatenate([[0.0], np.cumsum(p[order])])
    below_q = np.concatenate([[0.0], np.cumsum(q[order])])
    return float(np.min(below_p + 1 - np.minimum(below_q, 1.0) ** k))


def beta(p: F64, q: F64, rho: float) -> float:
    """Chance that one draft passes the test p / (rho q)."""
    return float(np.minimum(q, p / rho).sum())


def k_seq_acceptance(beta: float, k: int) -> float:
    """1 - (1 - beta)^k, kept exact where beta is tiny."""
    return float(-np.expm1(k * np.log1p(-beta))) if beta < 1 else 1.0


def rho_star(p: F64, q: F64, k: int) -> float:
    """The least rho in [1, k] for which K-SEQ has a residual: root of 1 - (1 - beta)^k = rho beta, rounded up."""

    def excess(rho: float) -> float:
        b = beta(p, q, rho)
        return k_seq_acceptance(b, k) - rho * b

    if k == 1 or excess(1.0) <= 0:
        return 1.0
    return crossing(excess, 1.0, float(k))[1]


# -- acceptance in closed form: P(token is among the k children); related.md 2.2, each checked by enumeration ----------


def nss_acceptance(p: F64, q: F64, k: int) -> float:
    return float((p * (1 - (1 - q) ** k)).sum())


def naive_acceptance(p: F64, q: F64, k: int) -> float:
    return float(np.minimum(p, q).sum() + (positive(p - q) * (1 - (1 - q) ** (k - 1))).sum())


def spec_infer_acceptance(p: F64, q: F64, k: int) -> float:
    rejected, missed = 1.0, np.ones(len(p))
    for _ in range(k):
        r = float(np.minimum(p, q).sum())
        if 1 - r < 1e-15:
            return 1.0
        rejected *= 1 - r
        missed *= 1 - positive(q - p) / (1 - r)
        p = normalised(positive(p - q), p)
    return float(1 - rejected + rejected * (p * (1 - missed)).sum())


def spec_tr_acceptance(p: F64, q: F64, k: int) -> float:
    """K-SEQ at rho*, a residual token that falls on a rejected child included."""
    rho = rho_star(p, q, k)
    b = beta(p, q, rho)
    accepted = k_seq_acceptance(b, k)
    if 1 - accepted < 1e-15:
        return 1.0
    part = np.minimum(q, p / rho)
    residual = normalised(positive(p - part * (accepted / b if b > 0 else k)), p)
    failed = positive(q - p / rho) / (1 - b)
    return float(accepted + (1 - accepted) * (residual * (1 - (1 - failed) ** k)).sum())


# -- the optimal plan as a rule ---------------------------------------------------------------------------------------


def transport(here: Local, dice: Dice) -> int:
    """The optimal plan of i.i.d. children: pick one, then test the pick alone against the law r that picking gives it.

    That any plan can be split so is Khisti et al.'s theorem (2410.18234); r and the pick are found without a program.
    """
    p, r, (x, *others) = here.p, here.q, here.drafted
    if others:
        plan = arranged(p, r, len(here.drafted))
        x, r = plan.pick(here.drafted, dice), plan.law
    if dice.accept(ratio(p, r, x)):
        return x
    return dice.draw(normalised(positive(p - r), p))


@dataclass(frozen=True, slots=True, eq=False)
class Picking:
    """How one of k draws is picked. Tokens lie side by side on [0, 1] by rising p / q, each as wide as its q: a cell.

    The draw with the highest cell wins, so the law of the winner's place z is k z^(k-1). A token that would win less
    than its ``law`` is now and then counted under the cell of a higher one, which takes its place as often.
    """

    law: F64  # (m,) of the pick
    rank: I64  # (m,) place of a token's cell
    edges: I64  # cells between two of these change places among themselves only
    q: F64  # (m,) by rank, as the rest
    mean: F64  # (m,) of k z^(k-1) over the cell: a token's chance to win, by its q
    need: F64  # (m,) what is short of ``law``

    def pick(self, drafted: ListLike[int], dice: Dice) -> int:
        """One of ``drafted``."""
        places = self.rank[list(drafted)].tolist()
        after = int(np.searchsorted(self.edges, max(places), side="right"))
        first, end = int(self.edges[after - 1]), int(self.edges[after])
        met = [(place, x) for place, x in zip(places, drafted, strict=True) if place >= first]
        if len({x for _, x in met}) == 1:  # all others lie lower whatever they are counted under
            return met[0][1]
        swaps = _swaps(*(values[first:end].tolist() for values in (self.q, self.mean, self.need)))
        cells = [_cell(place - first, end - first, swaps, dice) for place, _ in met]
        return met[cells.index(max(cells))][1]  # of equal cells the first: the others have the same law


def arranged(p: F64, q: F64, k: int) -> Picking:
    """The picking of one of ``k`` draws from q that reaches ``optimum``: sum min(p, law) cannot be larger.

    A law r can be picked iff r(H) >= q(H)^k for every H; of sets only prefixes by rising p / q matter (``optimum``).
    r is p save where the excess q(H)^k - p(H) sets a record, from either end: there r(H) is q(H)^k.
    """
    order = ratios(p, q, otherwise=np.inf).argsort(kind="stable")
    p, q = p[order], q[order]
    high = np.minimum(np.cumsum(q), 1.0)
    low = np.concatenate([[0.0], high[:-1]])
    mean = power = np.ones(len(q))  # sum of high^i low^(k - 1 - i), and high^(k - 1)
    for _ in range(k - 1):
        power = power * high
        mean = mean * low + power
    excess = np.concatenate([[0.0], power * high - np.cumsum(p)])
    top = int(np.argmax(excess))
    least = np.maximum.accumulate(excess[: top + 1]), np.maximum.accumulate(excess[:top:-1])[::-1]
    records = np.concatenate(least)
    r = positive(p + np.diff(records))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Picking(r[rank], rank, np.flatnonzero(records == excess), q, mean, r - q * mean)


def _swaps(q: list[float], mean: list[float], need: list[float]) -> list[Swap]:
    """(i, j, a, b): token i is then counted, with chance a, as j is so far, and j with chance b as i is.

    Transfers after Hardy, Littlewood and Polya: from the next that wins too much to the last before it that wins too
    little. ``mean`` changes along; at most one swap a token.
    """
    found: list[Swap] = []
    short: list[int] = []
    for j, lack in enumerate(need):
        while lack < 0 and short:
            i = short[-1]
            gap = mean[j] - mean[i]
            if gap <= 0:  # rounding
                break
            moved = need[i] if need[i] < -lack else -lack
            a, b = moved / gap / q[i], moved / gap / q[j]
            a, b = a if a < 1 else 1.0, b if b < 1 else 1.0
            found.append((i, j, a, b))
            mean[i] += a * gap
            mean[j] -= b * gap
            need[i] -= moved
            lack += moved
            if need[i] <= 0:
                short.pop()
        if lack > 0:
            short.append(j)
    return found


def _cell(place: int, n_cells: int, swaps: ListLike[Swap], dice: Dice) -> int:
    """The cell that a draw is counted under."""
    shares = [0.0] * n_cells
    shares[place] = 1.0
    for i, j, a, b in reversed(swaps):
        at_i, at_j = shares[i], shares[j]
        if at_i or at_j:
            shares[i], shares[j] = at_i * (1 - a) + at_j * b, at_i * a + at_j * (1 - b)
    return dice.draw(np.array(shares)) if shares[place] < 1 else place
