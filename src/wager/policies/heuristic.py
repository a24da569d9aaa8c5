"""Two tokens more after a draft that was accepted whole, else one fewer: the schedules of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

from wager.policies.base import CHAIN, Tree
from wager.tree import depths
from wager.types import Draft, Drafter, Limits, Sequence, Verdict


class Heuristic:
    """Drafts ``n_tokens`` first, and never fewer than one; a draft that was not fed changes nothing.

    Every sequence has a number of its own. A new one starts where the last one that ended was, or, ``transient``, anew.
    Source: transformers 5, num_assistant_tokens_schedule (its start is 20, meant for accelerators).
    """

    def __init__(self, n_tokens: int, *, tree: Tree = CHAIN, transient: bool = False) -> None:
        self._start = n_tokens
        self._tree = tree
        self._transient = transient
        self._numbers: dict[int, int] = {}

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        return [self._tree.limits(self._numbers.setdefault(seq.id, self._start)) for seq in seqs]

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            number = self._numbers.get(seq.id, self._start)
            if len(draft):
                whole = len(verdict.path) == max(depths(draft))
                self._numbers[seq.id] = number + 2 if whole else max(1, number - 1)

    def forget(self, seq_id: int) -> None:
        number = self._numbers.pop(seq_id, self._start)
        if not self._transient:
            self._start = number
