"""Gumbel-max list sampling: K drafts and the target race on the same noise, so that one of them is likely to match."""

from __future__ import annotations

import numpy as np

from wager.sampling import Noise
from wager.tree import children, depths
from wager.types import Draft, Verdict
from wager.verify.base import Rows
from wager.verify.dice import Dice, NoiseDice
from wager.verify.lists import top_down
from wager.verify.local import Local


def gls(rows: Rows, draft: Draft, noise: Noise) -> Verdict:
    """GLS (Rowan et al. 2506.05632): the token is argmin_v min_k E_k[v] / p(v) over the sequences still alive.

    E_k is the noise that sequence k of an i.i.d. draft was drawn with (stream "draft", branch k, depth j). Each token
    has law p whatever the drafts are; that they raced on this noise is what makes them match. Tokens outside the
    draft's law race as one, and the winner among them is drawn afterwards.
    """
    below, sequence, depth = children(draft), sequences(draft), depths(draft)

    def solve(here: Local, dice: Dice) -> int:
        racers = np.append(here.ids, len(rows.logits(here.node)))
        level = depth[here.node] if here.node >= 0 else 0
        alive = sorted({sequence[child] for child in below[here.node]})
        arrival = noise.races("draft", rows.start, alive, depth=level, token_ids=racers).min(axis=0)
        times = np.divide(arrival, here.p, out=np.full(len(here.p), np.inf), where=here.p > 0)
        return int(times.argmin())

    return top_down(solve)(rows, draft, NoiseDice(noise, rows.start))


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
