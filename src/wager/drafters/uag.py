"""A model of another vocabulary drafts text: it reads the text in its own tokens, and what it adds is cut into the
target's (string-level exact match, the UAG of Timor et al. 2502.05202).

Drafts are deterministic, its best guesses, without laws: ids say nothing about how likely their spelling was. Committed
ids are never changed; only the drafter's view of them is its own.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wager.drafters.base import DrafterInfo
from wager.drafters.growing import Growing
from wager.drafters.model import ModelDrafter, opened
from wager.drafters.vocabularies import Heard, Reading, Speller, check_path, complete, folder_of
from wager.pack import paths
from wager.text import Text
from wager.types import EMPTY, Draft, DraftKind, Limits, Sampling, Seen, Sequence, Verdict

_LOOK_BEHIND = 10  # target tokens before the draft that its text is cut together with
_SPELLING_S = 5e-4  # reading and writing text, a draft


@dataclass(slots=True, eq=False)
class _State:
    heard: Heard
    reading: Reading


class StringLevel:
    """Drafts with ``inner``, which drafts in the tokens of ``own``, for a target whose tokens are those of ``target``.

    ``inner`` draws deterministically. Drafts nothing while a character of the text is incomplete.
    """

    name = "uag"
    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(self, inner: ModelDrafter, *, own: Text, target: Text, n_valid_ids: int) -> None:
        assert inner.kind == "deterministic", inner.kind
        self._inner = inner
        self._reader, self._writer = Speller(own), Speller(target)
        self._n_valid = n_valid_ids
        self._states: dict[int, _State] = {}

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        told = [self._told(seq) for seq in seqs]
        inner = self._inner.propose(
            [seq or other for seq, other in zip(told, seqs, strict=True)],
            [
                Limits(0, 0) if seq is None else replace(limit, stop=None, trunk=None)
                for seq, limit in zip(told, limits, strict=True)
            ],
        )
        return [self._translated(*each) for each in zip(seqs, inner, limits, strict=True)]

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to do: the next ``propose`` reads what was committed."""

    def forget(self, seq_id: int) -> None:
        self._states.pop(seq_id, None)
        self._inner.forget(seq_id)

    def seconds(self, n_tokens: int) -> float:
        return self._inner.seconds(n_tokens) + (_SPELLING_S if n_tokens else 0.0)

    def check(self) -> None:
        """Raise AssertionError unless the block bookkeeping is whole."""
        self._inner.check()

    def _told(self, seq: Sequence) -> Sequence | None:
        """The sequence as the drafter reads it; None where there is nothing to go on from."""
        state = self._states.get(seq.id)
        if state is None or state.heard.n_tokens > len(seq.tokens):
            state = self._states[seq.id] = _State(Heard(self._writer), Reading(self._reader))
        state.reading.push(state.heard.push(seq.tokens[state.heard.n_tokens :]))
        ids = [] if state.heard.is_open else state.reading.ids()
        return Sequence(seq.id, ids, len(ids), Sampling(), seq.seed, seq.sample) if ids else None

    def _translated(self, seq: Sequence, inner: Draft, limit: Limits) -> Draft:
        """Every path of the drafter's own tokens as a path of the target's, within the limits."""
        if not len(inner):
            return EMPTY
        tree = Growing(limit)
        for path in paths(inner):
            said = complete(self._reader.said(inner.tokens[list(path)].tolist()))
            tree.follow(-1, self._spelled(seq.tokens, said))
        return tree.draft(0)

    def _spelled(self, tokens: ListLike[int], said: str) -> list[int]:
        """Target ids of what follows ``tokens``: cut together with the last of them, and those dropped again.

        Where no piece begins at the seam, the committed tokens stay what they are and the rest is cut alone.
        """
        behind = self._writer.said(tokens[-_LOOK_BEHIND:]).decode(errors="replace")
        start, ids = 0, self._writer.go_on(behind + said)
        goal = len(behind.encode())
        while goal > 0 and start < len(ids):
            goal -= len(self._writer.said([ids[start]]))
            start += 1
        ids = ids[start:] if goal == 0 else self._writer.go_on(said)
        return ids[: next((i for i, token in enumerate(ids) if token >= self._n_valid), len(ids))]


def make(argument: str, target: Any) -> StringLevel:
    """For the registry: load the model at ``argument``, whatever its vocabulary."""
    ir_dir = folder_of("uag", argument, target)
    own, model = Text(ir_dir), opened(ir_dir, target)
    drawing = replace(target.drawing, kind="deterministic", laws=False)
    inner = ModelDrafter(
        model, n_valid_ids=min(own.vocab_size, model.vocab_size), eos_ids=own.eos_ids, drawing=drawing, name="uag"
    )
    return StringLevel(inner, own=own, target=target.text, n_valid_ids=target.n_valid_ids)


DRAFTER = DrafterInfo(
    make=make,
    family="model",
    argument="PATH",
    drafts="with a model of another vocabulary, in text: what it adds is cut into the target's tokens",
    needs="that model",
    costs="a forward of it per token, and 0.5 ms",
    source="UAG, Timor et al. 2502.05202",
    check=partial(check_path, "uag"),
)
