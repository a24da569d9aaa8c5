"""How often k drafted tokens can hold the target's token: optimal transport with membership cost (2310.15141).

``p`` target and ``q`` draft (V,) are laws over one alphabet; drafts are k i.i.d. draws from q unless said otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import lru_cache

import numpy as np

from wager.errors import OptionError
from wager.types import F64
from wager.verify.dice import Dice
from wager.verify.local import Local, crossing, normalised, positive, ratios


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

MAX_LAW = 16
MAX_CHILDREN = 3


def transport(here: Local, dice: Dice) -> int:
    """The optimal plan itself: a linear program over the multisets of drafts. Small supports only, slow."""
    p, q = here.p, here.q
    drafted = tuple(sorted(here.drafted))
    n_ids = int(np.count_nonzero(q))
    if n_ids > MAX_LAW or len(drafted) > MAX_CHILDREN:
        raise OptionError(
            f"rule `transport` was given {len(drafted)} children of a law over {n_ids} ids: draw at most "
            f"{MAX_CHILDREN} from at most {MAX_LAW} (Drawing's max_law)"
        )
    sets, flows = _plan(p.tobytes(), q.tobytes(), len(drafted))
    given = flows[drafted]
    mass = sets[drafted]
    for x, flow in given.items():
        if mass > 0 and dice.accept(flow / mass):
            return x
        mass -= flow
    used = np.zeros(len(p))
    for flow_of in flows.values():
        for x, flow in flow_of.items():
            used[x] += flow
    return dice.draw(normalised(positive(p - used), p))


def multisets(q: F64, k: int) -> dict[tuple[int, ...], float]:
    """Probability of each multiset (sorted tuple) of k i.i.d. draws from q."""
    ids = np.flatnonzero(q > 0).tolist()
    found = {}
    for drafted in itertools.combinations_with_replacement(ids, k):
        orders = math.factorial(k)
        for count in Counter(drafted).values():
            orders //= math.factorial(count)
        found[drafted] = orders * float(np.prod(q[list(drafted)]))
    return found


@lru_cache(maxsize=64)
def _plan(
    p_bytes: bytes, q_bytes: bytes, k: int
) -> tuple[dict[tuple[int, ...], float], dict[tuple[int, ...], dict[int, float]]]:
    """Probabilities of the multisets, and per multiset how much of it goes to each token it holds."""
    p, q = np.frombuffer(p_bytes), np.frombuffer(q_bytes)
    sets = multisets(q, k)
    edges = [(drafted, x) for drafted in sets for x in dict.fromkeys(drafted)]
    rows: list[int] = []
    bounds = np.array([*sets.values(), *p])
    index = {drafted: i for i, drafted in enumerate(sets)}
    for drafted, x in edges:
        rows += [index[drafted], len(sets) + x]
    at = np.array(rows).reshape(-1, 2)
    flow = maximise(np.ones(len(edges)), rows, np.repeat(np.arange(len(edges)), 2), np.ones(len(rows)), bounds)
    for side in (0, 1):  # the solver keeps bounds to 1e-9 only; scaled down the plan is one exactly
        used = np.bincount(at[:, side], positive(flow), len(bounds))
        flow = positive(flow) * np.minimum(1.0, bounds / np.where(used > 0, used, 1))[at[:, side]]
    flows: dict[tuple[int, ...], dict[int, float]] = {drafted: {} for drafted in sets}
    for (drafted, x), amount in zip(edges, flow.tolist(), strict=True):
        flows[drafted][x] = amount
    return sets, flows


def maximise(gain: F64, rows: object, columns: object, values: F64, bounds: F64) -> F64:
    """x >= 0 with the largest gain @ x under A x <= bounds, A given by its entries (HiGHS dual simplex).

    Raises ``OptionError`` where scipy is not installed.
    """
    try:
        from scipy.optimize import linprog
        from scipy.sparse import coo_matrix
    except ImportError:
        raise OptionError("rules `transport` and `khisti` need scipy: pip install 'wager[bench]'") from None
    a = coo_matrix((values, (rows, columns)), shape=(len(bounds), len(gain)))
    solved = linprog(-gain, A_ub=a, b_ub=bounds, bounds=(0, None), method="highs-ds")
    assert solved.status == 0, solved.message
    return np.asarray(solved.x, np.float64)
