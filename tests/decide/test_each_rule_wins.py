"""A table: on targets drawn from the laws themselves, each rule is the best of its kind on its own metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decide_tools import ITEMS
from wager.decide.law import Law
from wager.decide.metrics import expected, measure, metric_named
from wager.decide.options import Options
from wager.decide.rules import decide, rule_for

LABELS = ("none", "some", "much", "all")
COSTS = ((0, 1, 2, 3), (4, 0, 1, 2), (8, 3, 0, 1), (20, 9, 4, 0))


def number_laws(rng: np.random.Generator) -> list[Law]:
    """Skewed laws on a fine grid, so that means, medians, modes and windows differ."""
    found = []
    for _ in range(150):
        values = np.round(rng.lognormal(mean=rng.uniform(0, 1.5), sigma=0.9, size=7), 2) + 0.05
        found.append(Law.of(values.tolist(), rng.dirichlet(np.full(7, 0.8))))
    return found


def label_laws(rng: np.random.Generator) -> list[Law]:
    return [Law.of(LABELS, rng.dirichlet((0.9, 0.5, 0.4, 0.3))) for _ in range(400)]


def vector_laws(rng: np.random.Generator) -> list[Law]:
    """Outcomes of very different sizes, which is what tells sums over labels from sums over sets."""
    found = []
    for _ in range(200):
        outcomes = [tuple(int(i) for i in rng.random(5) < share) for share in (0.15, 0.2, 0.3, 0.5, 0.9)]
        found.append(Law.of(outcomes, rng.dirichlet(np.full(5, 0.8))))
    return found


def drawn(laws: list[Law], n: int, rng: np.random.Generator) -> tuple[list[Any], list[int]]:
    """``n`` targets of each law, and which law each is of. Drawn systematically, for little noise: one number moves the
    n evenly spaced points at which the cumulative weights are read.
    """
    targets, rows = [], []
    for i, law in enumerate(laws):
        places = np.searchsorted(np.cumsum(law.weights), (np.arange(n) + rng.random()) / n * (1 - 1e-12))
        targets += [law.values[j] for j in np.minimum(places, len(law) - 1)]
        rows += [i] * n
    return targets, rows


def table(metrics: list[str], laws: list[Law], n: int, options: Options, *, seed: int) -> dict[str, dict[str, float]]:
    """metric -> the metric whose rule was followed -> value, larger being better."""
    targets, rows = drawn(laws, n, np.random.default_rng(seed))
    predictions = {}
    for name in metrics:
        rule = rule_for(name)
        told = options.learnt(targets, rule.takes).only(rule.takes)
        predictions[name] = [decide(law, rule, options=told).value for law in laws]
    found: dict[str, dict[str, float]] = {}
    for metric in metrics:
        sign = 1 if metric_named(metric).better == "higher" else -1
        found[metric] = {
            rule: sign * measure(metric, targets, [chosen[i] for i in rows], options=options)
            for rule, chosen in predictions.items()
        }
    return found


def check(found: dict[str, dict[str, float]], metrics: list[str]) -> None:
    for metric in metrics:
        row = found[metric]
        others = {rule: value for rule, value in row.items() if rule_for(rule).name != rule_for(metric).name}
        best = max(others, key=lambda rule: others[rule])
        assert row[metric] > others[best], f"{metric}: {best} is better, {row}"


def test_numbers() -> None:
    """Seed 0, 150 laws with 30 targets each. The surrogates are best here, which is no proof."""
    losses = ["rmse", "mae", "pinball:0.1", "pinball:0.9", "mape", "msle", "huber:0.5", "within:0.3"]
    laws = number_laws(np.random.default_rng(0))
    found = table([*losses, "pearson", "spearman", "multipartite"], laws, 30, Options(), seed=0)
    check(found, [*losses, "pearson", "spearman", "multipartite"])


def test_labels() -> None:
    """Seed 1, 400 laws with 20 targets each."""
    metrics = ["accuracy", "balanced-accuracy", "cost", "ordinal-linear", "ordinal-quadratic"]
    options = Options(labels=LABELS, costs=COSTS)
    check(table(metrics, label_laws(np.random.default_rng(1)), 20, options, seed=1), metrics)


def test_sets() -> None:
    """Seed 2, 200 laws with 20 targets each."""
    check(table(["hamming", "f1"], vector_laws(np.random.default_rng(2)), 20, Options(), seed=2), ["hamming", "f1"])


def test_rankings() -> None:
    """Seed 3, 150 laws with 15 targets each."""
    rng = np.random.default_rng(3)
    relevant = ["precision:5", "recall:5", "list-auc", "ndcg"]
    laws = vector_laws(rng)[:150]
    targets, rows = drawn(laws, 15, rng)
    orders = {name: [decide(law, rule_for(name)).value for law in laws] for name in relevant}
    for metric, rivals in {
        "precision:2": ["recall:5", "list-auc", "ndcg"],
        "recall:2": ["precision:5", "list-auc", "ndcg"],
        "list-auc": ["precision:5", "recall:5", "ndcg"],
        "ndcg": ["precision:5", "recall:5", "list-auc"],
        "dcg": ["recall:5", "list-auc", "ndcg"],
    }.items():
        own = {"precision:2": "precision:5", "recall:2": "recall:5", "dcg": "precision:5"}.get(metric, metric)
        values = {name: measure(metric, targets, [orders[name][i] for i in rows]) for name in [own, *rivals]}
        assert values[own] == max(values.values()), values
        assert sum(value == values[own] for value in values.values()) == 1, values


def test_scores_and_laws() -> None:
    """Seed 4, 400 laws with 20 targets each: the probability against a hard label; the law against a sharper one."""
    rng = np.random.default_rng(4)
    laws = label_laws(rng)
    targets, rows = drawn(laws, 30, rng)
    options = Options(positive="some")
    scores = [decide(law, rule_for("auc"), options=options).value for law in laws]
    hard = [float(decide(law, rule_for("accuracy")).value == "some") for law in laws]
    values = [measure("auc", targets, [x[i] for i in rows], options=options) for x in (scores, hard)]
    assert values[0] > values[1]
    sharp = [Law.of(law.values, law.weights**2) for law in laws]
    flat = [Law.of(law.values, law.weights**0.5) for law in laws]
    for metric in ("brier", "log-loss"):
        own, *others = (measure(metric, targets, [x[i] for i in rows]) for x in (laws, sharp, flat))
        assert own < min(others)
    numbers = number_laws(rng)
    targets, rows = drawn(numbers, 10, rng)
    points = [Law.of([decide(law, rule_for("mae")).value]) for law in numbers]
    assert measure("crps", targets, [numbers[i] for i in rows]) < measure("crps", targets, [points[i] for i in rows])


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "off", "to", "see", "old", "red", "barn"]


@pytest.mark.parametrize("metric", ["token-f1", "chrf", "rouge-l", "bleu", "edit"])
def test_texts(metric: str) -> None:
    """Seed 5, 12 laws of 5 texts: the expected utility is computed, not drawn, and no other text has more."""
    rng = np.random.default_rng(5)
    modes = 0
    for _ in range(12):
        texts = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(5)]
        law = Law.of(texts, rng.dirichlet(np.full(5, 6.0)))
        chosen = decide(law, rule_for(metric), options=Options(candidates=("the cat", "a mat"))).value
        gains = {text: expected(metric, law, text) for text in (*law.values, "the cat", "a mat")}
        assert gains[chosen] == max(gains.values())
        modes += chosen == decide(law, rule_for("accuracy")).value
    assert modes < 12  # the likeliest text is not always the one


def test_sets_have_names_too() -> None:
    law = Law.of([frozenset("ab"), frozenset("a"), frozenset("cd")], [0.3, 0.3, 0.4])
    assert decide(law, rule_for("hamming"), options=Options(labels=ITEMS)).value == frozenset("a")
