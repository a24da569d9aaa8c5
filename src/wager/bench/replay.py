"""A drafter with a prescribed acceptance: it knows the text to come and spoils it at random.

Text of random weights has no acceptance of its own, and a real drafter's cannot be chosen. Under the walk a drafted
token that is the next one is accepted and any other is not, so spoiling the truth prescribes the acceptance exactly.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import replace
from itertools import accumulate
from operator import mul

import numpy as np

from wager.bench.oracle import Oracle
from wager.errors import OptionError
from wager.types import Draft, Limits, Sequence


class Replay(Oracle):
    """Drafts from the text given to ``know``; the token at depth d is right with probability ``chances[d - 1]``.

    That is given that those before it are right; deeper tokens have the last chance. What is spoiled is a function of
    the sequence's seed, sample and last token, and of the position that the draft starts from.
    """

    name = "replay"
    is_certain = False

    def __init__(self, chances: ListLike[float]) -> None:
        super().__init__()
        self._chances = chances

    def _draft(self, seq: Sequence, limit: Limits) -> Draft:
        truth = super()._draft(seq, limit)
        dice = np.random.default_rng([seq.seed, seq.sample, len(seq.tokens), seq.tokens[-1]]).random(len(truth))
        wrong = dice >= np.array(by_depth(self._chances, len(truth)))
        # another id than the right one, and one that is there: 1 for 0, else the one before
        return replace(truth, tokens=np.where(wrong, np.where(truth.tokens > 0, truth.tokens - 1, 1), truth.tokens))


def parse_chances(text: str) -> tuple[float, ...]:
    """``0.8,0.7`` as numbers. Raises ``OptionError`` for what is no probability."""
    parts = [part.strip() for part in text.split(",")]
    try:
        chances = tuple(map(float, parts))
    except ValueError as error:
        raise OptionError(f"acceptance is `{text}`: give numbers from 0 to 1, as in 0.8,0.7,0.6") from error
    if not all(0 <= chance <= 1 for chance in chances):
        raise OptionError(f"acceptance is `{text}`: give numbers from 0 to 1, as in 0.8,0.7,0.6")
    return chances


def by_depth(chances: ListLike[float], n: int) -> list[float]:
    """The chances of depths 1 … n: the last one goes on."""
    return [*chances[:n], *[chances[-1]] * (n - len(chances))]


def tokens_a_step(chances: ListLike[float], n: int) -> float:
    """Expected tokens of a step that drafts n: 1 + sum over depths of the product of the chances so far."""
    products: list[float] = list(accumulate(by_depth(chances, n), mul))
    return 1.0 + sum(products)
