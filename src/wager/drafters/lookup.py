"""Draft what followed the last time: copy the continuation of the longest repeated suffix of prompt + output."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Any

from wager.drafters.base import DrafterInfo, refuse_argument
from wager.drafters.suffix_automaton import SuffixAutomaton
from wager.types import EMPTY, Draft, DraftKind, Limits, Seen, Sequence, Verdict, chain


class Lookup:
    """Drafts from the sequence's own text, one suffix automaton a sequence, fed with committed tokens only.

    Drafts nothing for a match shorter than ``min_match``, else at most 1 + ``growth`` * match tokens; the match is the
    draft's ``support``. One matching token is enough by default: it is right one time in four, and a single draft
    token is free, because every sequence feeds two rows anyway; the policy decides about more.
    """

    name = "lookup"
    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(self, *, min_match: int = 1, growth: int = 2) -> None:
        assert min_match >= 1, min_match
        assert growth >= 0, growth
        self._min_match = min_match
        self._growth = growth
        self._automata: dict[int, SuffixAutomaton] = {}

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        return [self._draft(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, seq: Sequence, limit: Limits) -> Draft:
        automaton = self._automaton(seq)
        n = min(limit.n_nodes, limit.depth, 1 + self._growth * automaton.match)
        if automaton.match < self._min_match or n <= 0:
            return EMPTY
        # Past the end of the text the copy reads itself: a period goes on as a period.
        source = seq.tokens[automaton.match_end : automaton.match_end + n]
        tokens = (source * -(-n // len(source)))[:n]
        return chain(tokens, support=automaton.match)

    def _automaton(self, seq: Sequence) -> SuffixAutomaton:
        automaton = self._automata.get(seq.id)
        if automaton is None or automaton.n_tokens > len(seq.tokens):
            automaton = self._automata[seq.id] = SuffixAutomaton()
        automaton.extend(seq.tokens[automaton.n_tokens :])
        return automaton

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to learn: the next ``propose`` catches up with the committed tokens."""

    def forget(self, seq_id: int) -> None:
        self._automata.pop(seq_id, None)

    def seconds(self, n_tokens: int) -> float:
        return 2e-5 if n_tokens else 0.0


def make(argument: str, target: Any) -> Lookup:
    """For the registry; the target does not matter."""
    refuse_argument("lookup", argument)
    return Lookup()


DRAFTER = DrafterInfo(
    make=make,
    drafts="what followed the longest suffix of prompt and answer that occurred before",
    costs="20 µs",
    source="SAM-Decoding 2411.10666; prompt look-up, Saxena 2023",
    trees=False,
    needs_target=False,
)
