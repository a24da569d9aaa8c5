"""What a setting is judged by: seconds a committed token of speculative decoding, from the curve of its forwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate
from operator import mul

from wager.policies.acceptance import Acceptance

# Texts differ: an equal share of the tokens comes with no draft, and with a draft of each of these supports.
SUPPORTS = (1, 2, 4, 8, 16, 32)
LONGEST = 15  # draft tokens


@cache
def law() -> tuple[tuple[float, ...], ...]:
    """For every share: expected committed tokens of a forward with 0 … LONGEST draft tokens.

    The chances are the first guesses of the policy, which were measured (policies/acceptance.py).
    """
    shares: list[tuple[float, ...]] = [(1.0,)]
    for support in SUPPORTS:
        reached = accumulate(Acceptance().chances("", support, LONGEST), mul)
        shares.append(tuple(accumulate(reached, initial=1.0)))
    return tuple(shares)


def seconds_per_token(forward_s: Callable[[int], float]) -> float:
    """Mean over the shares, each at the draft length that suits it best; ``forward_s`` of so many tokens."""
    best = [min(forward_s(1 + n) / tokens for n, tokens in enumerate(share)) for share in law()]
    return sum(best) / len(best)


def first_chances() -> list[float]:
    """Chance that the first draft token is accepted, by share: the law in short."""
    return [round(share[1] - 1, 2) if len(share) > 1 else 0.0 for share in law()]
