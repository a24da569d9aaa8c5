"""Rules that give up the target's law for longer drafts, each with a knob and the law that really comes out.

None is ever a default. At temperature 0 they accept nothing but the target's choice: greedy text stays greedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wager.tree import children
from wager.types import F64, Draft, Verdict
from wager.verify.base import Decide, Rows
from wager.verify.chain import one_by_one
from wager.verify.dice import Dice
from wager.verify.lists import nss, top_down
from wager.verify.local import Local, crossing, normalised, positive, ratio

Gamma = Callable[[float, float], float]  # p(n), delta -> what p(n) is raised to


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
    """w maximises sum min(q, w) under the budget: p / a where that is below q, p / b where above, else q; a < b.

    The multipliers give a = (mu - 1) / lambda and b = mu / lambda. Both are found by bisection, w within the budget.
    """
    if budget <= 0:
        return p
    if kl(p, q) <= budget:
        return q

    def room(slack: float) -> float:
        return budget - kl(p, _mentor(p, q, slack))

    loose = 1.0  # 1 / lambda: 0 gives w = p
    while room(loose) > 0 and loose < 1e12:
        loose *= 2
    return _mentor(p, q, crossing(room, 0.0, loose, tolerance=1e-7)[0])


def _mentor(p: F64, q: F64, slack: float) -> F64:
    """w for 1 / lambda = ``slack`` = b - a, with a such that w sums to 1.

    Tokens that p forbids cost no budget: at a = 0 they get what the others leave, which is at most their q.
    """
    if slack <= 0:
        return p
    some = p > 0

    def law(a: float) -> F64:
        above = p / a if a > 0 else np.where(some, np.inf, 0.0)
        return np.asarray(np.minimum(np.maximum(q, p / (a + slack)), above))

    left = 1 - float(law(0.0).sum())
    if left > -1e-12:  # rounding included, or a would be sought next to 0
        free = np.where(some, 0.0, q)
        return normalised(law(0.0) + max(left, 0.0) * normalised(free, free), p)
    # sum w > 1 where a = 0, and <= 1 where a = 1 and w <= p
    return normalised(law(crossing(lambda a: float(law(a).sum()) - 1, 0.0, 1.0, tolerance=1e-11)[1]), p)


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
            p = rows[node]
            bound = threshold(p, epsilon)
            for child in below[node]:
                chance = float(p[draft.tokens[child]])
                if chance > bound:
                    likelihood[child], path[child] = likelihood[node] + math.log(chance), (*path[node], child)
                    key = (len(path[child]), likelihood[child])
                    best, best_key = (child, key) if key > best_key else (best, best_key)
        return Verdict(path[best], dice.draw(rows.weights(best)))

    return lossy(decide)


def threshold(p: F64, epsilon: float) -> float:
    """Least probability of a typical token; nats."""
    some = p[p > 0]
    return min(epsilon, math.sqrt(epsilon) * math.exp(float((some * np.log(some)).sum())))


def typical_law(p: F64, q: F64, epsilon: float) -> F64:
    """What comes out at one position; p must be the whole law, for its entropy."""
    accepted = np.where(p > threshold(p, epsilon), q, 0.0)
    return np.asarray(accepted + (1 - accepted.sum()) * p)


def kl(p: F64, q: F64) -> float:
    """KL(p || q) in nats; infinite where q misses what p has."""
    some = p > 0
    if np.any(q[some] <= 0):
        return math.inf
    return float((p[some] * np.log(p[some] / q[some])).sum())
