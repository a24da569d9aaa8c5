"""What a model drafter keeps of continuations while it draws them, and the draft that they make."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

import numpy as np

from wager.cache import Fork
from wager.drafters.drawing import Belief, Shape
from wager.sampling import Noise
from wager.types import Draft, DraftKind, Drawn, Law, Sequence, Stop

Child = tuple[int, tuple[int, ...]]  # token, and the members that go on to it
_NOTHING = Drawn()


@dataclass(slots=True, eq=False)
class Branch:
    """A continuation being drafted: ``seq.tokens`` is committed tokens and its nodes, cached up to ``seq.n_cached``.

    ``laws``: those its nodes were drawn from. ``members``: the i.i.d. sequences that agree on all of it so far.
    ``ended``: nothing more is drawn after it. ``drawn`` is kept where the draft has a stop.
    """

    seq: Sequence
    fork: Fork | None = None
    laws: tuple[Law, ...] = ()
    members: tuple[int, ...] = (0,)
    drawn: Drawn = _NOTHING
    ended: bool = False


@dataclass(slots=True, eq=False)
class State:
    """What the draft model's cache holds for one target sequence: the branches of the last draft, the first of them on
    the sequence's own table.
    """

    noise: Noise
    branches: list[Branch] = field(default_factory=list)
    start: int = 0  # committed tokens when the last draft was drawn
    shape: Shape = field(default_factory=lambda: Shape(0, 0, 0, 1))
    stop: Stop | None = None
    round: int = 0  # the same as the target counts them, where that differs: the address of the round's noise

    def __post_init__(self) -> None:
        self.round = self.round or self.start

    @property
    def n_rows(self) -> int:
        """Rows that every branch needs."""
        return self.start + self.shape.depth + 1


def further(drawn: Drawn, belief: Belief | None, token: int) -> Drawn:
    """A path with one token more, drawn where the model had ``belief``."""
    if belief is None:
        return drawn
    return Drawn((*drawn.probs, belief.of(token)), (*drawn.entropies, belief.entropy))


def parted(tokens: ListLike[int], members: ListLike[int]) -> list[Child]:
    """Which members drew which token, in draw order of the tokens."""
    drawn: dict[int, tuple[int, ...]] = {}
    for token, member in zip(tokens, members, strict=True):
        drawn[token] = (*drawn.get(token, ()), member)
    return list(drawn.items())


def agreement(cached: Sequence, tokens: ListLike[int]) -> int:
    """Rows of a branch's cache that the committed tokens confirm."""
    n = min(cached.n_cached, len(tokens))
    a, b = np.asarray(cached.tokens[:n]), np.asarray(tokens[:n])
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else n


def draft_of(state: State, kind: DraftKind, *, has_laws: bool) -> Draft:
    """The branches as one draft, path after path; i.i.d. sequences share the trunk only."""
    branches = state.branches
    if kind == "iid":
        of = {k: branch for branch in branches for k in branch.members}
        branches = [of[k] for k in range(state.shape.n_leaves)]
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Law] = []
    probs: list[float] = []
    known: dict[tuple[int, int], int] = {}
    for branch in branches:
        node = -1
        for level, token in enumerate(branch.seq.tokens[state.start :]):
            shared = kind != "iid" or level < state.shape.trunk
            if not shared or (node, token) not in known:
                known[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
                laws += branch.laws[level : level + 1]
                probs += branch.drawn.probs[level : level + 1]
            node = known[node, token]
    return Draft(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        tuple(laws) if has_laws else None,
        kind,
        confidence=None if state.stop is None else np.array(probs, np.float32),
    )
