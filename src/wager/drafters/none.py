"""The drafter that drafts nothing: plain decoding."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Any

from wager.drafters.base import refuse_argument
from wager.types import EMPTY, Draft, Limits, Sequence, Verdict


class NoDrafter:
    """Every draft is empty."""

    name = "none"

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        return [EMPTY] * len(seqs)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Nothing was drafted."""

    def forget(self, seq_id: int) -> None:
        """Nothing is kept."""

    def seconds(self, n_tokens: int) -> float:
        return 0.0


def make(argument: str, target: Any) -> NoDrafter:
    """For the registry; the target does not matter."""
    refuse_argument("none", argument)
    return NoDrafter()
