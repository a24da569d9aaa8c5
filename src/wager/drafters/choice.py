"""Several drafters behind one engine, each sequence with the one that it is bound to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from dataclasses import replace

from wager.types import (
    EMPTY,
    Draft,
    Drafter,
    DraftKind,
    Limits,
    Priced,
    ReadsTarget,
    Seen,
    Sequence,
    TargetView,
    Verdict,
)


class Choice:
    """Hands each sequence to the drafter of ``parts`` that ``bind`` named for it, else to the first.

    For rules under which the text does not depend on drafts. ``source`` of a draft names the part, so that policies
    tell parts apart.
    """

    has_laws = False

    def __init__(self, parts: Mapping[str, Drafter]) -> None:
        assert parts, "no parts"
        self._parts, self._first = dict(parts), next(iter(parts))
        self._priced = {name: part for name, part in parts.items() if isinstance(part, Priced)}
        self._bound: dict[int, str] = {}
        self.name = self._parts[self._first].name
        self.kind: DraftKind = "coupled" if any(p.kind != "deterministic" for p in parts.values()) else "deterministic"

    def attach(self, view: TargetView) -> None:
        for part in self._parts.values():
            if isinstance(part, ReadsTarget):
                part.attach(view)

    def bind(self, seq_id: int, name: str) -> None:
        """Until it is forgotten, the sequence is drafted for by the part of this name."""
        assert name in self._parts, name
        self._bound[seq_id] = name

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        drafts = [EMPTY] * len(seqs)
        for name, mine in self._by_part(seqs).items():
            part = self._parts[name]
            proposed = part.propose([seqs[i] for i in mine], [limits[i] for i in mine])
            for i, draft in zip(mine, proposed, strict=True):
                drafts[i] = draft if draft.source or not len(draft) else replace(draft, source=part.name)
        return drafts

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Each part hears of its own sequences alone."""
        for name, mine in self._by_part(seqs).items():
            told = [seqs[i] for i in mine], [drafts[i] for i in mine], [verdicts[i] for i in mine]
            self._parts[name].observe(*told, [seen[i] for i in mine])

    def forget(self, seq_id: int) -> None:
        self._parts[self._bound.pop(seq_id, self._first)].forget(seq_id)

    def seconds(self, n_tokens: int) -> float:
        """Of the slowest part that drafts for somebody now: what is drafted beside it costs less."""
        return max(self._parts[name].seconds(n_tokens) for name in {*self._bound.values()} or {self._first})

    def prices(self, seq: Sequence, n_tokens: int) -> tuple[float, float]:
        """Of the part that drafts for this sequence."""
        name = self._bound.get(seq.id, self._first)
        priced = self._priced.get(name)
        return (self._parts[name].seconds(n_tokens), 0.0) if priced is None else priced.prices(seq, n_tokens)

    def explain(self, seq_id: int) -> str:
        """Who drafts for the sequence."""
        return self._bound.get(seq_id, self._first)

    def _by_part(self, seqs: ListLike[Sequence]) -> dict[str, list[int]]:
        """Indices of ``seqs``, by part."""
        found: dict[str, list[int]] = defaultdict(list)
        for i, seq in enumerate(seqs):
            found[self._bound.get(seq.id, self._first)].append(i)
        return found
