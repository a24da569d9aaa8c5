"""Rules that walk down from the root: at each context a solver turns the drafted children into one token.

A solver is right iff its token has law p when the children were drawn as its rule says. Where the token is a child the
walk goes on there, with all nodes that share the context; else it stops. Proofs: tests/law, closed forms of the
acceptance: transport.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wager.tree import children
from wager.types import Draft, Verdict
from wager.verify.base import Decide, Rows
from wager.verify.dice import Dice
from wager.verify.local import Local, local, normalised, positive, ratio, without
from wager.verify.transport import k_seq_acceptance, rho_star

Solver = Callable[[Local, Dice], int]  # gives a symbol of the local alphabet


def top_down(solve: Solver) -> Decide:
    """The rule that uses ``solve`` at every context, and p itself where nothing was drafted."""

    def decide(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        below = children(draft)
        node = -1
        path: list[int] = []
        while node in below:
            here = local(rows, draft, node, below[node])
            token = here.token(solve(here, dice), rows, dice)
            found = [child for child in below[node] if draft.tokens[child] == token]
            if not found:
                return Verdict(tuple(path), token)
            node = found[0]
            path.append(node)
        return Verdict(tuple(path), dice.draw(rows.mass(node)))

    return decide


def nss(here: Local, dice: Dice) -> int:
    """A token of p, whatever was drafted ("naive sampling on the tree": SpecInfer, Miao et al. 2305.09781)."""
    return dice.draw(here.p)


def naive(here: Local, dice: Dice) -> int:
    """Accept the first child with min(1, p / q), else draw from (p - q)+, which may fall on another child.

    One child: Leviathan et al. 2211.17192, Chen et al. 2302.01318. Several i.i.d. ones: NaiveTree.
    """
    x = here.drafted[0]
    if dice.accept(ratio(here.p, here.q, x)):
        return x
    return dice.draw(normalised(positive(here.p - here.q), here.p))


def spec_infer(here: Local, dice: Dice) -> int:
    """Try i.i.d. children in random order; each rejection leaves (p - q)+ (SpecInfer, Miao et al. 2305.09781)."""
    p, left = here.p, list(here.drafted)
    while left:
        x = left.pop(dice.draw(np.ones(len(left))) if len(left) > 1 else 0)
        if dice.accept(ratio(p, here.q, x)):
            return x
        p = normalised(positive(p - here.q), p)
    return dice.draw(p)


def k_seq(here: Local, dice: Dice) -> int:
    """K-SEQ of SpecTr (Sun et al. 2310.15141): accept the first i.i.d. child that passes p / (rho* q)."""
    p, q, k = here.p, here.q, len(here.drafted)
    rho = rho_star(p, q, k)
    for x in here.drafted:
        if dice.accept(ratio(p, q, x) / rho):
            return x
    part = np.minimum(q, p / rho)
    beta = float(part.sum())
    gain = k_seq_acceptance(beta, k) / beta if beta > 0 else float(k)
    return dice.draw(normalised(positive(p - part * gain), p))


def without_replacement(here: Local, dice: Dice) -> int:
    """Children drawn one after another without putting back: recursive rejection with the law that is left (RRSw)."""
    p, q = here.p, here.q
    for x in here.drafted:
        if dice.accept(ratio(p, q, x)):
            return x
        p = normalised(positive(p - q), p)
        q = without(q, x)
    return dice.draw(p)


def top_k(here: Local, dice: Dice) -> int:
    """Children that nobody drew: accept each with what p has left of it (EAGLE-2, 2406.16858)."""
    p = here.p
    for x in here.drafted:
        if dice.accept(p[x] / p.sum()):
            return x
        p = p.copy()
        p[x] = 0
        if p.sum() <= 0:  # rounding alone: the rejected ones held all there was
            p = here.p
    return dice.draw(p)
