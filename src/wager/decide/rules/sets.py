"""The best set of labels. ``outcomes`` (n, M) hold 0 or 1 for each of M labels, ``weights`` (n,) their probabilities.

All raise ``OptionError`` for an empty law. Ties: the smaller set, then the labels with the lower index.
Source: the F1 maximiser is that of Dembczynski et al. 2011 (GFM); the others are sums over labels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import TIE, best_first, shares
from wager.errors import OptionError
from wager.types import F64


def _law(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[F64, F64]:
    y = np.asarray(outcomes, dtype=np.float64)
    if y.ndim != 2 or not np.isin(y, (0.0, 1.0)).all():
        raise OptionError(f"`outcomes` has the shape {y.shape}: give (n, M) zeros and ones")
    return y, shares(weights, len(y))


def _check_k(k: int) -> None:
    if k < 1:
        raise OptionError(f"`k` is {k!r}: give at least 1")


def likely_set(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """(M,) best for Hamming loss: the labels with P > 1/2."""
    y, w = _law(outcomes, weights)
    return np.asarray(w @ y > 0.5 + TIE)


def top_k(outcomes: npt.ArrayLike, weights: npt.ArrayLike, *, k: int) -> tuple[int, ...]:
    """Best for precision at ``k``: the k likeliest labels, likeliest first; all where there are fewer."""
    y, w = _law(outcomes, weights)
    _check_k(k)
    return best_first(w @ y)[:k]


def recall_top_k(outcomes: npt.ArrayLike, weights: npt.ArrayLike, *, k: int) -> tuple[int, ...]:
    """Best for recall at ``k``: as ``top_k``, each outcome counting by 1 / its size; empty ones count for nothing."""
    y, w = _law(outcomes, weights)
    _check_k(k)
    return best_first((w / np.maximum(y.sum(axis=1), 1)) @ y)[:k]


def f1_set(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """(M,) best for the F1 of a row's set (1 where both are empty): for each size k the labels with the largest sum
    over s of 2 P(label in y, |y| = s) / (s + k), then the best size. M^2 log M after the table of P.
    """
    y, w = _law(outcomes, weights)
    n_labels = y.shape[1]
    sizes = y.sum(axis=1)
    table = np.zeros((n_labels + 1, n_labels))  # [s, j]: P(label j in y, |y| = s)
    np.add.at(table, sizes.astype(np.int64), w[:, None] * y)
    chosen, value = np.zeros(n_labels, dtype=np.bool_), float(w[sizes == 0].sum())
    for k in range(1, n_labels + 1):
        gains = (2 / (np.arange(n_labels + 1) + k)) @ table
        best = list(best_first(gains)[:k])
        if gains[best].sum() > value + TIE:
            value = float(gains[best].sum())
            chosen = np.zeros(n_labels, dtype=np.bool_)
            chosen[best] = True
    return chosen
