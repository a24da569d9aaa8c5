"""Drafts that know the text to come: what the best drafter could gain on this machine.

``oracle`` drafts the true continuation, the ceiling of any drafter. ``oracle:copy`` drafts of it what can be copied
from somewhere in prompt and output after a token equal to the last one: the ceiling of copying, which look-up with a
perfect choice of match and length would reach.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike

import numpy as np

from wager.policies.acceptance import Acceptance
from wager.types import EMPTY, Draft, DraftKind, Limits, Seen, Sequence, Verdict, chain


class Oracle:
    """Drafts from the text given to ``know``; drafts nothing for a sequence that departs from it."""

    name = "oracle"
    kind: DraftKind = "deterministic"
    has_laws = False
    is_certain = True  # every token it drafts will be accepted

    def __init__(self, *, copy_only: bool = False) -> None:
        self._copy_only = copy_only
        self._text: list[int] = []
        self._runs: list[int] = []  # by position: how many tokens from there on may be drafted

    def know(self, prompt: ListLike[int], output: ListLike[int]) -> None:
        """The whole text of the sequences to come."""
        self._text = [*prompt, *output]
        n = len(self._text)
        self._runs = copy_runs(self._text, len(prompt)) if self._copy_only else [n - i for i in range(n)]

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        return [self._draft(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, seq: Sequence, limit: Limits) -> Draft:
        at = len(seq.tokens)
        if at >= len(self._text) or seq.tokens != self._text[:at]:
            return EMPTY
        n = min(limit.n_nodes, limit.depth, self._runs[at])
        return chain(self._text[at : at + n]) if n > 0 else EMPTY

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to learn."""

    def forget(self, seq_id: int) -> None:
        """Nothing is kept by sequence."""

    def seconds(self, n_tokens: int) -> float:
        return 1e-6  # known, and nothing


class Certain(Acceptance):
    """Every draft token will be accepted: what a policy believes of an oracle."""

    def values(self, name: str, seq_id: int, draft: Draft) -> list[float]:
        return [1.0] * len(draft)

    def chain_values(self, name: str, seq_id: int, depth: int) -> list[float]:
        return [1.0] * depth


def copy_runs(text: ListLike[int], start: int) -> list[int]:
    """By position: the longest run of ``text`` from there that also follows an earlier token equal to the last one.

    Zeros before ``start`` (at least 1). A copy may read what it writes (a period goes on). Works backwards over the
    table of common prefixes of suffixes, one row at a time: O(len(text)) memory.
    """
    ids = np.asarray(text)
    n = len(ids)
    runs = [0] * n
    common = np.zeros(n + 1, np.int64)  # common[j]: equal tokens of text[j:] and text[at:]
    for at in range(n - 1, max(start, 1) - 1, -1):
        common[:n] = np.where(ids == ids[at], 1 + common[1:], 0)
        follows = ids[: at - 1] == ids[at - 1]  # j = 1 … at - 1 with text[j - 1] == text[at - 1]
        runs[at] = int(np.max(common[1:at][follows], initial=0))
    return runs
