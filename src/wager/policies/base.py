"""What the engine asks a policy, in the order it asks."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Protocol

from wager.types import Draft, Drafter, Limits, Sequence, Verdict


class Policy(Protocol):
    """How much to draft. It never sees what a token is: what it decides follows from the past, the number of sequences
    and the form of the drafts (depths, ranks, support). Under the walk nothing it does could change the text. Under the
    other rules that is what keeps ``cut`` lossless: the form of a sampled draft does not depend on what was drawn
    (drafters/model.py), so neither does what is cut from it.

    ``limits`` before drafting, one per sequence; ``cut`` once the drafts are seen: same length, each a prefix-closed
    part of its draft; ``observe`` after the commit, with the drafts as fed.
    """

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]: ...
    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]: ...
    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None: ...
    def forget(self, seq_id: int) -> None: ...
