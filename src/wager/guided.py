"""What a constraint says of drafts before they are fed: what cannot follow goes, what must follow comes first."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import replace

import numpy as np

from wager.tree import prune
from wager.types import EMPTY, SAMPLED, Draft, Drafter, Law, Limits, Sequence

SOURCE = "constraint"  # Draft.source of forced tokens


def forced(seq: Sequence, room: Limits) -> list[int]:
    """Tokens that follow whatever the model wants, as far as there is room for them."""
    return seq.guide.forced(seq.output)[: room.depth] if seq.guide is not None and room.depth else []


def left_to_drafter(limit: Limits, run: ListLike[int], drafter: Drafter) -> Limits:
    """What is asked of the drafter where a ``run`` is forced: nothing if that alone is longer, or if drafts are drawn
    by chance (which of two drafts is fed must not depend on what was drawn).
    """
    asked = not run or (drafter.kind not in SAMPLED and limit.depth > len(run))
    return limit if asked else replace(limit, n_nodes=0, depth=0)


def fitting(seq: Sequence, draft: Draft) -> Draft:
    """The draft without what cannot follow. One drawn by chance stays as it is: its form must not depend on that."""
    if seq.guide is None or not len(draft) or draft.kind in SAMPLED:
        return draft
    tokens, parents, output = draft.tokens.tolist(), draft.parents.tolist(), seq.output
    kept: set[int] = set()
    for leaf in sorted(set(range(len(draft))) - set(parents), reverse=True):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        kept.update(path[: seq.guide.fits(output, [tokens[node] for node in path])])
    return prune(draft, sorted(kept)) if kept else EMPTY


def led(draft: Draft, run: ListLike[int], drafter: Drafter) -> Draft:
    """The forced ``run``, and what the draft has after it; the draft where nothing is forced.

    A run that carries laws was drawn from certain ones.
    """
    if not run or follows(draft, run):
        return draft
    n = len(run)
    laws = tuple(Law(np.array([token], np.int64), np.ones(1)) for token in run) if drafter.has_laws else None
    tokens, parents = np.asarray(run, np.int32), np.arange(-1, n - 1, dtype=np.int32)
    return Draft(tokens, parents, laws, drafter.kind, source=SOURCE, confidence=np.ones(n, np.float32))


def follows(draft: Draft, run: ListLike[int]) -> bool:
    """Whether the draft has a path of these tokens."""
    below = {(int(p), int(t)): i for i, (p, t) in enumerate(zip(draft.parents, draft.tokens, strict=True))}
    node = -1
    for token in run:
        found = below.get((node, token))
        if found is None:
            return False
        node = found
    return True
