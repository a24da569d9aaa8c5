"""`wager decide` with costs, sets, intervals and withheld answers: what its library gives for the same laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deciding import decided, job_in, law_of, rows_of, write_data
from wager.decide.conformal import calibrate_intervals, calibrate_release, calibrate_sets, confidence
from wager.decide.costs import read_costs
from wager.decide.law import Law
from wager.decide.report import released, to_json

LABELS = ("yes", "no", "maybe")


def write_labels(folder: Path, name: str, n: int) -> tuple[list[Law], list[str]]:
    """n rows whose targets are the likeliest label of their law, in two of three rows; the laws and the targets."""
    write_data(folder, 1)
    laws = [law_of(f"Rate: {name}{i}\nScore:", LABELS, None) for i in range(n)]
    targets = [LABELS[(int(np.argmax(law.weights)) + (i % 3 == 0)) % 3] for i, law in enumerate(laws)]
    lines = [f"{name}{i},{target}" for i, target in enumerate(targets)]
    (folder / f"{name}.csv").write_text("text,score\n" + "\n".join(lines) + "\n")
    return laws, targets


def labelled(folder: Path, **given: Any) -> dict[str, Any]:
    usual = {"labels": ",".join(LABELS), "metric": "accuracy", "calibration": folder / "train.csv"}
    return {**usual, "data": folder / "new.csv", **given}


def test_costs_decide_and_are_read_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, _ = write_labels(tmp_path, "new", 20)
    (tmp_path / "costs.csv").write_text("right,no,yes,maybe\nmaybe,1,1,0\nyes, 9 ,0,2\nno,0,1,2\n")
    costs = read_costs(tmp_path / "costs.csv", LABELS, str)
    assert costs == ((0, 9, 2), (1, 0, 2), (1, 1, 0))
    job = job_in(tmp_path, **labelled(tmp_path, metric="cost,accuracy", calibration=None, costs=tmp_path / "costs.csv"))
    outcome, _ = decided(job, monkeypatch)
    found = [row["prediction_cost"] for row in rows_of(tmp_path / "out.csv")]
    assert found == [LABELS[int(np.argmin(law.weights @ np.array(costs)))] for law in laws]
    job_without = job_in(tmp_path, **labelled(tmp_path, calibration=None))
    assert job_without.settings == job.settings  # the same answers serve both
    by_name = {score.method.name: score for score in outcome.scores}
    assert by_name["least-cost"].method.best_for == {"cost"}
    assert set(by_name["mode"].cells) == {"cost", "accuracy"}


@pytest.mark.parametrize("method", ["aps", "saps"])
def test_sets_are_those_of_the_method_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    laws, targets = write_labels(tmp_path, "train", 40)
    new, _ = write_labels(tmp_path, "new", 20)
    decided(job_in(tmp_path, **labelled(tmp_path, conformal=method, coverage=0.6)), monkeypatch)
    sets = calibrate_sets(laws, targets, labels=LABELS, level=0.6, method=method)  # type: ignore[arg-type]
    found = [json.loads(row["interval_labels"]) for row in rows_of(tmp_path / "out.csv")]
    assert found == [list(sets.of(law)) for law in new]
    other = calibrate_sets(laws, targets, labels=LABELS, level=0.6, method="saps" if method == "aps" else "aps")
    assert found != [list(other.of(law)) for law in new]


def test_intervals_are_those_of_the_method_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 60)
    (tmp_path / "train.csv").write_text((tmp_path / "data.csv").read_text())
    job = job_in(tmp_path, metric="rmse", calibration=tmp_path / "train.csv", conformal="quantile", coverage=0.7)
    decided(job, monkeypatch)
    laws = [law_of(f"Rate: row {i}, quoted\nScore:", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], None) for i in range(60)]
    targets = [i % 11 / 2 for i in range(60)]
    wanted = calibrate_intervals(laws[1::2], targets[1::2], targets[1::2], level=0.7, method="quantile")
    found = [(float(row["interval_low"]), float(row["interval_high"])) for row in rows_of(tmp_path / "out.csv")]
    assert found == [wanted.of(law, 0.0) for law in laws]


def test_answers_are_withheld_by_the_wrong_ones_of_calibration_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laws, _ = write_labels(tmp_path, "train", 60)
    new, truths = write_labels(tmp_path, "new", 40)
    outcome, _ = decided(job_in(tmp_path, **labelled(tmp_path, abstain=0.2, metric="accuracy,brier")), monkeypatch)
    wrong = [i % 3 == 0 for i in range(60)]  # a third of the targets is not the likeliest label
    rule = calibrate_release([confidence(law) for law in laws], wrong, alpha=0.2)
    wanted = [rule.of(confidence(law)) for law in new]
    rows = rows_of(tmp_path / "out.csv")
    assert [row["released_accuracy"] for row in rows] == [str(int(out)) for out in wanted]
    assert 0 < sum(wanted) < 40
    assert "released_brier" not in rows[0]
    assert all(row["prediction_accuracy"] for row in rows)
    n_wrong_out = sum(out and row["prediction_accuracy"] != y for out, row, y in zip(wanted, rows, truths, strict=True))
    counts = {"n": 40, "n_out": sum(wanted), "n_wrong": 14, "n_wrong_out": n_wrong_out, "alpha": 0.2}
    assert to_json(outcome)["released"] == {"accuracy": counts}
    told, promise = released(outcome)
    assert told.startswith(
        f"accuracy: {sum(wanted)} of 40 answers released, by 20 wrong calibration answers; of 14 wrong"
    )
    assert "at most 20.0% of the wrong answers are released; not promised" in promise


def test_too_few_wrong_answers_release_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_labels(tmp_path, "train", 9)
    write_labels(tmp_path, "new", 5)
    outcome, _ = decided(job_in(tmp_path, **labelled(tmp_path, abstain=0.2)), monkeypatch)
    assert {row["released_accuracy"] for row in rows_of(tmp_path / "out.csv")} == {"0"}
    assert "0 of 5 answers released, by 3 wrong calibration answers (none is with fewer than 4)" in released(outcome)[0]
