"""Several drafters from text side by side: ``a+b+c``. All are asked, and the draft that promises most is taken.

Drafts from text cost microseconds, so every part drafts every step, and afterwards every part can be told how far its
draft would have gone: what was committed is known whoever drafted. Each part is learnt about at full rate, and nothing
has to be tried out.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import replace
from typing import Any

from wager.drafters.base import drafter_named, make_drafter
from wager.errors import OptionError
from wager.pack import paths
from wager.types import EMPTY, Draft, Drafter, DraftKind, Limits, Seen, Sequence, Verdict

_DEPTHS = 8  # deeper nodes count as the last of these
_FORGET = 0.99  # weight of the past after each trial
_STRENGTH = 4.0  # a first guess weighs as much as this many trials
_FIRST = 0.3  # first guess at depth 1; a deeper one is guessed to be the depth above it


class Together:
    """Takes, for each sequence, the draft with the largest expected number of accepted tokens; ties go to the first.

    The expectation is learnt per part, strength of evidence (``Draft.support``) and depth, over all sequences, from
    what was committed. ``source`` of a draft names the part, so that policies tell parts apart.
    """

    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(self, parts: ListLike[Drafter]) -> None:
        assert parts, "no parts"
        assert all(part.kind == "deterministic" for part in parts), "parts must draft from text"
        self._parts = list(parts)
        self.name = "+".join(part.name for part in parts)
        self._rates: dict[tuple[int, int, int], tuple[float, float]] = {}  # part, support, depth -> hits, trials
        self._asked: dict[int, tuple[int, list[Draft]]] = {}  # sequence -> its tokens then, what each part drafted

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        by_part = [part.propose(seqs, limits) for part in self._parts]
        drafts = []
        for i, seq in enumerate(seqs):
            asked = [of_part[i] for of_part in by_part]
            self._asked[seq.id] = len(seq.tokens), asked
            values = [self._value(part, draft) for part, draft in enumerate(asked)]
            best = max(range(len(asked)), key=lambda part: (values[part], -part))
            drafts.append(replace(asked[best], source=self._parts[best].name) if len(asked[best]) else EMPTY)
        return drafts

    def _value(self, part: int, draft: Draft) -> float:
        """Expected accepted tokens of the first branch of a draft."""
        value, chance = 0.0, 1.0
        rate = _FIRST
        for depth in range(len(paths(draft)[0])):
            rate = self._rate((part, _level(draft.support), min(depth, _DEPTHS - 1)), rate)
            chance *= rate
            value += chance
        return value

    def _rate(self, key: tuple[int, int, int], guess: float) -> float:
        hits, trials = self._rates.get(key, (0.0, 0.0))
        return (hits + _STRENGTH * guess) / (trials + _STRENGTH)

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        for part in self._parts:
            part.observe(seqs, drafts, verdicts, seen)
        for seq in seqs:
            n_tokens, asked = self._asked.pop(seq.id, (0, []))
            for number, draft in enumerate(asked):
                self._learn(number, draft, seq.tokens[n_tokens:])

    def _learn(self, part: int, draft: Draft, truth: ListLike[int]) -> None:
        """Count the first branch as far as it was right, and the place where it was not."""
        for depth, (node, token) in enumerate(zip(paths(draft)[0], truth, strict=False)):
            hit = int(draft.tokens[node]) == token
            key = (part, _level(draft.support), min(depth, _DEPTHS - 1))
            hits, trials = self._rates.get(key, (0.0, 0.0))
            self._rates[key] = hits * _FORGET + hit, trials * _FORGET + 1
            if not hit:
                return

    def forget(self, seq_id: int) -> None:
        self._asked.pop(seq_id, None)
        for part in self._parts:
            part.forget(seq_id)

    def seconds(self, n_tokens: int) -> float:
        return sum(part.seconds(n_tokens) for part in self._parts)


def _level(support: int) -> int:
    """Supports that are counted together: 0, 1, 2, 3–4, 5–8, more."""
    return min((support - 1).bit_length() + 1, 5) if support > 0 else 0


def make(spec: str, target: Any) -> Together:
    """For the registry: the parts between the plus signs."""
    check(spec)
    return Together([make_drafter(part, target) for part in spec.split("+")])


def check(spec: str) -> None:
    """Raises ``OptionError`` for a part that is there twice, that has its own costs, or that is given alone."""
    known = set()
    for part in spec.split("+"):
        name = part.partition(":")[0]
        info = drafter_named(name)
        if info.family != "text":
            raise OptionError(f"`drafter` is {spec!r}: {part!r} runs a model, only drafters from text go together")
        if info.alone:
            raise OptionError(f"`drafter` is {spec!r}: {part!r} weighs its evidence by itself, give it alone")
        drafts_from = part if info.argument else name  # two stores are two drafters
        if drafts_from in known:
            raise OptionError(f"`drafter` is {spec!r}: {drafts_from!r} is in it twice, once is enough")
        known.add(drafts_from)
