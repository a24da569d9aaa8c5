"""Nearest neighbours among hidden states of a corpus, in the space where they are near (DReSD, 2502.15572).

A key is the hidden state that the target predicted a token of the corpus from. Keys are grouped by that token, and a
search looks at one group: it is exact, and small enough without an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wager.corpus import SEPARATOR
from wager.types import F32, I32, I64

F16 = npt.NDArray[np.float16]

N_DIMS = 64
_N_FIT = 16384  # rows that the transform is fitted to
_FLAT = 1e-6  # of the largest value, or variance: deviations below carry nothing but rounding
_PIECE = 2048  # keys compared at once: what is made of them stays in the processor's cache
_HALF_BIAS = np.float32(2.0**112)  # exponents of f16 bits read as f32 are too small by 127 - 15


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """``vectors`` (M, d) f16 of length 1, or 0 where nothing is known; ``places`` (M,) int32: where in the corpus the
    token is that each predicts. Those of token t are [buckets[t], buckets[t + 1]), by place; ``buckets`` (V + 1,)
    int32. ``mean`` (H,) and ``projection`` (H, d) f32 are the transform (``fit``).
    """

    mean: F32
    projection: F32
    vectors: F16
    places: I32
    buckets: I32

    def query(self, hidden: F32) -> F32:
        """What to look for (d,) for a hidden state (H,)."""
        if not self.projection.size:  # nothing was read, or all states were one
            return np.zeros(0, np.float32)
        row: F32 = transformed(hidden[None], self.mean, self.projection)[0]
        return row


def fit(hidden: F32, *, n_dims: int = N_DIMS) -> tuple[F32, F32]:
    """Mean (H,) and projection (H, d), d <= ``n_dims``, of z-score and PCA over rows (n, H); rows not finite are left
    out, as are dimensions that are constant or depend on others.
    """
    rows = hidden[np.isfinite(hidden).all(axis=1)].astype(np.float64)
    if not len(rows):
        return np.zeros(hidden.shape[1], np.float32), np.zeros((hidden.shape[1], 0), np.float32)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    varies = deviation > _FLAT * np.abs(rows).max(axis=0)
    scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=varies)
    z = (rows - mean) * scale
    variance, axes = np.linalg.eigh(z.T @ z / len(z))  # ascending
    best = np.argsort(-variance, kind="stable")[:n_dims]
    best = best[variance[best] > _FLAT * max(variance[-1], _FLAT)]
    return mean.astype(np.float32), (scale[:, None] * axes[:, best]).astype(np.float32)


def transformed(hidden: F32, mean: F32, projection: F32) -> F32:
    """Rows (n, H) as unit vectors (n, d); 0 for a row that is not finite or has no direction."""
    finite = np.isfinite(hidden).all(axis=1, keepdims=True)
    rows: F32 = (np.where(finite, hidden, mean) - mean) @ projection
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: F32 = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def index(
    tokens: I32, vocab_size: int, hidden: Iterable[tuple[I64, F32]], *, n_dims: int = N_DIMS, n_fit: int = _N_FIT
) -> Keys:
    """Keys of every token of the corpus ``tokens`` (N,) that was predicted and that another one follows.

    ``hidden``: places (n,) in ``tokens`` and the hidden states (n, H) there, in any order; the transform is fitted to
    the first ``n_fit`` of them. Places that never come keep a key of 0.
    """
    places, buckets = grouped(tokens, vocab_size)
    row_of = np.full(len(tokens) + 1, -1, np.int32)
    row_of[places] = np.arange(len(places), dtype=np.int32)
    waiting: list[tuple[I32, F32]] = []
    found: Keys | None = None
    for at, states in hidden:
        rows = row_of[at + 1]
        waiting.append((rows[rows >= 0], states[rows >= 0]))
        if found is None and sum(len(r) for r, _ in waiting) >= n_fit:
            found = _fitted(waiting, places, buckets, n_dims)
        if found is not None:
            _put(found, waiting)
    if found is None:
        found = _fitted(waiting, places, buckets, n_dims)
        _put(found, waiting)
    return found


def grouped(tokens: I32, vocab_size: int) -> tuple[I32, I32]:
    """Places (M,) of all tokens with one before and one after them in their document, by token and place; and where
    each token's begin (V + 1,).
    """
    inside = tokens != SEPARATOR
    places = np.flatnonzero(inside[:-2] & inside[1:-1] & inside[2:]) + 1
    order = np.argsort(tokens[places], kind="stable")
    counts = np.bincount(tokens[places], minlength=vocab_size)
    buckets = np.concatenate(([0], np.cumsum(counts)))
    return places[order].astype(np.int32), buckets.astype(np.int32)


def _fitted(waiting: list[tuple[I32, F32]], places: I32, buckets: I32, n_dims: int) -> Keys:
    states = [states for _, states in waiting] or [np.zeros((0, 0), np.float32)]
    mean, projection = fit(np.concatenate(states), n_dims=n_dims)
    return Keys(mean, projection, np.zeros((len(places), projection.shape[1]), np.float16), places, buckets)


def _put(keys: Keys, waiting: list[tuple[I32, F32]]) -> None:
    for rows, states in waiting:
        keys.vectors[rows] = transformed(states, keys.mean, keys.projection)
    waiting.clear()


def neighbours(
    keys: Keys, token: int, query: F32, *, n_most: int, floor: float, n_searched: int = 1 << 16
) -> list[tuple[int, float]]:
    """The keys of ``token`` with the largest cosine to ``query`` (d,), at least ``floor``: (place, cosine), at most
    ``n_most``, most similar first, of equals the first place.

    Of more than ``n_searched`` keys that many at most are looked at, evenly spread over the corpus.
    """
    if not 0 <= token < len(keys.buckets) - 1:
        return []
    low, high = keys.buckets.item(token), keys.buckets.item(token + 1)
    step = max(1, -(-(high - low) // n_searched))
    cosines = similarities(keys.vectors[low:high:step], query)
    near = np.flatnonzero(cosines >= floor)  # never what is no number
    best = near[np.argsort(-cosines[near], kind="stable")[:n_most]]
    return [(keys.places.item(low + step * i), cosines.item(i)) for i in best.tolist()]


def similarities(vectors: F16, query: F32) -> F32:
    """Products (m,) of the rows of ``vectors`` (m, d) with ``query`` (d,)."""
    found = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), _PIECE):
        np.dot(_wide(vectors[start : start + _PIECE]), query, out=found[start : start + _PIECE])
    return found


def _wide(values: F16) -> F32:
    """f16 as f32, finite ones only: numpy's own conversion takes five times as long (1.6 ns a number)."""
    bits: npt.NDArray[Any] = values.view(np.int16).astype(np.int32)
    bits <<= 16
    bits >>= 3  # the sign stays in front, copied into the bits that are cleared next
    bits &= np.int32(~0x70000000)
    return np.multiply(bits.view(np.float32), _HALF_BIAS)
