"""The estimator: scikit-learn's own checks, and what it learns from calibration rows. No model: laws are made here."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from wager.decide.law import Law
from wager.decide.metrics import measure
from wager.decide.options import Options
from wager.decide.predictor import MetricAwarePredictor
from wager.errors import OptionError

LABELS = ("a", "b", "c")


def laws_of_vectors(rows: Any) -> list[Law]:
    """Two outcomes by a vector's own numbers; a missing one did not parse."""
    matrix = np.asarray(rows, dtype=np.float64)
    pairs = [(row.mean(), row[0]) for row in matrix]
    return [Law.of([None if math.isnan(y) else float(y) for y in pair], [2, 1]) for pair in pairs]


def laws_of_zero_and_one(rows: Any) -> list[Law]:
    matrix = np.nan_to_num(np.asarray(rows, dtype=np.float64))
    return [Law.of([0, 1], [1, 1 + 0.9 * np.tanh(row[0])]) for row in matrix]


def laws_of_texts(rows: Any) -> list[Law]:
    """A row is a text of digits, one draw each."""
    return [Law.of([float(c) for c in text]) for text in rows]


def laws_of_letters(rows: Any) -> list[Law]:
    return [Law.of([None if c == "?" else c for c in text]) for text in rows]


@pytest.mark.parametrize(
    "predictor",
    [
        MetricAwarePredictor(laws_of_vectors, metric="rmse", affine=True),
        MetricAwarePredictor(laws_of_vectors, metric="mae", conformal="absolute"),
        MetricAwarePredictor(laws_of_zero_and_one, metric="accuracy"),
    ],
    ids=lambda p: p.metric,
)
def test_the_checks_of_scikit_learn(predictor: MetricAwarePredictor) -> None:
    """All that run pass. Not run, as docs/decide.md says: those that want rows to be vectors, or fit to be needed."""
    with pytest.warns(UserWarning, match="does not inherit"):
        results = check_estimator(predictor, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert {name for name in skipped if not name.endswith("data_not_an_array")} <= {"check_array_api_input"}
    assert sum(r["status"] == "passed" for r in results) >= 38


def test_the_metric_decides_what_is_predicted() -> None:
    rows = ["0019", "123"]
    guesses = {m: MetricAwarePredictor(laws_of_texts, metric=m).predict(rows).tolist() for m in ("rmse", "mae")}
    assert guesses == {"rmse": [2.5, 2.0], "mae": [0.0, 2.0]}
    assert MetricAwarePredictor(laws_of_letters, metric="accuracy").predict(["aab", "cb"]).tolist() == ["a", "c"]
    law = MetricAwarePredictor(laws_of_letters, metric="brier").predict(["aab"])[0]
    assert isinstance(law, Law)


def test_a_row_without_an_answer() -> None:
    numbers = MetricAwarePredictor(laws_of_texts, metric="mae")
    assert np.isnan(numbers.predict(["", "3"])).tolist() == [True, False]
    assert MetricAwarePredictor(laws_of_letters).predict(["?", "a"]).tolist() == [None, "a"]
    filled = MetricAwarePredictor(laws_of_letters, options=Options(fallback="c"))
    assert filled.predict(["?", "a"]).tolist() == ["c", "a"]


def test_a_line_brings_scores_to_the_targets() -> None:
    rng = np.random.default_rng(0)
    rows = ["".join(map(str, rng.integers(0, 10, 4))) for _ in range(60)]
    plain = MetricAwarePredictor(laws_of_texts, metric="rmse")
    targets = 100 - 3 * plain.predict(rows)
    fitted = MetricAwarePredictor(laws_of_texts, metric="rmse", affine=True).fit(rows, targets)
    assert fitted.score(rows, targets) == pytest.approx(0, abs=1e-9)
    assert plain.score(rows, targets) < -50
    with pytest.raises(OptionError, match="not fitted"):
        MetricAwarePredictor(laws_of_texts, metric="rmse", affine=True).predict(rows)


def test_priors_and_ranks_are_learnt_from_the_targets() -> None:
    balanced = MetricAwarePredictor(laws_of_letters, metric="balanced-accuracy")
    with pytest.raises(OptionError, match="priors"):
        balanced.predict(["aab"])
    assert balanced.fit(["aab"] * 4, list("aaab")).predict(["aab"]).tolist() == ["b"]
    assert balanced.options_.priors == {"a": 0.75, "b": 0.25}
    assert balanced.options is None  # what was given stays as it was
    ranks = MetricAwarePredictor(laws_of_texts, metric="spearman").fit(["1", "2"], [1, 2])
    assert ranks.predict(["2", "9"]).tolist() == [0.75, 1.0]


def test_guarantees_use_rows_that_nothing_was_fitted_on() -> None:
    """With a line the intervals come from half of the rows; without one from all."""
    rows = [str(i % 10) for i in range(40)]
    targets = [2.0 * (i % 10) + i % 3 for i in range(40)]
    with_line = MetricAwarePredictor(laws_of_texts, metric="rmse", affine=True, conformal="absolute").fit(rows, targets)
    alone = MetricAwarePredictor(laws_of_texts, metric="rmse", conformal="absolute").fit(rows, targets)
    counts = [p.calibration_.intervals.n for p in (with_line, alone) if p.calibration_.intervals]
    assert counts == [20, 40]
    ends = with_line.predict_interval(rows)
    assert np.mean((ends[:, 0] <= targets) & (targets <= ends[:, 1])) >= 0.85
    assert np.ptp(ends, axis=1).max() < np.ptp(alone.predict_interval(rows), axis=1).max()


def test_sets_and_withheld_answers() -> None:
    """Laws are right where they are sure, and wrong half the time where they are not."""
    sure, unsure = ["aaaa", "bbbb", "cccc"], ["aabb", "bbcc", "ccaa"]
    rows = (sure + unsure) * 10
    targets = (list("abc") + list("bca")) * 10
    predictor = MetricAwarePredictor(laws_of_letters, abstain=0.1).fit(rows, targets)
    assert predictor.released([*sure, *unsure]).tolist() == [True] * 3 + [False] * 3
    assert predictor.classes_.tolist() == ["a", "b", "c"]
    sets = MetricAwarePredictor(laws_of_letters, labels=LABELS, conformal="aps", level=0.8).fit(rows, targets)
    assert sets.predict_set(["aaaa", "ccaa", "?"]) == [("a",), ("a", "c"), LABELS]
    with pytest.raises(OptionError, match="`labels`"):
        sets.set_params(labels=None).fit(rows, targets)


def test_labels_are_told_to_rules_that_take_them() -> None:
    predictor = MetricAwarePredictor(laws_of_letters, metric="ordinal-linear", labels=LABELS)
    assert predictor.predict(["aabcc"]).tolist() == ["b"]
    assert predictor.fit(["aabcc"], ["c"]).score(["aabcc"], ["c"]) == -1


def test_it_is_cloned_pickled_and_cross_validated() -> None:
    predictor = MetricAwarePredictor(laws_of_texts, metric="mae", level=0.8)
    assert clone(predictor).get_params() == predictor.get_params()
    assert "level=0.8" in repr(predictor)
    rows, targets = np.array(["12", "35", "99", "07"] * 5), [1.0, 4.0, 9.0, 0.0] * 5
    again = pickle.loads(pickle.dumps(predictor.fit(rows, targets)))
    assert again.predict(rows).tolist() == predictor.predict(rows).tolist()
    scores = cross_val_score(predictor, rows, np.array(targets), cv=2)
    halves = [-measure("mae", targets[:10], predictor.predict(rows[:10]))] * 2
    assert scores.tolist() == pytest.approx(halves, abs=0.2)


def fails(says: str, fit: Any = None, **params: Any) -> Any:
    return pytest.param(params, fit or (["12"], [1.0]), says, id=says)


@pytest.mark.parametrize(
    ("params", "fit", "says"),
    [
        fails("`laws`", laws=None),
        fails("one per row", laws=lambda rows: []),
        fails("`affine`", laws=laws_of_letters, affine=True),
        fails("absolute, normalised", metric="mae", conformal="aps"),
        fails("aps, saps", laws=laws_of_letters, metric="accuracy", conformal="absolute"),
        fails("intervals", metric="mae", abstain=0.1),
        fails("no numbers", (["12"], ["x"]), metric="mae"),
        fails("infinity", (["12"], [math.inf]), metric="mae"),
        fails("at least one", ([], []), metric="mae"),
        fails("2 targets", (["12"], [1, 2]), metric="mae"),
        fails("y to be passed", (["12"], None), metric="mae"),
        fails("accuracy", metric="odd"),
    ],
)
def test_what_does_not_go_together_is_said(params: dict[str, Any], fit: Any, says: str) -> None:
    predictor = MetricAwarePredictor(**{"laws": laws_of_texts, **params})
    with pytest.raises(OptionError, match=says):
        predictor.fit(*fit)


def test_what_was_not_asked_for_cannot_be_had() -> None:
    predictor = MetricAwarePredictor(laws_of_texts, metric="mae").fit(["12"], [1.0])
    for call, says in ((predictor.predict_interval, "absolute"), (predictor.predict_set, "aps")):
        with pytest.raises(OptionError, match=says):
            call(["12"])
    with pytest.raises(OptionError, match="abstain"):
        predictor.released(["12"])
    with pytest.raises(OptionError, match="`odd`"):
        predictor.set_params(odd=1)
