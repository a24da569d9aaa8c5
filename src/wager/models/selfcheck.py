"""Does the bit-identity rule hold here? A cheap test at a model's first load, remembered afterwards.

Design fact 5 says that a token's logits do not depend on how tokens are grouped, given two rows per sequence. That is
a property of kernels, so it is tested on the machine, model and settings at hand: narrow and wide groupings, several
sequences at once. The widest forward that still agrees becomes ``max_rows``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.pack import Feed, Slots, pack
from wager.types import F32, JSON, Model, Sampling, Sequence

_WIDE = (64, 128, 256, 512)
_NARROW_TOKENS = 34


@dataclass(frozen=True, slots=True)
class Exactness:
    """``max_rows``: widest forward that agrees with narrow ones bit by bit; ``reason``: None, or what differed."""

    max_rows: int
    reason: str | None = None

    def to_json(self) -> JSON:
        return {"max_rows": self.max_rows, "reason": self.reason}


def check_exact(model: Model, n_valid_ids: int, *, budget_s: float = 8.0) -> Exactness:
    """Compare logits bit by bit across groupings. Uses the model's first blocks: call it before any engine does."""
    limit = min(max(_WIDE), model.context_length - 2, (model.n_blocks // 4 - 4) * model.block_size)
    tokens = np.random.default_rng(0).integers(0, n_valid_ids, limit).tolist()
    start = time.perf_counter()
    narrow = tokens[:_NARROW_TOKENS]
    base = _read(model, narrow, 2)
    for width in (3, 4, 8, 16, len(narrow)):
        reason = _difference(base, _read(model, narrow, width), f"2 and {width} rows")
        if reason:
            return Exactness(model.max_rows, reason)
    reason = _difference(base, _together(model, narrow), "one and three sequences")
    if reason:
        return Exactness(model.max_rows, reason)
    max_rows, base = 32, _read(model, tokens, 32)
    for width in _WIDE:
        if width > limit or time.perf_counter() - start > budget_s:
            break
        if _difference(base[:width], _read(model, tokens[:width], width), ""):
            break
        max_rows = width
    return Exactness(max_rows)


def _difference(a: F32, b: F32, between: str) -> str | None:
    if np.array_equal(a, b):
        return None
    return f"logits differ by up to {float(np.abs(a - b).max()):.2g} between {between}"


def _read(model: Model, tokens: list[int], width: int) -> F32:
    """Logits (len(tokens), V) of one sequence read ``width`` tokens at a time (never a single row)."""
    rows: list[F32] = []
    n_done = 0
    while n_done < len(tokens):
        stop = min(n_done + width, len(tokens))
        start = min(n_done, stop - 2)
        rows += list(_forward(model, [(tokens[:stop], start)])[0][n_done - start :])
        n_done = stop
    return np.array(rows)


def _together(model: Model, tokens: list[int]) -> F32:
    """The same logits with two other sequences in every forward."""
    rows: list[F32] = []
    others = (tokens[::-1], tokens[5:] + tokens[:5])
    for start in range(0, len(tokens), 4):
        stop = min(start + 4, len(tokens))
        first = min(start, stop - 2)
        group = [(tokens[:stop], first), (others[0][:stop], max(0, stop - 3)), (others[1][:stop], max(0, stop - 2))]
        rows += list(_forward(model, group)[0][start - first :])
    return np.array(rows)


def _forward(model: Model, group: ListLike[tuple[list[int], int]]) -> list[F32]:
    """Feed every (tokens, first row) sequence its rest, each in blocks of its own; logits of all rows fed."""
    feeds, slots = [], []
    size = model.block_size
    n_pad = -(-model.width_for(512) // size)
    next_block = n_pad
    for i, (tokens, start) in enumerate(group):
        n_blocks = -(-len(tokens) // size)
        feeds.append(Feed(Sequence(i, tokens, len(tokens), Sampling(), 0), start, len(tokens)))
        slots.append(Slots(range(next_block, next_block + n_blocks)))
        next_block += max(n_blocks, 2)
    n_rows = sum(feed.n_rows for feed in feeds)
    packed = pack(feeds, slots, width=model.width_for(n_rows), pad_blocks=range(n_pad), block_size=size, min_rows=2)
    batch = packed.batch
    wanted = np.arange(n_rows, dtype=np.int64)
    logits = model.forward(type(batch)(batch.tokens, batch.positions, batch.past, batch.starts, batch.blocks,
                                       batch.block_starts, wanted)).logits.copy()  # fmt: skip
    ends = np.cumsum([feed.n_rows for feed in feeds])
    return [logits[end - feed.n_rows : end] for end, feed in zip(ends, feeds, strict=True)]
