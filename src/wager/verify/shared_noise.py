"""Gumbel-max list sampling: K drafts and the target race on the same noise, so that one of them is likely to match."""

from __future__ import annotations

import numpy as np

from wager.sampling import Noise
from wager.tree import children, depths
from wager.types import Draft, Verdict
from wager.verify.base import Rows
from wager.verify.dice import NoiseDice
from wager.verify.local import local


def gls(rows: Rows, draft: Draft, noise: Noise) -> Verdict:
    """GLS (Rowan et al. 2506.05632): the token is argmin_v min_k E_k[v] / p(v) over the sequences still alive.

    E_k is the noise that sequence k of an i.i.d. draft was drawn with (stream "draft", branch k, depth j). Each token
    has law p whatever the drafts are; that they raced on this noise is what makes them match. Tokens outside the
    draft's law race as one, and the winner among them is drawn afterwards.
    """
    dice = NoiseDice(noise, rows.start)
    below, sequence, depth = children(draft), sequences(draft), depths(draft)
    node = -1
    path: list[int] = []
    while node in below:
        here = local(rows, draft, node, below[node])
        racers = np.append(here.ids, len(rows.weights(node)))
        level = depth[node] if node >= 0 else 0
        alive = sorted({sequence[child] for child in below[node]})
        arrival = np.min([noise.race("draft", rows.start, branch=k, depth=level, token_ids=racers) for k in alive], 0)
        times = np.divide(arrival, here.p, out=np.full(len(here.p), np.inf), where=here.p > 0)
        token = here.token(int(times.argmin()), rows, dice)
        found = [child for child in below[node] if draft.tokens[child] == token]
        if not found:
            return Verdict(tuple(path), token)
        node = found[0]
        path.append(node)
    return Verdict(tuple(path), dice.draw(rows.weights(node)))


def sequences(draft: Draft) -> list[int]:
    """(n,) which of the sequences laid side by side a node belongs to: a node's first child goes on with its sequence,
    every other starts the next one. How far sequences go must not count: it may depend on what was drawn.
    """
    found: list[int] = []
    goes_on: set[int] = set()
    n_begun = 1
    for parent in draft.parents.tolist():
        if parent in goes_on:
            found.append(n_begun)
            n_begun += 1
        else:
            goes_on.add(parent)
            found.append(found[parent] if parent >= 0 else 0)
    return found
