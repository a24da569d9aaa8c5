"""A second model of the same vocabulary drafts over its own paged cache, drawing in the way that ``Drawing`` says.

Coupled drafts race on the noise that the target will use: both choose the same token with probability between
(1 - TV) / (1 + TV) and 1 - TV (Daliri et al. 2408.07978), and the k earliest arrivals of a race are k children. The
form of a sampled draft (i.i.d., without replacement) depends on limits, memory and the past, never on what is drawn:
only then are the rules that rely on its laws lossless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ListLike
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wager.cache import BlockPool
from wager.commit import terminal_ids
from wager.drafters.base import DrafterInfo
from wager.drafters.branches import Branch, Child, State, agreement, draft_of, further, parted
from wager.drafters.drawing import (
    Drawing,
    belief,
    draw_iid,
    draw_without_replacement,
    law_of,
    shape_of,
    topped_up,
    trunk_of,
)
from wager.drafters.vocabularies import check_path, folder_of
from wager.errors import ConstraintError, VocabularyError
from wager.pack import Feed, Slots, extra_rows, n_pad_blocks, n_read, pack
from wager.sampling import Noise, Scores, arrivals, scores
from wager.types import EMPTY, F32, Draft, DraftKind, Law, Limits, Model, Sampling, Seen, Sequence, Verdict

_COUPLED = Drawing()
_BRIEF = 2  # tokens of a branch whose reading takes about as long as that of one


class ModelDrafter:
    """Drafts with ``model`` (``types.Model``) for a target with ``n_valid_ids`` tokens, in the way of ``drawing``.

    Drafts nothing where the draft model's context or K/V memory ends. Deterministic in ``seq.tokens``, seed and sample.
    Raises VocabularyError where the draft model does not know every token of the target.
    """

    steered = True

    def __init__(
        self,
        model: Model,
        *,
        n_valid_ids: int,
        eos_ids: frozenset[int] = frozenset(),
        drawing: Drawing = _COUPLED,
        name: str = "model",
    ) -> None:
        if model.vocab_size < n_valid_ids:
            raise VocabularyError(
                f"the draft model ends at token `{model.vocab_size - 1}` but the target has {n_valid_ids}: "
                "choose a drafter with the target's vocabulary"
            )
        self.name = name
        self.drawing = drawing
        self.kind: DraftKind = drawing.kind
        self.has_laws = drawing.has_laws
        self._model = model
        self._n_valid = n_valid_ids
        self._eos_ids = eos_ids
        n_pad = n_pad_blocks(model, model.max_rows)
        self._pad_blocks = range(n_pad)
        self._pool = BlockPool(model.n_blocks - n_pad, model.block_size, first=n_pad)
        self._states: dict[int, State] = {}
        self._forward_s = 0.0  # running seconds of a one-token forward

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        asked = {
            seq.id: replace(limit, depth=min(limit.depth, limit.n_nodes))
            for seq, limit in zip(seqs, limits, strict=True)
            if min(limit.depth, limit.n_nodes) > 0
        }
        for seq_id, state in self._states.items():
            if seq_id not in asked:
                self._drop_forks(state)  # what they hold tells what was drawn, and forms depend on what is free
        states = self._catch_up([seq for seq in seqs if seq.id in asked], asked)
        self._grow(list(states.values()))
        return [self._draft(states[seq.id]) if seq.id in states else EMPTY for seq in seqs]

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to do: the next ``propose`` keeps the branch that the committed tokens agree with."""

    def forget(self, seq_id: int) -> None:
        state = self._states.pop(seq_id, None)
        if state is not None:
            self._drop_forks(state)
            self._pool.close(seq_id)

    def redrawn(self, drawing: Drawing) -> ModelDrafter:
        """A new drafter over the same model. It takes over the K/V memory: from then on this one must not draft."""
        return ModelDrafter(
            self._model, n_valid_ids=self._n_valid, eos_ids=self._eos_ids, drawing=drawing, name=self.name
        )

    def seconds(self, n_tokens: int) -> float:
        """Expected seconds of drafting ``n_tokens`` one after the other for one sequence."""
        return n_tokens * self._forward_s

    def check(self) -> None:
        """Raise AssertionError unless the block bookkeeping is whole."""
        self._pool.check([b.fork for s in self._states.values() for b in s.branches if b.fork is not None])

    def _drop_forks(self, state: State) -> None:
        for branch in state.branches[1:]:
            assert branch.fork is not None
            self._pool.drop(branch.fork)
        del state.branches[1:]

    # -- before anything is drawn ----------------------------------------------------------------------------------

    def _catch_up(self, seqs: ListLike[Sequence], asked: dict[int, Limits]) -> dict[int, State]:
        """Trunks with all committed tokens and room for the drafts, whose forms are settled here; without those where
        context or memory ends.
        """
        for seq in seqs:
            self._keep_trunk(seq)
        ready: dict[int, State] = {}
        for seq in seqs:
            n_rows = len(seq.tokens) + asked[seq.id].depth + 1
            if n_rows > self._model.context_length or not self._pool.reserve(seq.id, n_rows):
                self.forget(seq.id)
            else:
                ready[seq.id] = self._states[seq.id]
        n_free = self._pool.n_free
        for seq_id, state in ready.items():
            limit, seq = asked[seq_id], state.branches[0].seq
            # how many a constraint lets draw without replacement differs from context to context
            greedy = seq.sampling.temperature == 0 or seq.guide is not None
            # as if all branches parted as early as they can: a sampled draft must have its form whatever is drawn
            n_blocks = self._pool.blocks_for_fork(
                state.start + trunk_of(self.drawing, limit), state.start + limit.depth + 1
            )
            n_leaves = min(limit.n_nodes // limit.depth, 1 + n_free // n_blocks)
            state.shape = shape_of(self.drawing, limit, n_leaves=n_leaves, greedy=greedy)
            state.stop = limit.stop
            one_path = state.shape.n_leaves == 1
            assert limit.stop is None or one_path or not self.drawing.sampled, "paths that stop by what others hold"
            state.branches[0].members = tuple(range(state.shape.n_leaves))
            n_free -= (state.shape.n_leaves - 1) * n_blocks
        return ready

    def _keep_trunk(self, seq: Sequence) -> None:
        """Keep of the last draft what the committed tokens confirm."""
        state = self._states.get(seq.id)
        if state is None:
            state = self._states[seq.id] = State(Noise(seq.seed, seq.sample))
            n_cached = self._pool.open(seq.id, seq.tokens, n_read=n_read(seq, self._model.rows_rule))
        else:
            agreed = [agreement(branch.seq, seq.tokens) for branch in state.branches]
            best = int(np.argmax(agreed))
            n_cached = min(agreed[best], len(seq.tokens) - 1)
            for i, branch in enumerate(state.branches):
                if branch.fork is not None and i == best:
                    self._pool.adopt(seq.id, branch.fork)
                elif branch.fork is not None:
                    self._pool.drop(branch.fork)
            self._pool.keep(seq.id, seq.tokens, n_cached)
        state.branches = [Branch(replace(seq, tokens=list(seq.tokens), n_cached=n_cached))]
        state.start = state.round = len(seq.tokens)

    # -- drawing, level by level -----------------------------------------------------------------------------------

    def _grow(self, states: ListLike[State]) -> None:
        """Read what is not cached, draw children after it, and so on for every branch until its depth."""
        level = 0
        while growing := [place for state in states for place in self._growing(state, level)]:
            start = time.perf_counter()
            briefly = all(len(b.seq.tokens) - b.seq.n_cached <= _BRIEF for _, _, b in growing)  # no prompt is read
            at = {id(branch): (state, index) for state, index, branch in growing}
            copies: list[tuple[int, int]] = []
            for branch, logits in self._read([branch for _, _, branch in growing]):
                copies += self._extend(*at[id(branch)], level, logits)
            for state in {id(state): state for state, _, _ in growing}.values():
                self._end(state, level)
            if copies:
                self._model.copy([src for src, _ in copies], [dst for _, dst in copies])
            if briefly:
                self._clock((time.perf_counter() - start) / len({id(state) for state, _, _ in growing}))
            level += 1

    def _growing(self, state: State, level: int) -> list[tuple[State, int, Branch]]:
        """Branches that go on at a level, with their index. Sampled ones do past an end of text: the commit cuts."""
        if level >= state.shape.depth:
            return []
        ends = terminal_ids(state.branches[0].seq.sampling, self._eos_ids)
        return [
            (state, i, branch)
            for i, branch in enumerate(state.branches)
            if not branch.ended and (level == 0 or self.drawing.sampled or branch.seq.tokens[-1] not in ends)
        ]

    def _end(self, state: State, level: int) -> None:
        """End the branches that go no further, once all of a level are drawn."""
        if state.stop is not None:
            grown = [branch for branch in state.branches if len(branch.drawn.probs) == level + 1]
            for branch, ends in zip(grown, state.stop.after([branch.drawn for branch in grown]), strict=True):
                branch.ended = ends

    def _clock(self, seconds: float) -> None:
        self._forward_s = seconds if not self._forward_s else 0.9 * self._forward_s + 0.1 * seconds

    def _read(self, branches: ListLike[Branch]) -> Iterator[tuple[Branch, F32]]:
        """Feed what is not cached; each branch with the logits (V,) after it, to be used before the next is taken."""
        pending = list(branches)
        while pending:
            logits = self._forward(pending)
            yield from ((branch, logits[id(branch)]) for branch in pending if id(branch) in logits)
            pending = [branch for branch in pending if id(branch) not in logits]

    def _forward(self, branches: ListLike[Branch]) -> dict[int, F32]:
        """Feed each branch's next uncached tokens; logits (V,) after the branches that are all fed then."""
        feeds, slots, fed = [], [], []
        n_left, rule = self._model.max_rows, self._model.rows_rule
        for branch in branches:
            seq = branch.seq
            n = min(len(seq.tokens) - seq.n_cached, n_left - 1)
            if n < 1:
                break
            feeds.append(Feed(seq, seq.n_cached + n, rule=rule))
            slots.append(Slots(branch.fork.table if branch.fork is not None else self._pool.table(seq.id)))
            fed.append(branch)
            n_left -= n + extra_rows(seq, n, 0, rule)
        packed = pack(
            feeds,
            slots,
            width_for=self._model.width_for,
            pad_blocks=self._pad_blocks,
            block_size=self._model.block_size,
        )
        forward = self._model.forward(packed.batch)
        for branch, feed in zip(fed, feeds, strict=True):
            branch.seq.n_cached = feed.stop
        return {
            id(b): forward.logits[i[0], : self._n_valid] for b, i in zip(fed, packed.rows, strict=True) if i is not None
        }

    def _extend(self, state: State, index: int, level: int, logits: F32) -> list[tuple[int, int]]:
        """Draw the children of a branch: it goes on to the first, forks to the others. Returns the block copies due."""
        branch = state.branches[index]
        seq, laws, drawn, seen = branch.seq, branch.laws, branch.drawn, None
        if state.stop is not None:
            seen = belief(self._scores(seq, seq.sampling, logits), state.stop.n_top)
            branch.ended = state.stop.before(drawn, seen.entropy)
            if branch.ended:
                return []
        children, law = self._children(state, index, level, logits)
        if law is not None:
            laws = (*laws, law)
        copies: list[tuple[int, int]] = []
        for token, members in children[1:]:
            fork = self._pool.fork(seq.id, len(seq.tokens), state.n_rows, of=branch.fork)
            assert fork is not None, "blocks for every branch were counted before"
            copies += fork.copies
            other = replace(seq, tokens=[*seq.tokens, token])
            state.branches.append(Branch(other, fork, laws, members, further(drawn, seen, token)))
        token, branch.members = children[0]
        seq.tokens.append(token)
        branch.laws, branch.drawn = laws, further(drawn, seen, token)
        return copies

    def _children(self, state: State, index: int, level: int, logits: F32) -> tuple[list[Child], Law | None]:
        """What is drawn after a branch, in draw order; and the law, where drafts carry them."""
        branch, k = state.branches[index], state.shape.n_children(level)
        seq = branch.seq
        x = self._scores(seq, seq.sampling, logits)
        law = self._law(seq, x, logits, k) if self.has_laws else None
        if law is not None and self.kind == "iid":
            if level >= state.shape.trunk:
                return parted(draw_iid(law, state.noise, state.round, branch.members, level), branch.members), law
            tokens = draw_iid(law, state.noise, state.round, [0], level)
        elif law is not None and self.kind == "without_replacement":
            tokens = draw_without_replacement(law, state.noise, state.round, index, level, k)
        else:
            some = x if law is None else _within(law, x)
            temperature = 0.0 if self.kind == "deterministic" else seq.sampling.temperature
            tokens = [int(token) for token in arrivals(some, state.noise, seq.n_output, temperature, k)]
        return [(token, branch.members) for token in tokens], law

    def _law(self, seq: Sequence, x: Scores, logits: F32, k: int) -> Law:
        """The law after a branch, long enough for ``k`` children that differ."""
        law = law_of(x, seq.sampling.temperature, self.drawing.n_ids)
        if self.kind == "iid" or len(law.ids) >= k:
            return law
        return topped_up(law, self._scores(seq, replace(seq.sampling, temperature=0.0), logits), k)

    def _scores(self, seq: Sequence, sampling: Sampling, logits: F32) -> Scores:
        banned = terminal_ids(sampling, self._eos_ids)
        given = partial(scores, logits, sampling, tokens=seq.tokens, n_prompt=seq.n_prompt, banned=banned)
        if seq.guide is None:
            return given()
        try:
            return given(allowed=seq.guide.allowed(seq.output))
        except ConstraintError:  # that is the target's to say; what is drafted here does not matter
            return given()

    def _draft(self, state: State) -> Draft:
        return draft_of(state, self.kind, has_laws=self.has_laws)


def _within(law: Law, x: Scores) -> Scores:
    """The scores (V,) of the law's ids alone."""
    some = np.full(len(x), -np.inf)
    some[law.ids] = x[law.ids]
    return some


def make(argument: str, target: Any) -> ModelDrafter:
    """For the registry: load the model at ``argument``."""
    return loaded("model", same_vocabulary("model", argument, target), target)


def same_vocabulary(name: str, argument: str, target: Any) -> Path:
    """The folder of the model ``argument``, for drafter ``name``. Raises VocabularyError where tokens differ."""
    from wager.text import Text, compare_vocabularies

    ir_dir = folder_of(name, argument, target)
    try:
        compare_vocabularies(target.text, Text(ir_dir))
    except VocabularyError as error:
        raise VocabularyError(f"{error}, or give tli:{argument} or uag:{argument}, which take any") from error
    return ir_dir


def loaded(name: str, ir_dir: Path, target: Any, *, prepare: Callable[[Any], object] | None = None) -> ModelDrafter:
    """A drafter over the model of a folder, whose graph ``prepare`` may change before it is compiled."""
    return ModelDrafter(
        opened(ir_dir, target, prepare=prepare),
        n_valid_ids=target.n_valid_ids,
        eos_ids=target.text.eos_ids,
        drawing=target.drawing,
        name=name,
    )


def opened(ir_dir: Path, target: Any, *, prepare: Callable[[Any], object] | None = None) -> Model:
    """The model of a folder, to draft with."""
    from wager.models.openvino import load_model

    model = load_model(ir_dir, profile=target.profile, threads=target.threads, prepare=prepare)
    model.prepare(1)
    model.rows_rule = "any"  # a draft needs no identity, and one row is the cheapest
    return model


DRAFTER = DrafterInfo(
    make=make,
    family="model",
    argument="PATH",
    drafts="with another model of the same vocabulary",
    needs="that model",
    costs="a forward of it per token",
    source="Leviathan et al. 2211.17192; coupled draws, Daliri et al. 2408.07978",
    check=partial(check_path, "model"),
)
