"""A second model of the same vocabulary drafts with the target's noise, over its own paged cache.

Drawing with the noise that the target will use makes both choose the same token with probability between
(1 - TV) / (1 + TV) and 1 - TV (Daliri et al. 2408.07978). The k earliest arrivals of the race at the root start k
branches of a tree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wager.cache import BlockPool, Fork
from wager.commit import terminal_ids
from wager.errors import OptionError, VocabularyError
from wager.pack import Feed, Slots, extra_rows, n_pad_blocks, n_read, pack
from wager.sampling import Noise, Scores, arrivals, scores
from wager.types import EMPTY, F32, Draft, DraftKind, Limits, Model, Sequence, Verdict


@dataclass(slots=True, eq=False)
class _Branch:
    """A continuation being drafted: ``seq.tokens`` is committed tokens and its nodes, cached up to ``seq.n_cached``."""

    seq: Sequence
    fork: Fork | None = None


@dataclass(slots=True, eq=False)
class _State:
    """What the draft model's cache holds for one target sequence: a trunk table and the branches of the last draft."""

    noise: Noise
    branches: list[_Branch] = field(default_factory=list)


class ModelDrafter:
    """Drafts with ``model`` (``types.Model``) for a target with ``n_valid_ids`` tokens.

    Drafts nothing where the draft model's context or K/V memory ends. Deterministic in ``seq.tokens``, seed and sample.
    Raises VocabularyError where the draft model does not know every token of the target.
    """

    name = "model"
    kind: DraftKind = "coupled"
    has_laws = False

    def __init__(self, model: Model, *, n_valid_ids: int, eos_ids: frozenset[int] = frozenset()) -> None:
        if model.vocab_size < n_valid_ids:
            raise VocabularyError(
                f"the draft model ends at token `{model.vocab_size - 1}` but the target has {n_valid_ids}: "
                "choose a drafter with the target's vocabulary"
            )
        self._model = model
        self._n_valid = n_valid_ids
        self._eos_ids = eos_ids
        n_pad = n_pad_blocks(model, model.max_rows)
        self._pad_blocks = range(n_pad)
        self._pool = BlockPool(model.n_blocks - n_pad, model.block_size, first=n_pad)
        self._states: dict[int, _State] = {}
        self._forward_s = 0.0  # running seconds of a one-token forward

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        asked = {
            seq.id: replace(limit, depth=min(limit.depth, limit.n_nodes))
            for seq, limit in zip(seqs, limits, strict=True)
            if min(limit.depth, limit.n_nodes) > 0
        }
        trunks = [
            trunk for seq in seqs if seq.id in asked and (trunk := self._catch_up(seq, asked[seq.id])) is not None
        ]
        first = self._read(trunks, {t.seq.id: asked[t.seq.id].width for t in trunks})
        growing: list[_Branch] = []
        for trunk in trunks:
            limit = asked[trunk.seq.id]
            width = max(1, min(limit.width, limit.n_nodes // limit.depth))
            growing += self._split(trunk, first[trunk.seq.id][:width], limit.depth)
        self._grow(growing, asked)
        return [self._draft(seq, asked) for seq in seqs]

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Nothing to do: the next ``propose`` keeps the branch that the committed tokens agree with."""

    def forget(self, seq_id: int) -> None:
        state = self._states.pop(seq_id, None)
        if state is not None:
            for branch in state.branches[1:]:
                assert branch.fork is not None
                self._pool.drop(branch.fork)
            self._pool.close(seq_id)

    def seconds(self, n_tokens: int) -> float:
        """Expected seconds of drafting ``n_tokens`` one after the other for one sequence."""
        return n_tokens * self._forward_s

    def check(self) -> None:
        """Raise AssertionError unless the block bookkeeping is whole."""
        self._pool.check([b.fork for s in self._states.values() for b in s.branches if b.fork is not None])

    # -- inside --------------------------------------------------------------------------------------------------

    def _catch_up(self, seq: Sequence, limit: Limits) -> _Branch | None:
        """A trunk with all committed tokens and room for the draft; None where context or memory ends."""
        trunk = self._trunk(seq)
        n_rows = len(seq.tokens) + limit.depth + 1
        if n_rows > self._model.context_length or not self._pool.reserve(seq.id, n_rows):
            self.forget(seq.id)
            return None
        return trunk

    def _trunk(self, seq: Sequence) -> _Branch:
        """Keep of the last draft what the committed tokens confirm."""
        state = self._states.get(seq.id)
        if state is None:
            state = self._states[seq.id] = _State(Noise(seq.seed, seq.sample))
            n_cached = self._pool.open(seq.id, seq.tokens, n_read=n_read(seq, self._model.rows_rule))
        else:
            agreed = [_agreement(branch.seq, seq.tokens) for branch in state.branches]
            best = int(np.argmax(agreed))
            n_cached = min(agreed[best], len(seq.tokens) - 1)
            for i, branch in enumerate(state.branches):
                if branch.fork is not None and i == best:
                    self._pool.adopt(seq.id, branch.fork)
                elif branch.fork is not None:
                    self._pool.drop(branch.fork)
            self._pool.keep(seq.id, seq.tokens, n_cached)
        state.branches = [_Branch(replace(seq, tokens=list(seq.tokens), n_cached=n_cached))]
        return state.branches[0]

    def _read(self, branches: ListLike[_Branch], n_wanted: dict[int, int]) -> dict[int, list[int]]:
        """Feed what is not cached, and return per sequence the tokens that arrive first after it."""
        pending, first = list(branches), {}
        while pending:
            logits = self._forward(pending)
            done = [b for b in pending if b.seq.n_cached == len(b.seq.tokens)]
            for branch in done:
                first[branch.seq.id] = self._arrivals(branch, logits[id(branch)], n_wanted[branch.seq.id])
            pending = [b for b in pending if b.seq.n_cached < len(b.seq.tokens)]
        return first

    def _split(self, trunk: _Branch, first_tokens: ListLike[int], depth: int) -> list[_Branch]:
        """One branch per first token; the trunk becomes the first, the others are forks (as many as memory allows)."""
        seq, state = trunk.seq, self._states[trunk.seq.id]
        for token in first_tokens[1:]:
            fork = self._pool.fork(seq.id, len(seq.tokens), len(seq.tokens) + depth + 1)
            if fork is None:
                break
            self._model.copy([src for src, _ in fork.copies], [dst for _, dst in fork.copies])
            state.branches.append(_Branch(replace(seq, tokens=[*seq.tokens, token]), fork))
        seq.tokens.append(first_tokens[0])
        return state.branches

    def _grow(self, branches: list[_Branch], asked: dict[int, Limits]) -> None:
        """Extend every branch by one token a forward until its depth."""
        n_committed = {b.seq.id: len(b.seq.tokens) - 1 for b in branches}
        while True:
            growing = [
                b
                for b in branches
                if len(b.seq.tokens) - n_committed[b.seq.id] < asked[b.seq.id].depth
                and b.seq.tokens[-1] not in terminal_ids(b.seq.sampling, self._eos_ids)
            ]
            if not growing:
                return
            start = time.perf_counter()
            per_forward = max(1, self._model.max_rows // 2)
            for i in range(0, len(growing), per_forward):
                part = growing[i : i + per_forward]
                logits = self._forward(part)
                for branch in part:
                    branch.seq.tokens += self._arrivals(branch, logits[id(branch)], 1)
            self._clock((time.perf_counter() - start) / len({b.seq.id for b in growing}))

    def _clock(self, seconds: float) -> None:
        self._forward_s = seconds if not self._forward_s else 0.9 * self._forward_s + 0.1 * seconds

    def _forward(self, branches: ListLike[_Branch]) -> dict[int, F32]:
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

    def _arrivals(self, branch: _Branch, logits: F32, k: int) -> list[int]:
        """The k tokens that arrive first in the race after a branch, with the target's noise and options."""
        seq = branch.seq
        banned = terminal_ids(seq.sampling, self._eos_ids)
        x: Scores = scores(logits, seq.sampling, tokens=seq.tokens, n_prompt=seq.n_prompt, banned=banned)
        noise, temperature = self._states[seq.id].noise, seq.sampling.temperature
        return [int(token) for token in arrivals(x, noise, seq.n_output, temperature, k)]

    def _draft(self, seq: Sequence, asked: dict[int, Limits]) -> Draft:
        state = self._states.get(seq.id)
        if seq.id not in asked or state is None:
            return EMPTY
        tokens: list[int] = []
        parents: list[int] = []
        for branch in state.branches:
            nodes = branch.seq.tokens[len(seq.tokens) :]
            parents += [-1, *range(len(tokens), len(tokens) + len(nodes) - 1)] if nodes else []
            tokens += nodes
        return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), None, "coupled")


def _agreement(cached: Sequence, tokens: ListLike[int]) -> int:
    """Rows of a branch's cache that the committed tokens confirm."""
    n = min(cached.n_cached, len(tokens))
    a, b = np.asarray(cached.tokens[:n]), np.asarray(tokens[:n])
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else n


def make(argument: str, target: Any) -> ModelDrafter:
    """For the registry: load the model at ``argument`` and compare its vocabulary with the target's."""
    from wager.models import catalog
    from wager.models.openvino import load_model
    from wager.text import Text, compare_vocabularies

    if not argument:
        raise OptionError("`drafter` is 'model': name the draft model, model:PATH")
    ir_dir = catalog.resolve(argument, progress=target.progress)
    compare_vocabularies(target.text, Text(ir_dir))
    model = load_model(ir_dir, profile=target.profile, threads=target.threads)
    model.rows_rule = "any"  # a draft needs no identity, and one row is the cheapest
    return ModelDrafter(model, n_valid_ids=target.n_valid_ids, eos_ids=target.text.eos_ids)
