"""The best order of a row's M items. ``outcomes`` (n, M) hold each item's gain, ``weights`` (n,) the probabilities.

An order is the items' indices, best first; ties go to the lower index. Outcomes on which a metric is not defined count
for nothing; where all are such, the order is that of the indices. All raise ``OptionError`` for an empty law.
Gains are used as they are: for exponential gains give 2^relevance - 1.
Source: an order by one number per item is best by the rearrangement inequality.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import best_first, shares
from wager.decide.metrics.labels import ideal_dcg
from wager.errors import OptionError
from wager.types import F64


def _law(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[F64, F64]:
    y = np.asarray(outcomes, dtype=np.float64)
    if y.ndim != 2 or not np.isfinite(y).all():
        raise OptionError(f"`outcomes` has the shape {y.shape}: give (n, M) finite numbers")
    return y, shares(weights, len(y))


def dcg_order(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[int, ...]:
    """Best for DCG, cut at any k: by expected gain."""
    y, w = _law(outcomes, weights)
    return best_first(w @ y)


def ndcg_order(outcomes: npt.ArrayLike, weights: npt.ArrayLike, *, k: int | None = None) -> tuple[int, ...]:
    """Best for NDCG (at ``k``): by expected gain / ideal DCG. Raises ``OptionError`` for negative gains."""
    y, w = _law(outcomes, weights)
    if (y < 0).any():
        raise OptionError(f"the law has the gain {float(y.min())!r}: NDCG is defined for gains >= 0")
    ideal = ideal_dcg(y, k=k)
    some = ideal > 0
    return best_first((w[some] / ideal[some]) @ y[some])


def auc_order(outcomes: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[int, ...]:
    """Best for the AUC within a row's list, ``outcomes`` 0 or 1: by E[y / (positives x negatives)]."""
    y, w = _law(outcomes, weights)
    if not np.isin(y, (0.0, 1.0)).all():
        raise OptionError("the AUC of a list needs 0 or 1 for each item: give such outcomes, or use ndcg for gains")
    pairs = y.sum(axis=1) * (1 - y).sum(axis=1)
    some = pairs > 0
    return best_first((w[some] / pairs[some]) @ y[some])
