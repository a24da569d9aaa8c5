"""Rules for a single path of drafted tokens: one test a token, or one for the whole block."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import replace

import numpy as np

from wager.tree import children
from wager.types import F64, Draft, Verdict
from wager.verify.base import Rows
from wager.verify.dice import Dice
from wager.verify.local import Local, local, normalised, positive, raised, ratio, ratios

Alter = Callable[[Local], F64]  # the law (m + 1,) that a lossy rule puts in the place of p, given the drafted token


def standard(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Token by token: accept with min(1, p / q), at the first rejection draw from (p - q)+.

    Leviathan et al. 2211.17192, Chen et al. 2302.01318. A token that nobody drew has q = 1.
    """
    return one_by_one(rows, draft, dice, lambda here: here.p)


def one_by_one(rows: Rows, draft: Draft, dice: Dice, alter: Alter) -> Verdict:
    """``standard`` against ``alter``'s law instead of p; after the last draft token p itself is drawn from.

    No alteration may reject what p accepts for certain, p(x) >= q(x): then it is not even worked out.
    """
    path: list[int] = []
    below = children(draft)
    node = -1
    while node in below:
        assert len(below[node]) == 1, "a rule for single paths was given a tree"
        here = local(rows, draft, node, below[node])
        (x,) = here.drafted
        law = here.p if here.p[x] >= here.q[x] else alter(here)
        if not dice.accept(ratio(law, here.q, x)):
            symbol = dice.draw(normalised(positive(law - here.q), law))
            return Verdict(tuple(path), here.token(symbol, rows, dice))
        node = below[node][0]
        path.append(node)
    return Verdict(tuple(path), dice.draw(rows.mass(node)))


def block(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Block verification (Sun et al. 2403.10444): the longest prefix that passes, not the first that fails.

    At most as many rejections as any rule that sees one path: P(at least i accepted) is the clipped product pi_i.
    """
    below = children(draft)
    assert all(len(nodes) == 1 for nodes in below.values()), "a rule for single paths was given a tree"
    parents = sorted(below)
    path = [below[node][0] for node in parents]
    return verify_block(rows, path, [local(rows, draft, node, below[node]) for node in parents], dice)


def verify_block(rows: Rows, path: ListLike[int], contexts: ListLike[Local], dice: Dice) -> Verdict:
    """``block`` over the drafted nodes of a path; ``contexts[i]`` is where ``path[i]`` was drawn, by its q."""
    n, best = len(path), 0
    carried = [1.0]  # pi_i
    for here in contexts:
        carried.append(raised(carried[-1], here.p, here.q, here.drafted[0]))
    for i in range(n, 0, -1):  # the last that passes, so from the end
        passes = carried[n]
        if i < n:
            mass = float(positive(carried[i] * contexts[i].p - contexts[i].q).sum())
            left = mass + (1 - carried[i])  # in this order: mass itself where 1 is carried
            passes = mass / left if left > 0 else 1.0
        if dice.accept(passes):
            best = i
            break
    if best == n:
        return Verdict(tuple(path), dice.draw(rows.mass(path[-1] if n else -1)))
    here = contexts[best]
    symbol = dice.draw(normalised(positive(carried[best] * here.p - here.q), here.p))
    return Verdict(tuple(path[:best]), here.token(symbol, rows, dice))


def greedy_paths(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Of K i.i.d. paths the one whose tokens rank highest in p / q, then ``block`` with the law that picking gives it.

    Experimental: an exact instance of greedy multi-path verification (2602.16961), whose recipe we could not read. The
    highest of k draws in a fixed order has law F^k less what lies below, F the sums of q in that order.
    """
    below = children(draft)
    node, path, contexts = -1, [], []
    while node in below:
        here = local(rows, draft, node, below[node])
        order = np.argsort(ratios(here.p, here.q, otherwise=-1.0), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        sums = np.minimum(np.cumsum(here.q[order]), 1.0) ** len(here.drafted)
        skewed = np.empty(len(order))
        skewed[order] = np.diff(sums, prepend=0.0)
        picked = max(range(len(here.drafted)), key=lambda i: rank[here.drafted[i]])
        contexts.append(replace(here, q=skewed, drafted=(here.drafted[picked],)))
        first = draft.tokens[below[node][picked]]
        node = next(child for child in below[node] if draft.tokens[child] == first)
        path.append(node)
    return verify_block(rows, path, contexts, dice)
