"""Hidden states of a target over a corpus: what the keys of a dense store are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from wager.corpus import SEPARATOR
from wager.errors import ModelError
from wager.nearest import N_DIMS, Keys, index
from wager.pack import Feed, Slots, n_pad_blocks, pack
from wager.types import F32, I32, I64, Model, Sampling, Sequence

_N_ROWS = 256  # as fast as more (the head is computed for all of them), in half the memory
_WINDOW = 2048  # longer documents are read in parts: attention over more would take most of the time

Progress = Callable[[str, int, int], None]


def read_keys(
    model: Model, tokens: I32, vocab_size: int, *, n_dims: int = N_DIMS, progress: Progress | None = None
) -> Keys:
    """The keys of a corpus (N,), every token of which the model reads once. It must be no other engine's meanwhile.

    Raises ``ModelError`` where the model does not tell its hidden states.
    """
    return index(tokens, vocab_size, hidden_states(model, tokens, progress=progress), n_dims=n_dims)


def hidden_states(
    model: Model, tokens: I32, *, seed: int = 0, progress: Progress | None = None
) -> Iterator[tuple[I64, F32]]:
    """Places (n,) in ``tokens`` (N,) and the hidden states (n, H) there, valid until the next ones.

    Documents, and the windows of those that are long, are read by themselves and come in random order, so that the
    first ones are a fair sample. Those too short to give a key (``nearest.grouped``) are left out.
    """
    n_rows = min(_N_ROWS, model.max_rows)
    n_pad = n_pad_blocks(model, n_rows)
    longest = min(_WINDOW, model.context_length, (model.n_blocks - n_pad) * model.block_size - 1)
    windows = [(a, b) for a, b in _windows(tokens, longest) if b - a > 1]
    model.kv_owner = None
    done, total = 0, sum(b - a for a, b in windows)
    tell = progress or _silent
    tell("reading with the model", 0, total)
    for i in np.random.default_rng(seed).permutation(len(windows)).tolist():
        first, last = windows[i]
        for n_before, states in _read(model, tokens[first:last].tolist(), n_rows, n_pad):
            at = first + n_before
            yield np.arange(at, at + len(states)), states
            done += len(states)
            tell("reading with the model", done, total)


def _silent(what: str, done: int, total: int) -> None:
    pass


def _windows(tokens: I32, longest: int) -> Iterator[tuple[int, int]]:
    start = 0
    for end in np.flatnonzero(tokens == SEPARATOR).tolist():
        if end - start > 2:
            yield from ((at, min(at + longest, end)) for at in range(start, end, longest))
        start = end + 1


def _read(model: Model, tokens: list[int], n_rows: int, n_pad: int) -> Iterator[tuple[int, F32]]:
    """How many tokens were read before, and the hidden states (n, H) of the next ones, until all are read."""
    seq = Sequence(0, tokens, len(tokens), Sampling(), 0)
    size = model.block_size
    slots = Slots(range(n_pad, n_pad + -(-(len(tokens) + 1) // size)))
    while seq.n_cached < len(tokens):
        feed = Feed(seq, min(seq.n_cached + n_rows, len(tokens)), rule="pair")
        packed = pack([feed], [slots], width_for=model.width_for, pad_blocks=range(n_pad), block_size=size)
        rows = np.arange(seq.n_cached - feed.start, feed.stop - feed.start, dtype=np.int64)
        hidden = model.forward(replace(packed.batch, rows=rows)).hidden
        if hidden is None:
            raise ModelError(
                "`model` does not tell its hidden states (no head was found): build a store without --dense"
            )
        yield seq.n_cached, hidden
        seq.n_cached = feed.stop
