"""Rules on labels, sets and rankings against every label, every subset and every permutation."""

from __future__ import annotations

from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from decide_tools import GAINS, ITEMS, LABELLED, LABELS, SETS, VECTORS, fixed, risks
from wager.decide import rules
from wager.decide.law import Law, as_mapping
from wager.decide.metrics import measure
from wager.decide.options import Options
from wager.decide.rules import decide, rule_for
from wager.errors import OptionError

COSTS = ((0, 1, 4, 9), (2, 0, 1, 3), (7, 1, 0, 1), (30, 5, 2, 0))
PRIORS = {"low": 0.4, "middle": 0.3, "high": 0.2, "top": 0.1}


@pytest.mark.parametrize("metric", ["accuracy", "cost", "ordinal-linear", "ordinal-quadratic"])
def test_no_label_is_better_and_the_first_wins(metric: str) -> None:
    options = Options(labels=LABELS, costs=COSTS)

    @fixed
    @given(LABELLED)
    def check(laws: list[Law]) -> None:
        rule = rule_for(metric)
        for law in laws:
            chosen = decide(law, rule, options=options.only(rule.takes)).value
            pool = list(law.values if metric == "accuracy" else LABELS)
            found = risks(metric, law, pool, options=options)
            assert chosen == pool[int(np.argmax(found <= found.min() + 1e-9))], law

    check()


@fixed
@given(LABELLED)
def test_balanced_accuracy_weighs_by_the_prior(laws: list[Law]) -> None:
    """The gain of predicting x is P(x) / prior(x) / number of labels: what a row adds to the mean recall."""
    for law in laws:
        gains = {x: p / PRIORS[x] for x, p in as_mapping(law).items()}
        chosen = decide(law, rule_for("balanced-accuracy"), options=Options(priors=PRIORS)).value
        assert gains[chosen] >= max(gains.values()) - 1e-9


@fixed
@given(LABELLED)
def test_the_law_and_the_probability_are_reported_as_they_are(laws: list[Law]) -> None:
    for law in laws:
        assert decide(law, rule_for("brier")).value is law
        score = decide(law, rule_for("auc"), options=Options(positive="high")).value
        assert score == pytest.approx(as_mapping(law).get("high", 0.0))


@fixed
@given(LABELLED)
def test_no_other_law_scores_better(laws: list[Law]) -> None:
    """The law itself has the least expected Brier score and log loss among mixtures with any other."""
    others = [Law.of(LABELS, weights) for weights in ([1, 1, 1, 1], [5, 1, 1, 1], [1, 0, 0, 3])]
    for law in laws:
        for metric in ("brier", "log-loss"):
            found = risks(metric, law, [law, *others])
            assert found[0] <= found[1:].min() + 1e-9


def subsets() -> list[tuple[int, ...]]:
    return list(product((0, 1), repeat=4))


@pytest.mark.parametrize("metric", ["hamming", "f1"])
def test_no_subset_is_better_and_the_smaller_wins(metric: str) -> None:
    @fixed
    @given(VECTORS)
    def check(laws: list[Law]) -> None:
        for law in laws:
            chosen = decide(law, rule_for(metric)).value
            pool = subsets()
            found = risks(metric, law, pool)
            best = [x for x, risk in zip(pool, found, strict=True) if risk <= found.min() + 1e-9]
            assert chosen in best, law
            assert sum(chosen) == min(sum(x) for x in best), law

    check()


@pytest.mark.parametrize("metric", ["precision:1", "precision:2", "recall:2", "recall:3"])
def test_no_k_labels_are_better(metric: str) -> None:
    k = int(metric[-1])

    @fixed
    @given(VECTORS)
    def check(laws: list[Law]) -> None:
        for law in laws:
            chosen = decide(law, rule_for(metric)).value
            assert len(chosen) == k
            found = risks(metric, law, [chosen, *combinations(range(4), k)])
            assert found[0] <= found[1:].min() + 1e-9, law

    check()


@pytest.mark.parametrize("metric", ["dcg", "dcg:2", "ndcg", "ndcg:1", "ndcg:3", "list-auc"])
def test_no_order_is_better(metric: str) -> None:
    @fixed
    @given(VECTORS if metric == "list-auc" else GAINS)
    def check(laws: list[Law]) -> None:
        for law in laws[:8]:
            chosen = decide(law, rule_for(metric)).value
            assert sorted(chosen) == [0, 1, 2, 3]
            found = risks(metric, law, [chosen, *permutations(range(4))])
            assert found[0] <= found[1:].min() + 1e-9, law

    check()


@fixed
@given(SETS)
def test_sets_of_labels_are_decided_as_their_vectors(laws: list[Law]) -> None:
    """Whatever the order in which the labels came; ties included, as both go by the order of the labels."""
    for law in laws:
        vectors = [tuple(int(item in value) for item in ITEMS) for value in law.values]
        as_vectors = Law.of(vectors, law.weights)
        for metric in ("hamming", "f1"):
            mask = decide(as_vectors, rule_for(metric)).value
            chosen = decide(law, rule_for(metric), options=Options(labels=ITEMS)).value
            assert chosen == frozenset(item for item, on in zip(ITEMS, mask, strict=True) if on)
            assert decide(law, rule_for(metric)).value == chosen
        order = decide(as_vectors, rule_for("list-auc")).value
        assert decide(law, rule_for("list-auc"), options=Options(labels=ITEMS)).value == tuple(ITEMS[i] for i in order)


@fixed
@given(VECTORS)
def test_order_and_duplicates_of_outcomes_do_not_matter(laws: list[Law]) -> None:
    for law in laws:
        weights = np.concatenate([law.weights[::-1], law.weights]) / 2
        doubled = Law(values=(*law.values[::-1], *law.values), weights=weights)
        for metric in ("hamming", "f1", "precision:2", "recall:2", "list-auc", "ndcg"):
            assert decide(doubled, rule_for(metric)).value == decide(law, rule_for(metric)).value


@fixed
@given(VECTORS)
def test_renaming_items_renames_the_answer(laws: list[Law]) -> None:
    """Up to ties: the expected F1 is the same."""
    turn = [2, 0, 3, 1]
    for law in laws:
        turned = Law.of([tuple(value[i] for i in turn) for value in law.values], law.weights)
        first, second = (decide(each, rule_for("f1")).value for each in (law, turned))
        assert risks("f1", law, [first])[0] == pytest.approx(risks("f1", turned, [second])[0])


def test_ties_of_votes_go_to_the_first_draw() -> None:
    assert rules.mode(["b", "a", "a", "b"], [1, 1, 1, 1]) == "b"
    assert rules.mode(["x", "y"], [0.1 + 0.2, 0.3]) == "x"
    assert rules.mode(["x", "y"], [0.3, 0.1 + 0.2]) == "x"  # equal up to rounding


def test_top_k_of_ties_is_in_the_order_of_the_labels() -> None:
    assert rules.top_k([(1, 1, 0), (0, 1, 1), (1, 0, 1)], [1, 1, 1], k=2) == (0, 1)
    assert rules.top_k([(0, 1), (0, 0)], [1, 1], k=3) == rules.recall_top_k([(0, 1)], [1], k=3) == (1, 0)
    answer = decide(Law.of([frozenset("a"), frozenset("ab")]), rule_for("precision:3"))
    assert answer.value == ("a", "b")  # draws may name fewer labels than are asked for
    assert rules.dcg_order([(0, 0.1 + 0.2, 0.3)], [1]) == (1, 2, 0)  # 0.30000000000000004 is no more than 0.3
    assert rules.f1_set([(0, 0)], [1]).tolist() == [False, False]
    assert rules.likely_set([(1, 0), (0, 1)], [1, 1]).tolist() == [False, False]


def test_where_no_outcome_has_a_value_the_order_is_that_of_the_items() -> None:
    assert rules.ndcg_order([(0.0, 0.0)], [1]) == (0, 1)
    assert rules.auc_order([(1, 1), (0, 0)], [1, 1]) == (0, 1)
    assert rules.recall_top_k([(0, 0, 0)], [1], k=2) == (0, 1)


def test_the_set_maximiser_is_right_for_many_labels_too() -> None:
    """Independent labels, where the best set is a number of the likeliest ones."""
    rng = np.random.default_rng(0)
    shares = np.sort(rng.uniform(0, 0.6, 8))[::-1]
    outcomes = np.array(list(product((0, 1), repeat=8)))
    weights = np.where(outcomes == 1, shares, 1 - shares).prod(axis=1)
    chosen = rules.f1_set(outcomes, weights)
    law = Law.of([tuple(int(i) for i in row) for row in outcomes], weights)
    tops = [tuple(int(i < k) for i in range(8)) for k in range(9)]
    assert tuple(chosen.astype(int)) == tops[int(np.argmin(risks("f1", law, tops)))]


LABELLED_LAW = Law.of(["low", "top"])


def bad(metric: str, law: Law, **options: Any) -> Any:
    return lambda: decide(law, rule_for(metric), options=Options(**options))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (bad("cost", LABELLED_LAW), "costs"),
        (bad("cost", LABELLED_LAW, labels=LABELS, costs=((0, 1),)), "4 rows"),
        (bad("ordinal-linear", LABELLED_LAW), "labels"),
        (bad("ordinal-linear", LABELLED_LAW, labels=("low", "high")), "'top'"),
        (bad("balanced-accuracy", LABELLED_LAW), "priors"),
        (bad("balanced-accuracy", LABELLED_LAW, priors={"low": 1.0}), "'top'"),
        (bad("auc", LABELLED_LAW, labels=LABELS), "positive"),
        (bad("auc", LABELLED_LAW, labels=LABELS, positive="none"), "'none'"),
        (bad("f1", LABELLED_LAW), "frozensets"),
        (bad("f1", Law.of([(1, 0), (1,)])), "different lengths"),
        (bad("f1", Law.of([(1, 0.5)])), "zeros and ones"),
        (bad("f1", Law.of([frozenset("ax")]), labels=ITEMS), "'x'"),
        (bad("precision:0", Law.of([(1, 0)])), "whole"),
        (bad("precision:1.5", Law.of([(1, 0)])), "whole"),
        (bad("ndcg", Law.of([(1.0, -1.0)])), "-1.0"),
        (bad("list-auc", Law.of([(1.0, 3.0)])), "0 or 1"),
    ],
)
def test_what_cannot_be_done_is_said(call: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        call()


def test_every_subset_of_a_small_set_is_measured_right() -> None:
    """A check of the judge: F1, precision and recall by hand."""
    everything = list(chain.from_iterable(combinations("ab", k) for k in range(3)))
    f1 = [measure("f1", [frozenset("a")], [frozenset(x)]) for x in everything]
    assert f1 == pytest.approx([0, 1, 0, 2 / 3])
    assert measure("f1", [frozenset()], [frozenset()]) == 1
    assert measure("precision:2", [frozenset("a")], [("a", "b")]) == 0.5
    assert measure("recall:1", [frozenset("ab"), frozenset()], [("a",), ("a",)]) == 0.5
