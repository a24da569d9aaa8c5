"""The walk: the target chooses every token itself, a draft only tells how many choices one forward settles.

Shared-noise coupling without draft probabilities (Daliri et al. 2408.07978 for one token; here per position, so that
the text is a function of prompt, seed and options alone).
"""

from __future__ import annotations

from wager.sampling import Noise, choose_softmax
from wager.types import Draft, Verdict
from wager.verify.base import Rows


def walk(rows: Rows, draft: Draft, noise: Noise) -> Verdict:
    """Choose the token after the root; while a child holds the chosen token, go there and choose the next."""
    children = {
        (int(parent), int(token)): node
        for node, (parent, token) in reversed(list(enumerate(zip(draft.parents, draft.tokens, strict=True))))
    }
    path: list[int] = []
    node = -1
    while True:
        x, temperature = rows.logs(node)
        token = choose_softmax(x, noise, rows.position(node), temperature)
        child = children.get((node, token))
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        node = child
