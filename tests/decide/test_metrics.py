"""Metrics against scikit-learn, scipy and hand-made numbers; their intervals; and the text utilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from wager.decide.law import Law
from wager.decide.metrics import METRICS, difference, expected, interval, measure, metric_named
from wager.decide.options import Options
from wager.decide.rules import RULES, rule_for
from wager.errors import OptionError

RNG = np.random.default_rng(5)
Y = RNG.integers(1, 9, 60) / 2
X = np.round(Y + RNG.normal(size=60), 1) + 1.0
LABELS = ("a", "b", "c")
YL = [LABELS[i] for i in RNG.choice(3, 60, p=[0.6, 0.3, 0.1])]
XL = [LABELS[i] for i in RNG.integers(0, 3, 60)]
YV, XV = RNG.integers(0, 2, (60, 5)), RNG.integers(0, 2, (60, 5))
PLACES = {label: i for i, label in enumerate(LABELS)}


def rows(matrix: np.ndarray) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in matrix.tolist()]


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [
        ("rmse", lambda: sk.root_mean_squared_error(Y, X)),
        ("mse", lambda: sk.mean_squared_error(Y, X)),
        ("mae", lambda: sk.mean_absolute_error(Y, X)),
        ("mape", lambda: sk.mean_absolute_percentage_error(Y, X)),
        ("msle", lambda: sk.mean_squared_log_error(Y, np.maximum(X, 0))),
        ("pinball:0.8", lambda: sk.mean_pinball_loss(Y, X, alpha=0.8)),
        ("pearson", lambda: stats.pearsonr(Y, X).statistic),
        ("spearman", lambda: stats.spearmanr(Y, X).statistic),
    ],
)
def test_numbers(metric: str, theirs: Any) -> None:
    x = np.maximum(X, 0) if metric == "msle" else X
    assert measure(metric, Y, x) == pytest.approx(theirs())
    assert measure(metric, Y.tolist(), x.tolist()) == pytest.approx(theirs())


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [
        ("accuracy", lambda: sk.accuracy_score(YL, XL)),
        ("balanced-accuracy", lambda: sk.balanced_accuracy_score(YL, XL)),
        ("qwk", lambda: sk.cohen_kappa_score(YL, XL, labels=LABELS, weights="quadratic")),
        ("ordinal-linear", lambda: np.mean([abs(PLACES[y] - PLACES[x]) for y, x in zip(YL, XL, strict=True)])),
        ("ordinal-quadratic", lambda: np.mean([(PLACES[y] - PLACES[x]) ** 2 for y, x in zip(YL, XL, strict=True)])),
        ("cost", lambda: np.mean([10 * PLACES[y] + PLACES[x] for y, x in zip(YL, XL, strict=True)])),
    ],
)
def test_labels(metric: str, theirs: Any) -> None:
    options = Options(labels=LABELS, costs=tuple(tuple(10 * i + j for j in range(3)) for i in range(3)))
    assert measure(metric, YL, XL, options=options) == pytest.approx(theirs())


def test_laws() -> None:
    shares = np.random.default_rng(1).dirichlet(np.ones(3), 60)
    laws = [Law.of(LABELS, share) for share in shares]
    hot = np.array([[float(y == label) for label in LABELS] for y in YL])
    assert measure("brier", YL, laws) == pytest.approx(((shares - hot) ** 2).sum(axis=1).mean())
    assert measure("log-loss", YL, laws) == pytest.approx(sk.log_loss(YL, shares, labels=LABELS))
    assert measure("log-loss", ["z"], [Law.of(["a"])]) == pytest.approx(-math.log(1e-15))
    law = Law.of([1.0, 2.0, 4.0], [1, 2, 1])
    grid = np.linspace(-10, 10, 200_001)
    below = np.array([[1.0, 2.0, 4.0]]) <= grid[:, None]
    area = np.sum((below @ law.weights - (grid >= 2.5)) ** 2) * (grid[1] - grid[0])
    assert measure("crps", [2.5], [law]) == pytest.approx(area, abs=1e-3)


def test_scores() -> None:
    scores = RNG.integers(0, 5, 60) / 4.0
    positive = [y == "a" for y in YL]
    theirs = sk.roc_auc_score(positive, scores)
    assert measure("auc", YL, scores, options=Options(positive="a")) == pytest.approx(theirs)
    assert measure("auc", [int(y) for y in positive], scores) == pytest.approx(theirs)
    pairs = [(i, j) for i in range(60) for j in range(60) if Y[i] > Y[j]]
    gaps = np.array([Y[i] - Y[j] for i, j in pairs])
    right = np.array([(X[i] > X[j]) + (X[i] == X[j]) / 2 for i, j in pairs])
    assert measure("multipartite", Y, X) == pytest.approx(gaps @ right / gaps.sum())
    assert math.isnan(measure("auc", [1, 1], [0.2, 0.3]))
    assert math.isnan(measure("pearson", [1.0, 2.0], [0.1, 0.1]))
    assert math.isnan(measure("pearson", [1.0, 2.0, 3.0], [0.1 + 0.2, 0.3, 0.3]))


def test_sets_and_rankings() -> None:
    y, x = rows(YV), rows(XV)
    assert measure("hamming", y, x) == pytest.approx(5 * sk.hamming_loss(YV, XV))
    assert measure("f1", y, x) == pytest.approx(sk.f1_score(YV, XV, average="samples", zero_division=1))
    as_sets = [frozenset(np.flatnonzero(row).tolist()) for row in YV]
    assert measure("f1", as_sets, x) == pytest.approx(measure("f1", y, x))
    scores = np.argsort(np.random.default_rng(2).random((60, 5)), axis=1)  # distinct
    orders = [tuple(np.argsort(-row).tolist()) for row in scores]
    gains = YV * RNG.integers(1, 4, (60, 5))
    some = gains.sum(axis=1) > 0
    for k in (None, 2):
        name = f":{k}" if k else ""
        assert measure("dcg" + name, rows(gains), orders) == pytest.approx(sk.dcg_score(gains, scores, k=k))
        theirs = sk.ndcg_score(gains[some], scores[some], k=k)
        assert measure("ndcg" + name, rows(gains), orders) == pytest.approx(theirs)  # rows without a gain left out
    mixed = (YV.sum(axis=1) > 0) & (YV.sum(axis=1) < 5)
    theirs = np.mean([sk.roc_auc_score(a, b) for a, b in zip(YV[mixed], scores[mixed], strict=True)])
    assert measure("list-auc", y, orders) == pytest.approx(theirs)
    assert measure("ndcg", [frozenset("b")], [("a", "b")]) == pytest.approx(1 / math.log2(3))
    with pytest.raises(OptionError, match="rank all"):
        measure("ndcg", [(1, 0, 0)], [(0, 1)])
    assert measure("precision:4", [frozenset("ab")], [("a", "c")]) == 0.25  # what is not named is not right
    assert measure("recall:4", [frozenset("ab")], [("a", "c")]) == 0.5


def test_huber_and_within() -> None:
    assert measure("huber:1", [0.0, 0.0], [0.5, 3.0]) == pytest.approx((0.125 + 2.5) / 2)
    assert measure("within:0.1", [5.2, 5.2], [5.1, 5.0]) == 0.5
    assert measure("mape", [0.0, 2.0], [1.0, 1.0]) == 0.5  # the row with a target of 0 is left out
    with pytest.raises(OptionError, match="-1"):
        measure("msle", [0.0], [-1.0])


TEXTS = [
    ("token-f1", "The cat, sat.", "a cat sat down", 0.8),
    ("token-f1", "", "", 1.0),
    ("token-f1", "the", "dog", 0.0),
    ("edit", "kitten", "sitting", 1 - 3 / 7),
    ("rouge-l", "the cat sat on the mat", "the mat cat sat", 2 * (3 / 4) * (3 / 6) / (3 / 4 + 3 / 6)),
    ("bleu", "the cat sat on the mat", "the cat sat on the mat", 1.0),
    ("bleu", "a b c d e f", "a b c d e", math.exp(1 - 6 / 5)),
    ("chrf", "abcdef", "abcdef", 1.0),
    ("chrf", "abcdef", "uvwxyz", 0.0),
]


@pytest.mark.parametrize(("metric", "target", "prediction", "value"), TEXTS)
def test_texts(metric: str, target: str, prediction: str, value: float) -> None:
    assert measure(metric, [target], [prediction]) == pytest.approx(value)


@pytest.mark.parametrize(("metric", "truth"), [("mae", 2 / math.sqrt(math.pi)), ("pearson", 0.5**0.5)])
def test_the_interval_holds_the_truth_as_often_as_it_says(metric: str, truth: float) -> None:
    """Seed 3, 100 data sets of 80 rows, level 0.9: at least 80 hold it (fewer by chance once in 1 000 at 0.9)."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(100):
        x, noise = rng.normal(size=(2, 80))
        y = x + noise * (math.sqrt(2) if metric == "mae" else 1)
        found = interval(metric, y, x, level=0.9, n_resamples=120)
        held += found.low <= truth <= found.high
    assert held >= 80


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=100) * 10
    worse, better = y + rng.choice([-1.1, 1.1], 100), y + rng.choice([-1.0, 1.0], 100)
    gap = difference("rmse", y, better, worse, n_resamples=200)
    assert gap.value == pytest.approx(-0.1)
    assert gap.high < 0
    same = difference("spearman", y, better, better, n_resamples=20)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_rows_without_a_value_are_left_out_of_resamples() -> None:
    found = interval("mape", [0.0, 2.0, 2.0], [1.0, 1.0, 1.0], n_resamples=50)
    assert (found.value, found.low, found.high, found.n) == (0.5, 0.5, 0.5, 3)
    nothing = interval("mape", [0.0], [1.0], n_resamples=5)
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.low)


def test_the_expected_value_under_a_law() -> None:
    law = Law.of([1.0, 2.0, 4.0], [1, 2, 1])
    assert expected("mae", law, 2.0) == pytest.approx(0.75)
    assert expected("rmse", law, 2.0) == pytest.approx(math.sqrt(1.25))
    assert expected("mape", Law.of([0.0, 2.0]), 1.0) == 0.5
    with pytest.raises(OptionError, match="many rows"):
        expected("pearson", law, 2.0)
    with pytest.raises(OptionError, match="0 targets"):
        expected("mae", Law.of([]), 2.0)


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(OptionError, match="1 targets or predictions are missing"):
        measure("rmse", [1.0, 2.0], [1.0, None])
    with pytest.raises(OptionError, match="2 targets and 1 predictions"):
        measure("rmse", [1.0, 2.0], [1.0])
    with pytest.raises(OptionError, match="not all numbers"):
        measure("rmse", [1.0], ["a"])
    with pytest.raises(OptionError, match="`labels`"):
        measure("qwk", ["a"], ["b"])


def test_the_tables_of_metrics_and_rules_agree() -> None:
    for info in METRICS.values():
        rule = rule_for(info)
        assert (rule.kind, rule.gives) == (info.kind, info.gives), info.name
        assert (info.rows is None) != (info.whole is None), info.name
        assert (rule.knob is None) == (info.knob is None) or rule.knob is None, info.name
    assert all(rule.metrics for rule in RULES.values())
    assert metric_named("ndcg@3").spec == "ndcg:3"
    assert metric_named("ndcg").spec == "ndcg"
    assert metric_named("exact-match").name == "accuracy"
