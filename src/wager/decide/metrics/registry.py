"""Metrics by name. A new metric is one function and one entry here; docs/decide.md is made from this table."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np

from wager.decide import mbr
from wager.decide.law import as_mapping, as_numbers
from wager.decide.metrics import labels, numbers
from wager.decide.metrics.base import MetricInfo, PerRow, Whole
from wager.decide.options import Asked, Knob, Options, entry_named, places
from wager.errors import OptionError
from wager.types import F64


def _floats(values: ListLike[Any]) -> F64:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{list(values)[:3]!r} are not all numbers: this metric compares numbers") from error


def _number_rows(loss: Callable[[F64, F64, float], F64]) -> PerRow:
    return lambda y, x, asked: loss(_floats(y), _floats(x), asked.knob)


def _number_whole(of: Callable[[F64, F64], float]) -> Whole:
    return lambda y, x, asked: of(_floats(y), _floats(x))


def _each(of: Callable[[Any, Any, Asked], float]) -> PerRow:
    return lambda y, x, asked: np.array([of(a, b, asked) for a, b in zip(y, x, strict=True)], dtype=np.float64)


def _texts(name: str) -> PerRow:
    def rows(y: ListLike[str], x: ListLike[str], asked: Asked) -> F64:
        pair = mbr.pair_named(name)
        return np.array([pair(a, b) for a, b in zip(y, x, strict=True)], dtype=np.float64)

    return rows


def _number(name: str, says: str, rule: str, loss: Callable[[F64, F64, float], F64], **facts: Any) -> MetricInfo:
    rows = _number_rows(loss)
    facts.setdefault("better", "lower")
    return MetricInfo(name=name, says=says, kind="numbers", gives="number", rule=rule, rows=rows, **facts)


def _score(name: str, says: str, rule: str, of: Callable[[F64, F64], float], **facts: Any) -> MetricInfo:
    whole = _number_whole(of)
    return MetricInfo(
        name=name, says=says, better="higher", kind="numbers", gives="number", rule=rule, whole=whole, **facts
    )


def _text(name: str, says: str) -> MetricInfo:
    return MetricInfo(
        name=name, says=says, better="higher", kind="texts", gives="text", rule=f"mbr-{name}", rows=_texts(name)
    )


def _ordinal(power: int) -> PerRow:
    def rows(y: ListLike[Any], x: ListLike[Any], asked: Asked) -> F64:
        return np.abs(places(y, asked.options.labels) - places(x, asked.options.labels)) ** power

    return rows


def _auc(y: ListLike[Any], x: ListLike[Any], asked: Asked) -> float:
    positive = positive_label(asked.options)
    return numbers.multipartite(np.array([float(label == positive) for label in y]), _floats(x))


def positive_label(options: Options) -> Any:
    """The label whose probability is a score: ``positive``, else the second of two ``labels``, else 1."""
    if options.positive is not None:
        return options.positive
    if options.labels is None:
        return 1
    if len(options.labels) != 2:
        raise OptionError(
            f"there are {len(options.labels)} labels: give `positive`, the one whose probability is a score"
        )
    return options.labels[1]


def _limit(k: float) -> int | None:
    return int(k) if math.isfinite(k) else None


_LABELS = frozenset(("labels",))
_K = Knob(name="K", default=1, low=1, whole=True)
_CUT = Knob(name="K", default=math.inf, low=1, whole=True)

METRICS: dict[str, MetricInfo] = {
    info.name: info
    for info in (
        _number(
            "rmse", "root of the mean squared error", "mean", lambda y, x, _: numbers.squared(y, x), finish=math.sqrt
        ),
        _number("mse", "mean squared error", "mean", lambda y, x, _: numbers.squared(y, x)),
        _number("mae", "mean absolute error", "median", lambda y, x, _: numbers.absolute(y, x)),
        _number(
            "pinball",
            "mean pinball loss at TAU",
            "quantile",
            numbers.pinball,
            knob=Knob(name="TAU", default=0.5, low=0, high=1, open=True),
        ),
        _number(
            "mape",
            "mean of |y - x| / |y|, a share; targets of 0 left out",
            "percentage-median",
            lambda y, x, _: numbers.percentage(y, x),
        ),
        _number("msle", "mean squared error of log(1 + y)", "log-mean", lambda y, x, _: numbers.squared_log(y, x)),
        _number(
            "huber",
            "mean Huber loss, linear beyond DELTA",
            "huber",
            numbers.huber,
            knob=Knob(name="DELTA", default=1, low=0, open=True),
        ),
        _number(
            "within",
            "share of rows within EPS of the target",
            "window",
            numbers.within,
            better="higher",
            knob=Knob(name="EPS", default=0.5, low=0),
        ),
        _score("pearson", "correlation with the targets", "mean", numbers.pearson, surrogate=True),
        _score(
            "spearman",
            "correlation of the ranks",
            "expected-rank",
            numbers.spearman,
            surrogate=True,
        ),
        _score(
            "multipartite",
            "share of pairs in the right order, weighted by the distance of their targets",
            "mean",
            numbers.multipartite,
            surrogate=True,
        ),
        MetricInfo(
            name="crps",
            says="continuous ranked probability score",
            better="lower",
            kind="numbers",
            gives="law",
            rule="law-of-numbers",
            rows=_each(lambda y, law, _: numbers.crps(float(y), as_numbers(law), law.weights)),
        ),
        MetricInfo(
            name="accuracy",
            says="share of predictions equal to the target",
            better="higher",
            kind="labels",
            gives="label",
            rule="mode",
            rows=lambda y, x, _: labels.exact(y, x),
        ),
        MetricInfo(
            name="balanced-accuracy",
            says="mean over labels of the share that was found",
            better="higher",
            kind="labels",
            gives="label",
            rule="balanced",
            whole=lambda y, x, _: labels.balanced_accuracy(y, x),
        ),
        MetricInfo(
            name="cost",
            says="mean cost by the cost matrix",
            better="lower",
            kind="labels",
            gives="label",
            rule="least-cost",
            rows=lambda y, x, asked: labels.cost(y, x, asked.options.labels or (), asked.options.costs or ()),
            takes=frozenset(("labels", "costs")),
            must=frozenset(("labels", "costs")),
        ),
        MetricInfo(
            name="ordinal-linear",
            says="mean distance in places between ordered labels",
            better="lower",
            kind="labels",
            gives="label",
            rule="ordinal-median",
            rows=_ordinal(1),
            takes=_LABELS,
            must=_LABELS,
        ),
        MetricInfo(
            name="ordinal-quadratic",
            says="mean squared distance in places",
            better="lower",
            kind="labels",
            gives="label",
            rule="ordinal-mean",
            rows=_ordinal(2),
            takes=_LABELS,
            must=_LABELS,
        ),
        MetricInfo(
            name="qwk",
            says="quadratic weighted kappa",
            better="higher",
            kind="labels",
            gives="label",
            rule="ordinal-mean",
            whole=lambda y, x, asked: labels.weighted_kappa(
                places(y, asked.options.labels), places(x, asked.options.labels)
            ),
            takes=_LABELS,
            must=_LABELS,
            surrogate=True,
        ),
        MetricInfo(
            name="auc",
            says="share of (positive, other) pairs of rows in the right order",
            better="higher",
            kind="labels",
            gives="number",
            rule="probability",
            whole=_auc,
            takes=frozenset(("labels", "positive")),
        ),
        MetricInfo(
            name="brier",
            says="mean squared error of the probabilities, 0 to 2",
            better="lower",
            kind="labels",
            gives="law",
            rule="law",
            rows=_each(lambda y, law, _: labels.brier(y, as_mapping(law))),
        ),
        MetricInfo(
            name="log-loss",
            says="mean -log probability of the target, nats",
            better="lower",
            kind="labels",
            gives="law",
            rule="law",
            rows=_each(lambda y, law, _: labels.log_loss(y, as_mapping(law))),
        ),
        MetricInfo(
            name="hamming",
            says="mean number of labels that are wrong",
            better="lower",
            kind="sets",
            gives="set",
            rule="likely-set",
            rows=_each(lambda y, x, _: labels.wrong_labels(y, x)),
        ),
        MetricInfo(
            name="precision",
            says="mean share of the first K that are right",
            better="higher",
            kind="sets",
            gives="ranking",
            rule="top-k",
            rows=_each(lambda y, x, asked: labels.precision_at(y, x, int(asked.knob))),
            knob=_K,
        ),
        MetricInfo(
            name="recall",
            says="mean share of the target found among the first K; empty targets left out",
            better="higher",
            kind="sets",
            gives="ranking",
            rule="recall-top-k",
            rows=_each(lambda y, x, asked: labels.recall_at(y, x, int(asked.knob))),
            knob=_K,
        ),
        MetricInfo(
            name="f1",
            says="mean F1 of a row's set, 1 where both are empty",
            better="higher",
            kind="sets",
            gives="set",
            rule="f1-set",
            rows=_each(lambda y, x, _: labels.set_f1(y, x)),
        ),
        MetricInfo(
            name="list-auc",
            says="mean AUC within a row's list; rows without a pair left out",
            better="higher",
            kind="sets",
            gives="ranking",
            rule="auc-order",
            rows=_each(lambda y, x, _: labels.list_auc(y, x)),
        ),
        MetricInfo(
            name="dcg",
            says="mean discounted gain of the first K",
            better="higher",
            kind="sets",
            gives="ranking",
            rule="dcg-order",
            rows=_each(lambda y, x, asked: labels.dcg(y, x, _limit(asked.knob))),
            knob=_CUT,
        ),
        MetricInfo(
            name="ndcg",
            says="mean DCG over that of the best order; rows without a gain left out",
            better="higher",
            kind="sets",
            gives="ranking",
            rule="ndcg-order",
            rows=_each(lambda y, x, asked: labels.ndcg(y, x, _limit(asked.knob))),
            knob=_CUT,
        ),
        _text("token-f1", "mean F1 of the bags of words (SQuAD)"),
        _text("chrf", "mean sentence chrF (sacrebleu), as a share"),
        _text("rouge-l", "mean F1 of the longest common subsequence of words (rouge-score)"),
        _text("bleu", "mean sentence BLEU (sacrebleu, effective order), as a share; not corpus BLEU"),
        _text("edit", "mean 1 - Levenshtein distance / longer length (rapidfuzz)"),
    )
}
ALIASES = {"exact-match": "accuracy", "em": "accuracy", "quantile": "pinball", "precision-at": "precision"}


def metric_named(spec: str) -> MetricInfo:
    """The metric ``NAME`` or ``NAME:VALUE`` (``pinball:0.9``, ``ndcg@10``). Raises ``OptionError`` for others."""
    return entry_named("metric", spec, METRICS, aliases=ALIASES)
