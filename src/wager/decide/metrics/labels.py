"""Metrics of labels, of sets of labels and of rankings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np

from wager.decide.options import places
from wager.errors import OptionError
from wager.types import F64


def exact(y: ListLike[Hashable], x: ListLike[Hashable]) -> F64:
    """(n,) 1 where the prediction is the target."""
    return np.array([float(a == b) for a, b in zip(y, x, strict=True)])


def cost(y: ListLike[Any], x: ListLike[Any], labels: tuple[Any, ...], costs: ListLike[ListLike[float]]) -> F64:
    """(n,) costs[target][prediction]."""
    rows, columns = places(y, labels).astype(np.int64), places(x, labels).astype(np.int64)
    return np.asarray(costs, dtype=np.float64)[rows, columns]


def balanced_accuracy(y: ListLike[Hashable], x: ListLike[Hashable]) -> float:
    """Mean over the labels among the targets of the share that was found."""
    right: dict[Hashable, list[float]] = {}
    for target, hit in zip(y, exact(y, x).tolist(), strict=True):
        right.setdefault(target, []).append(hit)
    return float(np.mean([np.mean(hits) for hits in right.values()]))


def weighted_kappa(y: F64, x: F64) -> float:
    """Quadratic weighted kappa of places (n,): 1 - squared distance / that of independent pairs; NaN if both are 0.

    With E over independent pairs, E(Y - X)^2 = var Y + var X + (EY - EX)^2, so no table is needed (Cohen 1968).
    """
    chance = y.var() + x.var() + (y.mean() - x.mean()) ** 2
    return float(1 - np.mean((y - x) ** 2) / chance) if chance > 0 else math.nan


def brier(target: Hashable, law: Mapping[Any, float]) -> float:
    """Sum over labels of (probability - [is the target])^2, from 0 to 2."""
    right = law.get(target, 0.0)
    return sum(share**2 for label, share in law.items() if label != target) + (1 - right) ** 2


def log_loss(target: Hashable, law: Mapping[Any, float]) -> float:
    """-log probability of the target, in nats; probabilities below 1e-15 count as 1e-15."""
    return -math.log(max(law.get(target, 0.0), 1e-15))


def wrong_labels(y: Any, x: Any) -> float:
    """Labels that are in one set and not in the other: the Hamming distance, not divided by the number of labels."""
    return float(len(as_set(y) ^ as_set(x)))


def set_f1(y: Any, x: Any) -> float:
    """F1 of two sets; 1 where both are empty."""
    a, b = as_set(y), as_set(x)
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0


def precision_at(y: Any, ranking: ListLike[Any], k: int) -> float:
    """Share of the first k of the ranking that are in the target set; places that a shorter one leaves are wrong."""
    return len(as_set(y) & set(ranking[:k])) / k


def recall_at(y: Any, ranking: ListLike[Any], k: int) -> float:
    """Share of the target set that is among the first k of the ranking; NaN for an empty target."""
    wanted = as_set(y)
    return len(wanted & set(ranking[:k])) / len(wanted) if wanted else math.nan


def discounts(n: int, *, k: int | None = None) -> F64:
    """(n,) 1 / log2(place + 2), 0 from place ``k`` on."""
    table = 1 / np.log2(np.arange(n) + 2)
    return np.where(np.arange(n) < (n if k is None else k), table, 0.0)


def ideal_dcg(gains: F64, *, k: int | None = None) -> F64:
    """(n,) DCG of the best order of each row of ``gains`` (n, M)."""
    return np.asarray(-np.sort(-gains, axis=1) @ discounts(gains.shape[1], k=k), dtype=np.float64)


def dcg(y: Any, ranking: ListLike[Any], k: int | None) -> float:
    """Sum of gain / log2(place + 2) over the first k of the ranking."""
    gains = _gains(y, ranking)
    return float(gains @ discounts(len(gains), k=k))


def ndcg(y: Any, ranking: ListLike[Any], k: int | None) -> float:
    """DCG over that of the best order; NaN where no item has a gain."""
    ideal = float(ideal_dcg(_gains(y, ranking)[None, :], k=k)[0])
    return dcg(y, ranking, k) / ideal if ideal > 0 else math.nan


def list_auc(y: Any, ranking: ListLike[Any]) -> float:
    """Share of (relevant, other) pairs of one list in the right order; NaN without such pairs."""
    relevant = _gains(y, ranking) > 0
    n_relevant, n_other = int(relevant.sum()), int((~relevant).sum())
    if not n_relevant or not n_other:
        return math.nan
    return float((np.cumsum(~relevant[::-1])[::-1] @ relevant) / (n_relevant * n_other))


def as_set(value: Any) -> frozenset[Any]:
    """A label set; of a tuple of 0 and 1, the indices that hold a 1."""
    if isinstance(value, frozenset):
        return value
    if isinstance(value, tuple) and all(item in (0, 1) for item in value):
        return frozenset(i for i, item in enumerate(value) if item)
    raise OptionError(f"{value!r} is no set of labels: give a frozenset, or a tuple of zeros and ones")


def _gains(y: Any, ranking: ListLike[Any]) -> F64:
    """(M,) gains in the ranking's order. The ranking must name each item of a tuple once; a set's labels all."""
    gain = dict.fromkeys(y, 1.0) if isinstance(y, frozenset) else dict(enumerate(y))
    complete = set(gain) <= set(ranking) and len(set(ranking)) == len(ranking)
    if not complete or (isinstance(y, tuple) and len(ranking) != len(y)):
        raise OptionError(f"the ranking {tuple(ranking)!r} does not name each item of {y!r} once: rank all of them")
    return np.array([gain.get(label, 0.0) for label in ranking], dtype=np.float64)
