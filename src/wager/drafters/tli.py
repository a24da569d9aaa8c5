"""A model of another vocabulary drafts the tokens that both have (token-level intersection, the TLI of Timor et al.
2502.05202).

It draws among the common pieces only: what else it might say has probability 0 before options are applied and the rest
is normalised, so a draft's laws are those that it was drawn from. Ids are the target's from there on, so coupled drafts
race on the target's own noise. Target tokens that it does not have it reads as its tokenizer cuts their text.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from wager.drafters.base import DrafterInfo
from wager.drafters.branches import State
from wager.drafters.drawing import Drawing
from wager.drafters.model import ModelDrafter, opened
from wager.drafters.vocabularies import Common, Heard, Speller, check_path, common, folder_of
from wager.sampling import Scores, is_plain
from wager.text import Text
from wager.types import F32, I64, Batch, Draft, Forward, Limits, Model, RowsRule, Sampling, Sequence

_COUPLED = Drawing()


class _Interpreter:
    """``types.Model`` that tells its logits for the target's ids, -inf where it does not have the piece.

    It is fed target ids where it has them, and ``n_target`` + its own ids for all else.
    """

    def __init__(self, model: Model, pieces: Common) -> None:
        self.model, self.pieces = model, pieces
        self.n_target = len(pieces.own)
        self._own: I64 = np.concatenate([pieces.own, np.arange(model.vocab_size)])
        self._targets = np.flatnonzero(pieces.own >= 0)
        self._columns = pieces.own[self._targets]
        self.kv_owner: object = None

    @property
    def vocab_size(self) -> int:
        return self.n_target

    @property
    def n_blocks(self) -> int:
        return self.model.n_blocks

    @property
    def block_size(self) -> int:
        return self.model.block_size

    @property
    def context_length(self) -> int:
        return self.model.context_length

    @property
    def max_rows(self) -> int:
        return self.model.max_rows

    @property
    def rows_rule(self) -> RowsRule:
        return self.model.rows_rule

    @property
    def tree_masks(self) -> bool:
        return self.model.tree_masks

    @property
    def masks_are_exact(self) -> bool:
        return self.model.masks_are_exact

    def width_for(self, n_rows: int) -> int:
        return self.model.width_for(n_rows)

    def copy(self, src_blocks: ListLike[int], dst_blocks: ListLike[int]) -> None:
        self.model.copy(src_blocks, dst_blocks)

    def forward(self, batch: Batch) -> Forward:
        own = np.maximum(self._own[batch.tokens], 0)  # padding rows may hold what is not common
        logits = self.model.forward(replace(batch, tokens=own)).logits
        told = np.full((len(logits), self.n_target), -np.inf, np.float32)
        told[:, self._targets] = logits[:, self._columns]
        return Forward(told)


@dataclass(slots=True, eq=False)
class _Told:
    """What the drafter was told of a sequence: ``tokens`` as the interpreter takes them; ``seq`` is the target's."""

    heard: Heard
    seq: Sequence
    tokens: list[int] = field(default_factory=list)


class TokenLevel(ModelDrafter):
    """Drafts with ``model`` the tokens that its vocabulary ``own`` shares with the ``target``'s.

    Everything else is as in ``ModelDrafter``. Drafts nothing while a character that the drafter must be told as text is
    incomplete, or where options leave none of the common tokens. Raises VocabularyError where there are none.
    """

    def __init__(
        self,
        model: Model,
        *,
        own: Text,
        target: Text,
        n_valid_ids: int,
        eos_ids: frozenset[int] = frozenset(),
        drawing: Drawing = _COUPLED,
        name: str = "tli",
    ) -> None:
        n_own = min(own.vocab_size, model.vocab_size)
        self._interpreter = _Interpreter(model, common(target, own, n_target=n_valid_ids, n_own=n_own))
        super().__init__(self._interpreter, n_valid_ids=n_valid_ids, eos_ids=eos_ids, drawing=drawing, name=name)
        self._texts = own, target
        self._reader, self._writer = Speller(own), Speller(target)
        self._bos = [n_valid_ids + token for token in own.encode("")]
        self._told: dict[int, _Told] = {}

    @property
    def pieces(self) -> Common:
        """The common pieces."""
        return self._interpreter.pieces

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        told = [self._tell(seq) for seq in seqs]
        views = [
            # a target token is an output token: the noise goes by how many there are
            replace(seq, tokens=each.tokens, n_prompt=len(each.tokens) - seq.n_output, n_cached=0)
            for seq, each in zip(seqs, told, strict=True)
        ]
        waits = (each.heard.is_open or not each.tokens for each in told)
        return super().propose(views, [Limits(0, 0) if wait else x for wait, x in zip(waits, limits, strict=True)])

    def forget(self, seq_id: int) -> None:
        super().forget(seq_id)
        self._told.pop(seq_id, None)

    def redrawn(self, drawing: Drawing) -> TokenLevel:
        own, target = self._texts
        return TokenLevel(
            self._interpreter.model,
            own=own,
            target=target,
            n_valid_ids=self._n_valid,
            eos_ids=self._eos_ids,
            drawing=drawing,
            name=self.name,
        )

    # -- what the drafter reads ------------------------------------------------------------------------------------

    def _tell(self, seq: Sequence) -> _Told:
        """Tell what is new of a sequence: common tokens as they are, others as text once it is complete."""
        told = self._told.get(seq.id)
        if told is None or told.heard.n_tokens > len(seq.tokens):
            told = self._told[seq.id] = _Told(Heard(self._writer), seq, list(self._bos))
        told.seq = seq
        for token in seq.tokens[told.heard.n_tokens :]:
            mine = not told.heard.is_open and token < self._n_valid and self.pieces.own[token] >= 0
            if mine:
                told.heard.skip()
                told.tokens.append(token)
            else:
                told.tokens += self._spelled(told.heard.push([token]))
        return told

    def _spelled(self, said: str) -> list[int]:
        """The drafter's own ids of a text, as the interpreter takes them."""
        return [self._n_valid + token for token in self._reader.go_on(said)] if said else []

    # -- what differs in drawing -----------------------------------------------------------------------------------

    def _keep_trunk(self, seq: Sequence) -> None:
        super()._keep_trunk(seq)
        self._states[seq.id].round = len(self._told[seq.id].seq.tokens)

    def _extend(self, state: State, index: int, level: int, logits: F32) -> list[tuple[int, int]]:
        seq = state.branches[index].seq
        if self._scores(seq, replace(seq.sampling, temperature=0.0), logits).max() == -np.inf:
            state.branches[index].ended = True
            return []
        return super()._extend(state, index, level, logits)

    def _scores(self, seq: Sequence, sampling: Sampling, logits: F32) -> Scores:
        """Penalties go by what the target has said, not by how the drafter reads it."""
        if not is_plain(sampling):
            truth, start = self._told[seq.id].seq, self._states[seq.id].start
            seq = replace(seq, tokens=[*truth.tokens, *seq.tokens[start:]], n_prompt=truth.n_prompt)
        with np.errstate(invalid="ignore"):  # a token that it does not have may be forced: -inf + inf
            return super()._scores(seq, sampling, logits)


def make(argument: str, target: Any) -> TokenLevel:
    """For the registry: load the model at ``argument``, whatever its vocabulary."""
    ir_dir = folder_of("tli", argument, target)
    return TokenLevel(
        opened(ir_dir, target),
        own=Text(ir_dir),
        target=target.text,
        n_valid_ids=target.n_valid_ids,
        eos_ids=target.text.eos_ids,
        drawing=target.drawing,
    )


DRAFTER = DrafterInfo(
    make=make,
    family="model",
    argument="PATH",
    drafts="with a model of another vocabulary, the tokens that both have",
    needs="that model",
    costs="a forward of it per token",
    source="TLI, Timor et al. 2502.05202",
    check=partial(check_path, "tli"),
)
