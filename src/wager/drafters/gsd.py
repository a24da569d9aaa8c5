"""A tree drafted as a graph: a branch that comes to words which stand elsewhere in the draft goes on as they do.

Graph-structured speculative decoding (2407.16207): alternatives often differ in a word or two and then say the same.
Where the last ``repeat`` + 1 tokens of a branch are those of another branch, the draft model reads no more of it; what
follows there is taken over, although it was drawn in another context. That is a guess like any other: drafts of this
kind carry no laws, and rules that need none verify them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence as ListLike
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wager.drafters.base import DrafterInfo
from wager.drafters.branches import State
from wager.drafters.drawing import Drawing
from wager.drafters.growing import Growing
from wager.drafters.model import ModelDrafter, opened, same_vocabulary
from wager.drafters.vocabularies import check_path
from wager.types import Draft, DraftKind, Limits, Model, Sequence

REPEAT = 1  # tokens before the last one that have to agree too
_Path = tuple[int, ...]  # the tokens from the last committed one to a node


class GraphDrafter(ModelDrafter):
    """A ``ModelDrafter`` whose branches are linked where ``repeat`` + 1 tokens come again off their own path; -1 links
    nothing.

    Never reads more than the tree would. The draft is unrolled to a tree within its limits: first what was drawn, then,
    level by level, what links lead to. Draws with the target's noise where asked for, else the likeliest tokens.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_valid_ids: int,
        eos_ids: frozenset[int] = frozenset(),
        drawing: Drawing,
        name: str = "gsd",
        repeat: int = REPEAT,
    ) -> None:
        kind: DraftKind = "coupled" if drawing.kind == "coupled" else "deterministic"
        drawing = replace(drawing, kind=kind, laws=False)
        super().__init__(model, n_valid_ids=n_valid_ids, eos_ids=eos_ids, drawing=drawing, name=name)
        self._repeat = repeat
        self._limits: dict[int, Limits] = {}  # of the sequences being drafted for
        self._known: dict[int, dict[_Path, list[_Path]]] = {}  # last tokens -> nodes that end in them
        self._links: dict[int, dict[_Path, _Path]] = {}  # last node of a branch -> the node that it goes on as

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        self._limits = {seq.id: limit for seq, limit in zip(seqs, limits, strict=True)}
        self._known = {seq.id: {} for seq in seqs}
        self._links = {seq.id: {} for seq in seqs}
        return super().propose(seqs, limits)

    def redrawn(self, drawing: Drawing) -> GraphDrafter:
        return GraphDrafter(
            self._model,
            n_valid_ids=self._n_valid,
            eos_ids=self._eos_ids,
            drawing=drawing,
            name=self.name,
            repeat=self._repeat,
        )

    def _end(self, state: State, level: int) -> None:
        """Link the branches whose last tokens are known already, once all of a level are drawn."""
        super()._end(state, level)
        seq_id = state.branches[0].seq.id
        known, links = self._known[seq_id], self._links[seq_id]
        for branch in state.branches if self._repeat >= 0 else ():
            path = tuple(branch.seq.tokens[state.start :])
            if len(path) <= level:
                continue
            words = tuple(branch.seq.tokens[-self._repeat - 1 :])
            other = next((node for node in known.get(words, ()) if path[: len(node)] != node), None)
            if other is None:
                known.setdefault(words, []).append(path)
            elif not branch.ended:
                links[path] = other
                branch.ended = True

    def _draft(self, state: State) -> Draft:
        seq_id = state.branches[0].seq.id
        if not self._links[seq_id]:
            return super()._draft(state)
        drawn: dict[_Path, float] = {}
        for branch in state.branches:
            path = tuple(branch.seq.tokens[state.start :])
            probs = branch.drawn.probs or (math.nan,) * len(path)
            drawn |= {path[: n + 1]: prob for n, prob in enumerate(probs)}
        draft = unrolled(list(drawn), self._links[seq_id], self._limits[seq_id])
        paths = _unlinked(draft, drawn, self._links[seq_id])
        confidence = np.array([drawn[path] for path in paths], np.float32) if state.stop is not None else None
        return replace(draft, kind=self.kind, confidence=confidence)


def unrolled(nodes: ListLike[_Path], links: dict[_Path, _Path], limit: Limits) -> Draft:
    """The tree within ``limit`` of a graph: its ``nodes`` by their paths, parents before children, and for some that
    have no children the nodes that they go on as, which are not linked themselves.

    Where links lead round and round the limits end it.
    """
    growing = Growing(limit)
    below: dict[_Path, list[_Path]] = {}
    at: dict[_Path, int] = {(): -1}
    for path in nodes:
        below.setdefault(path[:-1], []).append(path)
        node = growing.add(at[path[:-1]], path[-1])
        assert node is not None, "what was drawn lies within its limits"
        at[path] = node
    todo = deque((at[path], other) for path, other in links.items())
    while todo:
        node, other = todo.popleft()
        for child in below.get(other, ()):
            new = growing.add(node, child[-1])
            if new is not None:
                todo.append((new, links.get(child, child)))
    return growing.draft(0)


def _unlinked(draft: Draft, drawn: dict[_Path, float], links: dict[_Path, _Path]) -> list[_Path]:
    """(n,) of every node of an unrolled draft the path that it was drawn at."""
    found: list[_Path] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        above = found[parent] if parent >= 0 else ()
        found.append((*links.get(above, above), token))
        assert found[-1] in drawn, found[-1]
    return found


def make(argument: str, target: Any) -> GraphDrafter:
    """For the registry: load the model at ``argument``."""
    model = opened(same_vocabulary("gsd", argument, target), target)
    return GraphDrafter(
        model, n_valid_ids=target.n_valid_ids, eos_ids=target.text.eos_ids, drawing=target.drawing, name="gsd"
    )


DRAFTER = DrafterInfo(
    make=make,
    family="model",
    argument="PATH",
    drafts="with another model of the same vocabulary; a branch whose last 2 tokens stand in another one goes on as "
    "that does",
    needs="that model",
    costs="a forward of it per token, linked branches none",
    source="GSD, Gong et al. 2407.16207",
    check=partial(check_path, "gsd"),
)
