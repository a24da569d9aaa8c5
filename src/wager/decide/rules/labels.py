"""The best label to predict, or the score or law to report. ``values`` are n hashable labels, ``weights`` (n,).

All raise ``OptionError`` for an empty law. Ties go to the label that comes first: in ``values`` (so to the draw that
came first, as one draw would have answered), or in ``labels`` where a rule takes them.
Source: Lukasik et al. 2403.04182.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Sequence as ListLike
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import first_best, shares
from wager.decide.options import member, places
from wager.decide.rules.numbers import mean, median
from wager.errors import OptionError

L = TypeVar("L", bound=Hashable)


def masses(values: ListLike[L], weights: npt.ArrayLike) -> dict[L, float]:
    """Probability of each distinct value, in order of first appearance."""
    found: dict[L, float] = {}
    for value, share in zip(values, shares(weights, len(values)).tolist(), strict=True):
        found[value] = found.get(value, 0.0) + share
    return found


def mode(values: ListLike[L], weights: npt.ArrayLike) -> L:
    """Best for exact match: the heaviest value. On parsed draws this is self-consistency's vote (2203.11171)."""
    mass = masses(values, weights)
    return list(mass)[first_best(np.array(list(mass.values())))]


def least_cost(
    values: ListLike[L], weights: npt.ArrayLike, *, labels: ListLike[L], costs: ListLike[ListLike[float]]
) -> L:
    """The label with the least expected cost; ``costs`` (L, L), row = target, column = prediction."""
    table = np.asarray(costs, dtype=np.float64)
    if table.shape != (len(labels), len(labels)) or not np.isfinite(table).all():
        raise OptionError(
            f"`costs` has the shape {table.shape}: give {len(labels)} rows of {len(labels)} finite numbers"
        )
    rows = places(values, tuple(labels)).astype(np.int64)
    return labels[first_best(-(shares(weights, len(values)) @ table[rows]))]


def balanced(values: ListLike[L], weights: npt.ArrayLike, *, priors: Mapping[L, float]) -> L:
    """Best for balanced accuracy: the largest probability relative to the label's share among the targets."""
    mass = masses(values, weights)
    for label in mass:
        if not priors.get(label, 0.0) > 0:
            raise OptionError(f"`priors` has no positive share for {label!r}: give one for every label that may come")
    ratios = np.array([share / priors[label] for label, share in mass.items()])
    return list(mass)[first_best(ratios)]


def ordinal_median(values: ListLike[L], weights: npt.ArrayLike, *, labels: ListLike[L]) -> L:
    """Best for the distance in places between ordered ``labels``: the lower weighted median."""
    return labels[int(median(places(values, tuple(labels)), weights))]


def ordinal_mean(values: ListLike[L], weights: npt.ArrayLike, *, labels: ListLike[L]) -> L:
    """Best for the squared distance in places: the label nearest to the mean place; the lower one at equal distance."""
    centre = mean(places(values, tuple(labels)), weights)
    return labels[first_best(-np.square(np.arange(len(labels), dtype=np.float64) - centre))]


def probability(values: ListLike[L], weights: npt.ArrayLike, *, label: L, labels: ListLike[L] | None = None) -> float:
    """P(y = ``label``): the best score for a binary AUC. ``label`` must be among ``labels`` where these are given."""
    if labels is not None:
        member(label, labels)
    return masses(values, weights).get(label, 0.0)
