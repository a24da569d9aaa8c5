"""`wager decide` where a rule has no prediction, or a metric no number: that much is missing, and it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from deciding import FakeEstimator, decided, job_in, rows_of, write_data
from wager.decide.outcome import journal_of
from wager.decide.report import table, to_json
from wager.errors import OptionError


def test_a_rule_that_fails_on_some_rows_leaves_their_cells_empty_and_all_others_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 30)
    job = job_in(tmp_path, labels="-1..3", metric="rmse,msle", estimator="sample", n=2)
    outcome, _ = decided(job, monkeypatch, FakeEstimator([-1.0, 0.0, 1.0, 2.0, 3.0], n=2))
    found = rows_of(tmp_path / "out.csv")
    failed = [row for row in found if not row["prediction_msle"]]
    assert 0 < len(failed) < 30
    assert all("msle: the law has the value -1.0" in row["error"] for row in failed)
    assert all(row["prediction_rmse"] and (row in failed or not row["error"]) for row in found)
    assert outcome.n_errors == 0  # they have an answer
    [empty, *lacking] = outcome.warnings
    assert empty.startswith(
        f"prediction_msle is empty in {len(failed)} rows with an answer (see the column error): the"
    )
    assert [line[:35] for line in lacking] == ["the table lacks numbers for msle: m"]  # of greedy answers of -1
    by_name = {score.method.name: score for score in outcome.scores}
    assert by_name["log-mean"].n_silent == len(failed)
    assert set(by_name["log-mean"].cells) == {"rmse", "msle"}
    assert set(by_name["greedy"].cells) == {"rmse"}
    assert to_json(outcome)["warnings"] == outcome.warnings


def test_targets_that_a_metric_is_not_defined_on_cost_its_column_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 3)
    with (tmp_path / "data.csv").open("a") as file:
        file.write("cold,-5\n")
    job = job_in(tmp_path, metric="rmse,msle")
    outcome, _ = decided(job, monkeypatch)
    assert {spec for score in outcome.scores for spec in score.cells} == {"rmse"}
    assert "lacks numbers for msle: the law has the value -5.0" in outcome.warnings[0]
    assert "| –" in table(outcome, job.metrics)
    assert all(row["prediction_msle"] for row in rows_of(tmp_path / "out.csv"))


def test_a_label_that_no_calibration_row_has_cannot_be_weighed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the model is asked where all labels are scored; else told with the rows that drew it."""
    write_data(tmp_path, 1)
    lines = [f"t{i},{('yes', 'no')[i % 2]}" for i in range(20)]
    for name in ("data.csv", "train.csv"):
        (tmp_path / name).write_text("text,score\n" + "\n".join(lines) + "\n")
    given = {"labels": "yes,no,maybe", "metric": "balanced-accuracy", "calibration": tmp_path / "train.csv"}
    with pytest.raises(OptionError, match=r"`balanced-accuracy` cannot be decided for: .* for 'maybe'"):
        decided(job_in(tmp_path, **given), monkeypatch)
    assert not journal_of(tmp_path / "out.csv").exists()
    drawing = FakeEstimator(["yes", "no", "maybe"], n=2)
    outcome, _ = decided(job_in(tmp_path, **given, estimator="sample", n=2), monkeypatch, drawing)
    n_empty = sum(not row["prediction_balanced-accuracy"] for row in rows_of(tmp_path / "out.csv"))
    assert 0 < n_empty < 20
    assert f"is empty in {n_empty} rows with an answer (see the column error): `priors` has no" in outcome.warnings[0]


def test_candidates_that_a_rule_cannot_take_are_refused_before_the_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 2)
    with pytest.raises(OptionError, match=r"--metric `msle` cannot be decided for: .*-1.0"):
        decided(job_in(tmp_path, labels="-1..3", metric="rmse,msle"), monkeypatch)
    assert not journal_of(tmp_path / "out.csv").exists()


def test_ranks_are_not_judged_as_numbers_or_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 12)
    (tmp_path / "train.csv").write_text((tmp_path / "data.csv").read_text())
    job = job_in(tmp_path, calibration=tmp_path / "train.csv", metric="rmse,mae,accuracy,pearson,spearman,multipartite")
    outcome, _ = decided(job, monkeypatch)
    [ranks] = [score for score in outcome.scores if score.method.name == "expected-rank"]
    assert set(ranks.cells) == {"pearson", "spearman", "multipartite"}
