"""Rules that give up the target's law for longer drafts, each with a knob and the law that really comes out.

None is ever a default. At temperature 0 they accept nothing but the target's choice: greedy text stays greedy.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np

from wager.tree import children
from wager.types import F64, Draft, Verdict
from wager.verify.base import Decide, Rows
from wager.verify.chain import one_by_one
from wager.verify.dice import Dice
from wager.verify.lists import nss, top_down
from wager.verify.local import Local, crossing, normalised, positive, ratio, ratios

Gamma = Callable[[float, float], float]  # p(n), delta -> what p(n) is raised to
_NO_LIMIT = 1e12  # b need not exceed it: what is scaled down so far is as good as left out


def lossy(decide: Decide) -> Decide:
    """``decide``, save for greedy requests: there the target's choice, whatever the shape of the draft."""
    greedy = top_down(nss)

    def rule(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return (decide if rows.sampling.temperature > 0 else greedy)(rows, draft, dice)

    return rule


# -- Cactus -----------------------------------------------------------------------------------------------------------


def gamma_taylor(p: float, delta: float) -> float:
    """Cactus (Hao, Mou 2604.04987): second order of the budget KL <= delta; may exceed it above one half."""
    if p <= 0 or p >= 1:
        return p
    return min(1.0, p + math.sqrt(2 * delta * p * (1 - p)))


def gamma_exact(p: float, delta: float) -> float:
    """The largest gamma >= p whose Bernoulli KL to p is within ``delta``, from below."""
    if p <= 0 or p >= 1 or delta <= 0:
        return p
    if -math.log(p) <= delta:
        return 1.0
    return crossing(lambda gamma: delta - bernoulli_kl(gamma, p), p, 1.0)[0]


def bernoulli_kl(a: float, b: float) -> float:
    """KL in nats between coins with chances ``a`` and ``b``, 0 < b < 1."""
    return sum(x * math.log(x / y) for x, y in ((a, b), (1 - a, 1 - b)) if x > 0)


def surrogate(p: F64, x: int, gamma: float) -> F64:
    """h: p with p(x) raised to ``gamma`` and the others scaled down."""
    if p[x] >= 1:
        return p
    h = np.asarray(p * ((1 - gamma) / (1 - p[x])))
    h[x] = gamma
    return h


def cactus(delta: float, gamma: Gamma) -> Decide:
    """Accept the drafted x with gamma / q(x), else draw from (h - q)+: speculative sampling against h of this x."""

    def decide(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return one_by_one(rows, draft, dice, lambda here: _raised(here, delta, gamma))

    return lossy(decide)


def _raised(here: Local, delta: float, gamma: Gamma) -> F64:
    (x,) = here.drafted
    return surrogate(here.p, x, gamma(float(here.p[x]), delta))


def cactus_law(p: F64, q: F64, delta: float, gamma: Gamma) -> F64:
    """What comes out at one position: a mixture over the drafted token, so it may be further than ``delta`` from p."""
    law = np.zeros(len(p))
    for x in np.flatnonzero(q > 0).tolist():
        h = surrogate(p, x, gamma(float(p[x]), delta))
        accepted = min(1.0, ratio(h, q, x))
        law[x] += q[x] * accepted
        if accepted < 1:
            law += q[x] * (1 - accepted) * normalised(positive(h - q), h)
    return law


# -- mentored decoding ------------------------------------------------------------------------------------------------


def mentored(budget: float) -> Decide:
    """Speculative sampling against the w nearest to q with KL(p || w) <= ``budget`` (Tran-Thien 2024; core.md 9)."""

    def decide(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return one_by_one(rows, draft, dice, lambda here: mentored_law(here.p, here.q, budget))

    return lossy(decide)


def mentored_law(p: F64, q: F64, budget: float) -> F64:
    """w maximises sum min(q, w) under the budget: p / a where that is below q, p / b where above, else q; a <= 1 <= b.

    The multipliers give a = (mu - 1) / lambda and b = mu / lambda. b is found by its root, a follows from sum w = 1;
    w keeps the budget.
    """
    if budget <= 0:
        return p
    if kl(p, q) <= budget:
        return q
    scale = _Scaling(p, q)
    high = 2.0
    while (room := budget - scale.far(high)) > 0 and high < _NO_LIMIT:
        high *= 2
    b = high if room > 0 else crossing(lambda b: budget - scale.far(b), 1.0, high, tolerance=1e-9)[0]
    return normalised(scale.law(b), p)


class _Scaling:
    """The laws w of ``mentored_law`` by their b, by sums over the tokens in rising order of p / q."""

    def __init__(self, p: F64, q: F64) -> None:
        self._p, self._q, self._ratio = p, q, ratios(p, q, otherwise=np.inf)
        order = np.argsort(self._ratio)
        some_p, some_q, rising = p[order], q[order], self._ratio[order]
        finite = (rising > 0) & (rising < np.inf)
        logs = np.log(rising, out=np.zeros(len(rising)), where=finite)
        self._rising: list[float] = rising.tolist()
        self._below_p, self._below_q, self._far = (_sums(x) for x in (some_p, some_q, some_p * logs))
        self._above_p, self._above_q = (_sums(x[::-1])[::-1] for x in (some_p, some_q))
        given = np.divide(self._below_p[:-1], rising, out=np.array(self._below_q[:-1]), where=rising > 0)
        self._taken: list[float] = (self._below_q[:-1] - given).tolist()  # from q, where a is each of the ratios

    def _split(self, b: float) -> tuple[int, int, float]:
        """How many tokens are below a, how many up to b, and what is taken from the former for those beyond."""
        upto = bisect_right(self._rising, b)
        taken = self._above_p[upto] / b - self._above_q[upto]
        return bisect_left(self._taken, taken), upto, taken

    def _a(self, below: int, taken: float) -> float:
        """0 where only tokens that p forbids are below."""
        return self._below_p[below] / (self._below_q[below] - taken) if self._below_p[below] > 0 else 0.0

    def far(self, b: float) -> float:
        """KL(p || w), nats."""
        below, upto, taken = self._split(b)
        a = self._a(below, taken)
        nearer = self._below_p[below] * math.log(a) if a > 0 else 0.0
        return nearer + self._far[upto] - self._far[below] + self._above_p[upto] * math.log(b)

    def law(self, b: float) -> F64:
        """w (m,). Tokens that p forbids cost no budget: at a = 0 they get what is left, which is at most their q."""
        p, q = self._p, self._q
        below, _, taken = self._split(b)
        a = self._a(below, taken)
        law = np.where(self._ratio > b, p / b, q)
        if a > 0:
            return np.asarray(np.where(self._ratio < a, p / a, law))
        free = self._below_q[below]
        return np.where(p > 0, law, q * (1 - taken / free if free > 0 else 1))


def _sums(x: F64) -> list[float]:
    """Sums of the first 0, 1, ... of them."""
    found: list[float] = np.cumsum(x).tolist()
    return [0.0, *found]


# -- static ensemble --------------------------------------------------------------------------------------------------


def ensemble(weight: float) -> Decide:
    """Speculative sampling against weight p + (1 - weight) q (transformers' assistant_ensemble_weight)."""

    def decide(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return one_by_one(rows, draft, dice, lambda here: ensemble_law(here.p, here.q, weight))

    return lossy(decide)


def ensemble_law(p: F64, q: F64, weight: float) -> F64:
    return np.asarray(weight * p + (1 - weight) * q)


# -- typical acceptance -----------------------------------------------------------------------------------------------


def typical(epsilon: float) -> Decide:
    """Medusa (Cai et al. 2401.10774): accept x iff p(x) > min(epsilon, sqrt(epsilon) exp(-H(p))), then draw from p.

    Of a tree the deepest accepted node, ties to the likelier path. Medusa takes the arg max where we draw.
    """

    def decide(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        best, best_key = -1, (0, 0.0)
        likelihood: dict[int, float] = {-1: 0.0}
        path: dict[int, tuple[int, ...]] = {-1: ()}
        below = children(draft)
        for node in sorted(below):
            if node not in likelihood:  # rejected before
                continue
            mass = rows.mass(node)
            chances = (mass.at(draft.tokens[below[node]].astype(np.int64)) / mass.total).tolist()
            bound = epsilon if min(chances) > epsilon else threshold(mass.entropy, epsilon)
            for child, chance in zip(below[node], chances, strict=True):
                if chance > bound:
                    likelihood[child], path[child] = likelihood[node] + math.log(chance), (*path[node], child)
                    key = (len(path[child]), likelihood[child])
                    best, best_key = (child, key) if key > best_key else (best, best_key)
        return Verdict(path[best], dice.draw(rows.mass(best)))

    return lossy(decide)


def threshold(entropy: float, epsilon: float) -> float:
    """Least probability of a typical token; nats."""
    return min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))


def typical_law(p: F64, q: F64, epsilon: float) -> F64:
    """What comes out at one position; p must be the whole law, for its entropy."""
    some = p[p > 0]
    accepted = np.where(p > threshold(-float((some * np.log(some)).sum()), epsilon), q, 0.0)
    return np.asarray(accepted + (1 - accepted.sum()) * p)


def kl(p: F64, q: F64) -> float:
    """KL(p || q) in nats; infinite where q misses what p has."""
    some = p > 0
    if np.any(q[some] <= 0):
        return math.inf
    return float((p[some] * np.log(p[some] / q[some])).sum())
