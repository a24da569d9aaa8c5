"""What a metric makes of targets and predictions, with bootstrap intervals over rows."""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np

from wager.decide.law import Law
from wager.decide.metrics.base import MetricInfo
from wager.decide.metrics.registry import metric_named
from wager.decide.options import Asked, Options, check_given
from wager.errors import OptionError
from wager.intervals import Interval, bootstrap, percentile_interval
from wager.types import F64, I64

_NONE = Options()


def measure(
    metric: MetricInfo | str, targets: ListLike[Any], predictions: ListLike[Any], *, options: Options = _NONE
) -> float:
    """The metric on n >= 1 rows; NaN where it is not defined on any. Options that only rules take are not looked at.

    Raises ``OptionError`` for a row without a prediction: leave such rows out, or give a fallback.
    """
    info, asked = _ready(metric, targets, predictions, options)
    if info.rows is None:
        return _whole(info, targets, predictions, asked)
    return _finish(info, info.rows(targets, predictions, asked))


def interval(
    metric: MetricInfo | str,
    targets: ListLike[Any],
    predictions: ListLike[Any],
    *,
    options: Options = _NONE,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The metric with its percentile bootstrap interval over rows. With one seed all methods share the resamples."""
    info, asked = _ready(metric, targets, predictions, options)
    value = measure(info, targets, predictions, options=options)
    resampled = _resampled(info, targets, predictions, asked, n_resamples, seed)
    return percentile_interval(value, resampled, len(targets), level=level)


def difference(
    metric: MetricInfo | str,
    targets: ListLike[Any],
    predictions: ListLike[Any],
    others: ListLike[Any],
    *,
    options: Options = _NONE,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The metric of ``predictions`` less that of ``others`` on the same rows, with its paired bootstrap interval."""
    info, asked = _ready(metric, targets, predictions, options)
    _ready(metric, targets, others, options)
    value = measure(info, targets, predictions, options=options) - measure(info, targets, others, options=options)
    ours = _resampled(info, targets, predictions, asked, n_resamples, seed)
    theirs = _resampled(info, targets, others, asked, n_resamples, seed)
    return percentile_interval(value, ours - theirs, len(targets), level=level)


def expected(metric: MetricInfo | str, law: Law, prediction: Any, *, options: Options = _NONE) -> float:
    """The metric of one prediction if the target comes from ``law``, outcomes it is not defined on left out.

    Raises ``OptionError`` for a metric whose rows do not stand alone, and for an empty law.
    """
    info, asked = _ready(metric, law.values, [prediction] * len(law), options)
    if info.rows is None:
        raise OptionError(f"{info.name} is a number of many rows: one row has no expected value of it")
    rows = info.rows(law.values, [prediction] * len(law), asked)
    known = ~np.isnan(rows)
    mass = float(law.weights[known].sum())
    return info.finish(float(law.weights[known] @ rows[known]) / mass) if mass > 0 else math.nan


def _ready(
    metric: MetricInfo | str, targets: ListLike[Any], predictions: ListLike[Any], options: Options
) -> tuple[MetricInfo, Asked]:
    info = metric_named(metric) if isinstance(metric, str) else metric
    if len(targets) != len(predictions) or not len(targets):
        raise OptionError(f"{len(targets)} targets and {len(predictions)} predictions: give one of each per row, >= 1")
    n_missing = sum(x is None for x in predictions) + sum(y is None for y in targets)
    if n_missing:
        raise OptionError(f"{n_missing} targets or predictions are missing: leave these rows out, or give `fallback`")
    check_given(info.name, options.only(info.takes), takes=info.takes, must=info.must)
    return info, Asked(knob=info.asked, options=options)


def _whole(info: MetricInfo, targets: ListLike[Any], predictions: ListLike[Any], asked: Asked) -> float:
    assert info.whole is not None, info.name
    return info.whole(targets, predictions, asked)


def _finish(info: MetricInfo, rows: F64) -> float:
    known = rows[~np.isnan(rows)]
    return info.finish(float(known.mean())) if len(known) else math.nan


def _resampled(
    info: MetricInfo,
    targets: ListLike[Any],
    predictions: ListLike[Any],
    asked: Asked,
    n_resamples: int,
    seed: int,
) -> F64:
    """(n_resamples,) the metric on resampled rows."""
    if info.rows is None:

        def statistic(index: I64) -> F64:
            picked = ([targets[i] for i in row] for row in index.tolist())
            guessed = ([predictions[i] for i in row] for row in index.tolist())
            return np.array([_whole(info, y, x, asked) for y, x in zip(picked, guessed, strict=True)])

        return bootstrap(len(targets), statistic, n_resamples=n_resamples, seed=seed)
    rows = info.rows(targets, predictions, asked)
    known = ~np.isnan(rows)
    filled = np.where(known, rows, 0.0)

    def mean(index: I64) -> F64:
        counts = known[index].sum(axis=1)
        means = filled[index].sum(axis=1) / np.maximum(counts, 1)
        finished = np.array([info.finish(value) for value in means.tolist()])
        return np.where(counts > 0, finished, np.nan)

    return bootstrap(len(targets), mean, n_resamples=n_resamples, seed=seed)
