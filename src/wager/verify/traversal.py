"""Traversal verification (Weng et al. 2505.12398): from the leaves up, so that a path counts as a whole."""

from __future__ import annotations

from wager.tree import children
from wager.types import Draft, Verdict
from wager.verify.base import Rows
from wager.verify.dice import Dice
from wager.verify.local import local, normalised, positive, raised, without


def traversal(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Visit the tree depth first; a node that is accepted brings the whole path to it. Exact for i.i.d. children, and
    for children drawn without replacement. One path gives block verification, decision for decision another order.
    """
    verdict = _Visit(rows, draft, dice).visit((), 1.0)
    assert verdict is not None, "the root is always accepted"
    return verdict


class _Visit:
    """One pass over one draft."""

    def __init__(self, rows: Rows, draft: Draft, dice: Dice) -> None:
        self._rows, self._draft, self._dice = rows, draft, dice
        self._below = children(draft)

    def visit(self, path: tuple[int, ...], weight: float) -> Verdict | None:
        """Accept ``path`` or more with probability ``weight``; None: no path that begins so."""
        node = path[-1] if path else -1
        if weight <= 0:
            return None
        if node not in self._below:
            return self._leaf(path, weight)
        here = local(self._rows, self._draft, node, self._below[node])
        p, q = here.p, here.q
        seen: dict[int, int] = {}
        for x, child in zip(here.drafted, self._below[node], strict=True):
            passed = raised(weight, p, q, x)
            # the first of equal draws owns all that was drafted below them, the others are leaves
            visit = self._leaf if x in seen else self.visit
            found = visit((*path, seen.setdefault(x, child)), passed)
            if found is not None:
                return found
            residual = positive(weight * p - q)
            mass = float(residual.sum())
            left = mass + (1 - weight)  # in this order: mass itself at weight 1
            weight = mass / left if left > 0 else 1.0
            p = normalised(residual, p)
            if self._draft.kind == "without_replacement":
                q = without(q, x)
            if weight <= 0:
                return None
        if not self._dice.accept(weight):
            return None
        token = here.token(self._dice.draw(p), self._rows, self._dice)
        return Verdict(path, token)

    def _leaf(self, path: tuple[int, ...], weight: float) -> Verdict | None:
        if not self._dice.accept(weight):
            return None
        return Verdict(path, self._dice.draw(self._rows.mass(path[-1] if path else -1)))
