"""Which modules to leave out: three ways to propose sets of them. Pure; modules are numbered as in skip.py.

Every proposal leaves the first and the last layer alone, and leaves something out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from wager.types import F64

Modules = frozenset[int]
METHODS = ("swift", "conf", "cosine")

_RANDOM_EVERY = 5  # proposals of `swift`, the others change the best set a little
_SHARES = (0.15, 0.3, 0.45)  # of the layers, at least, that `conf` wants left out; the paper has the last one
_BAND, _STEP = 0.25, 0.05  # how much more is fine, and how far the threshold moves where it is not
_MAX_MOVES = 100


def free_modules(n_modules: int) -> range:
    """Those that may be left out."""
    return range(2, n_modules - 2)


def swift(n_modules: int, best: Callable[[], Modules], *, seed: int) -> Iterator[Modules]:
    """Without end: random sets, and the best one so far with a module more, less, or another (SWIFT 2410.06916).

    The paper keeps the size of sets and proposes every 25th by a Gaussian process; for so few modules local changes
    do as well, and which size is best is a question of costs.
    """
    rng, free = random.Random(seed), list(free_modules(n_modules))
    for i in count() if free else ():
        if i % _RANDOM_EVERY == 0:
            yield frozenset(rng.sample(free, rng.randint(1, len(free))))
            continue
        chosen = set(best())
        others = [m for m in free if m not in chosen]
        move = rng.choice(("swap", "add", "drop"))
        if move != "add" and len(chosen) > (move == "drop"):
            chosen.remove(rng.choice(sorted(chosen)))
        if move != "drop" and others:
            chosen.add(rng.choice(others))
        if chosen:
            yield frozenset(chosen)


def conf(confidences: F64) -> Iterator[Modules]:
    """Layers whose results are flat: low for their neighbourhood (ConfLayers 2604.14612).

    ``confidences`` (modules,): 1 - entropy / log(width) of the softmax of each module's result. A layer counts with
    the sum of its two; the threshold moves until the share of layers left out is in its band, and every set on the way
    is proposed, since here a score decides.
    """
    scores = confidences.reshape(-1, 2).sum(axis=1)
    n_layers, inner = len(scores), scores[1:-1]
    if len(inner) < 1:
        return
    spread = float(inner.std())
    z = (inner - inner.mean()) / (spread or 1.0)
    reach = _reach(inner, n_layers)
    seen: set[Modules] = set()
    for share in _SHARES:
        strictness = 0.0
        for _ in range(_MAX_MOVES):
            skipped = [i for i in range(len(z)) if _is_low(z, i, reach[i], strictness)]
            modules = frozenset(2 * (i + 1) + part for i in skipped for part in (0, 1))
            if modules and modules not in seen:
                seen.add(modules)
                yield modules
            if share <= len(skipped) / n_layers <= share + _BAND:
                break
            strictness += _STEP if len(skipped) / n_layers > share else -_STEP


def _reach(scores: F64, n_layers: int) -> list[int]:
    """Neighbours looked at on each side: more where the scores bend, and later."""
    bend = np.gradient(np.gradient(scores)) if len(scores) > 1 else np.zeros(len(scores))
    scaled = (bend - bend.min()) / (float(np.ptp(bend)) or 1.0)
    g = np.clip(scaled - scaled.mean() + 0.5, 0, 1)
    widths = [2 + int(5 * value * (i + 2) / n_layers) for i, value in enumerate(g)]
    return [max(1, width // 2) for width in widths]


def _is_low(z: F64, i: int, reach: int, strictness: float) -> bool:
    beside = np.concatenate([z[max(0, i - reach) : i], z[i + 1 : i + 1 + reach]])
    return bool(len(beside)) and bool(z[i] < beside.mean() - strictness * beside.std())


def cosine(similarities: F64) -> Iterator[Modules]:
    """The attentions that turn the stream least, one more each time (Draft on the Fly 2410.01028).

    ``similarities`` (layers,): cosine of the stream before and after each attention. The paper takes a threshold per
    prompt; here all of them are proposed.
    """
    order = sorted(range(1, len(similarities) - 1), key=lambda layer: -float(similarities[layer]))
    for n in range(1, len(order) + 1):
        yield frozenset(2 * layer for layer in order[:n])
