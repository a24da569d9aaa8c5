"""`wager decide` from rows to predictions: what is written, what is resumed, what is refused; no model is needed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deciding import FakeEstimator, decided, job_in, law_of, rows_of, write_data
from wager.decide.answered import Answered, law_json
from wager.decide.job import Job
from wager.decide.law import Law
from wager.decide.metrics import metric_named
from wager.decide.options import Options
from wager.decide.outcome import journal_of, run
from wager.decide.report import held, table, to_json
from wager.decide.rules import rule_for
from wager.decide.scoreboard import Scoreboard, methods
from wager.errors import OptionError, PromptError

TESTS = Path(__file__).parents[1]
VALUES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_row_out_for_each_row_in_with_the_best_prediction_for_each_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 30)
    outcome, said = decided(job_in(tmp_path), monkeypatch)
    found = rows_of(tmp_path / "out.csv")
    assert [int(row["row"]) for row in found] == list(range(1, 31))
    assert [int(row["line"]) for row in found] == list(range(2, 32))
    for i, row in enumerate(found):
        law = law_of(f"Rate: row {i}, quoted\nScore:", VALUES, None)
        mean = float(law.weights @ np.array(law.values))
        cumulative = np.cumsum(law.weights)
        assert float(row["prediction_rmse"]) == pytest.approx(mean)
        assert float(row["prediction_mae"]) == np.argmax(cumulative >= 0.5)
        assert float(row["prediction_accuracy"]) == float(row["law_mode"]) == np.argmax(law.weights)
        assert float(row["law_spread"]) == pytest.approx(math.sqrt(law.weights @ (np.array(law.values) - mean) ** 2))
        assert float(row["law_entropy"]) == pytest.approx(-law.weights @ np.log2(law.weights))
        assert (float(row["covered"]), int(row["n_tokens"]), row["error"]) == (0.9, 6, "")
        assert float(row["target"]) == i % 11 / 2
    assert (outcome.n_rows, outcome.n_errors, outcome.n_targets, said) == (30, 0, 30, [])


def test_the_table_has_every_method_on_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 40)
    (tmp_path / "train.csv").write_text((tmp_path / "data.csv").read_text())
    job = job_in(tmp_path, calibration=tmp_path / "train.csv", compare_estimators=True, metric="rmse,mae,brier,rmse")
    outcome, _ = decided(job, monkeypatch)
    names = [score.method.name for score in outcome.scores]
    assert names[:8] == [
        "greedy",
        "one sample",
        "majority of 4",
        "majority of 16",
        "mean",
        "median",
        "law",
        "mean, sample",
    ]
    assert names[-3:] == ["affine greedy", "affine mean", "constant"]
    by_name = {score.method.name: score for score in outcome.scores}
    targets = np.array([i % 11 / 2 for i in range(40)])
    assert by_name["constant"].cells["rmse"].value == pytest.approx(targets.std())
    assert by_name["affine mean"].cells["rmse"].value <= targets.std()  # fitted on the same rows
    assert set(by_name["law"].cells) == {"brier"}
    assert set(by_name["greedy"].cells) == {"rmse", "mae", "brier"}
    means = np.array([float(row["law_mean"]) for row in rows_of(tmp_path / "out.csv")])
    assert by_name["mean"].cells["rmse"].value == pytest.approx(math.sqrt(((means - targets) ** 2).mean()))
    lines = table(outcome, job.metrics).splitlines()
    assert lines[0].split("|")[2].strip() == "rmse ↓"
    assert len({len(line) for line in lines}) == 1
    assert any(line.startswith("| mean (for rmse)") for line in lines)
    assert sum(line.split("|")[2].strip().startswith("**") for line in lines) == 1
    assert json.loads(json.dumps(to_json(outcome), allow_nan=False))["n_targets"] == 40


def test_intervals_come_from_calibration_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is fitted on every second row, the others size the intervals, by hand here."""
    write_data(tmp_path, 200)
    means = np.array([law_of(f"Rate: t{i}\nScore:", VALUES, None).weights @ np.array(VALUES) for i in range(100)])
    rows = [f"t{i},{mean / 2 + i % 7}" for i, mean in enumerate(means)]
    (tmp_path / "train.csv").write_text("text,score\n" + "\n".join(rows) + "\n")
    job = job_in(tmp_path, calibration=tmp_path / "train.csv", coverage=0.8, metric="rmse")
    outcome, _ = decided(job, monkeypatch)
    targets = np.array([float(row.split(",")[1]) for row in rows])
    slope, at_zero = np.polyfit(means[::2], targets[::2], 1)
    misses = np.sort(np.abs(targets - slope * means - at_zero)[1::2])
    for row in rows_of(tmp_path / "out.csv"):
        centre = at_zero + slope * float(row["law_mean"])
        assert float(row["interval_low"]) == pytest.approx(centre - misses[40])  # the 41st of 50: ceil(51 x 0.8)
        assert float(row["interval_high"]) == pytest.approx(centre + misses[40])
    assert outcome.held.n == 200
    assert "(80.0% asked for)" in held(outcome, 0.8)


def test_new_rows_need_no_targets_but_rows_to_learn_from_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 30)
    (tmp_path / "data.csv").rename(tmp_path / "train.csv")
    (tmp_path / "data.csv").write_text("text\nnew\n")
    outcome, _ = decided(job_in(tmp_path, calibration=tmp_path / "train.csv"), monkeypatch)
    assert (outcome.scores, outcome.n_rows) == ([], 1)
    assert float(rows_of(tmp_path / "out.csv")[0]["interval_low"]) < 5
    (tmp_path / "train.csv").write_text("text,score\na,\n")
    with pytest.raises(OptionError, match="no row with a score to learn from"):
        decided(job_in(tmp_path, calibration=tmp_path / "train.csv", out=tmp_path / "new.csv"), monkeypatch)
    assert not journal_of(tmp_path / "new.csv").exists()


def test_sets_of_labels_come_from_calibration_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 60)
    lines = [f"t{i},{('yes', 'no', 'maybe')[i * i % 3]}" for i in range(60)]
    for name in ("data.csv", "train.csv"):
        (tmp_path / name).write_text("text,score\n" + "\n".join(lines) + "\n")
    job = job_in(tmp_path, labels="yes,no,maybe", metric="accuracy", calibration=tmp_path / "train.csv")
    outcome, _ = decided(job, monkeypatch)
    found = [json.loads(row["interval_labels"]) for row in rows_of(tmp_path / "out.csv")]
    assert all(set(labels) <= {"yes", "no", "maybe"} for labels in found)
    inside = sum(line.split(",")[1] in labels for line, labels in zip(lines, found, strict=True))
    assert inside == outcome.held.n_inside >= 54  # the rows calibrated on: at least 9 in 10
    assert outcome.held.size == sum(map(len, found))


def test_rows_without_an_answer_get_the_constant_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 12)
    job = job_in(tmp_path, metric="rmse")
    silent = FakeEstimator([None, None, None, None, None, None])
    outcome, _ = decided(job, monkeypatch, silent)
    assert {(row["prediction_rmse"], row["error"]) for row in rows_of(tmp_path / "out.csv")} == {
        ("", "no answer could be parsed")
    }
    by_name = {score.method.name: score for score in outcome.scores}
    assert by_name["mean"].n_silent == 12
    assert by_name["mean"].cells["rmse"].value == by_name["constant (of these rows)"].cells["rmse"].value
    assert "no answer" in table(outcome, job.metrics)


class Stopped(BaseException):
    """As Ctrl-C, or worse."""


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
        write_data(folder, 60)
        (folder / "train.csv").write_text("text,score\n" + "".join(f"t{i},{i % 5}\n" for i in range(20)))
    given = {"calibration": "train.csv"}

    def job(folder: Path) -> Job:
        return job_in(folder, **{name: folder / value for name, value in given.items()})

    decided(job(whole), monkeypatch)
    asked: list[str] = []
    for stop_after in (10, 10, 1000):  # in the calibration rows, then in the data
        main = FakeEstimator(VALUES)

        def before(prompts: Sequence[str], main: FakeEstimator = main, most: int = stop_after) -> None:
            if len(main.asked) >= most:
                raise Stopped

        main.before = before
        try:
            decided(job(parts), monkeypatch, main)
        except Stopped:
            assert not (parts / "out.csv").exists()
        asked += main.asked
    assert len(asked) == len(set(asked)) == 80
    assert (parts / "out.csv").read_bytes() == (whole / "out.csv").read_bytes()
    assert journal_of(parts / "out.csv").read_bytes() == journal_of(whole / "out.csv").read_bytes()


def test_more_rows_and_other_metrics_need_no_second_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 20)
    main = FakeEstimator(VALUES)
    decided(job_in(tmp_path, rows=5), monkeypatch, main)
    assert (len(main.asked), len(rows_of(tmp_path / "out.csv"))) == (5, 5)
    told: list[tuple[str, int, int]] = []
    run(job_in(tmp_path), lambda: None, say=print, progress=lambda *step: told.append(step))  # type: ignore[arg-type, return-value]
    assert told == [("deciding", 0, 15), ("deciding", 8, 15), ("deciding", 15, 15)]
    assert len(main.asked) == len(set(main.asked)) == 20
    monkeypatch.setattr(Job, "asker", lambda self, llm: pytest.fail("the model was asked again"))
    job = job_in(tmp_path, metric="pinball:0.9,crps", rows=4)
    run(job, lambda: None, say=print, progress=lambda what, done, total: None)  # type: ignore[arg-type, return-value]
    found = rows_of(tmp_path / "out.csv")
    assert len(found) == 4
    assert sum(json.loads(found[0]["prediction_crps"]).values()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(OptionError, match="kind of answer `numbers`, not `labels only`"):
        decided(job_in(tmp_path, metric="qwk", target=None), monkeypatch)  # answers were read otherwise


def test_a_law_in_the_file_keeps_what_is_unlikely() -> None:
    """Six decimals would make it impossible, and the log loss of who reads the file infinite."""
    assert law_json(Law.of(["a", "b"], [1, 2e-9])) == {"a": 1.0, "b": 2e-9}


def test_other_settings_and_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 6)
    decided(job_in(tmp_path), monkeypatch)
    for given, match in (({"seed": 1}, "seed `0`, not `1`"), ({"raw": True}, "chat `True`, not `False`")):
        with pytest.raises(OptionError, match=match):
            decided(job_in(tmp_path, **given), monkeypatch)
    with (tmp_path / "data.csv").open("a") as file:
        file.write("one more,1\n")
    with pytest.raises(OptionError, match=r"data `data.csv \(.*give another --out"):
        decided(job_in(tmp_path), monkeypatch)


def test_bad_rows_stop_it_all_before_the_model_or_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 2)
    with (tmp_path / "data.csv").open("ab") as file:
        file.write(b"a,b,c\ncaf\xe9,1\nx,many\nfine,\nthis is too long,3\nlast,2\n")
    with pytest.raises(OptionError, match=r"3 rows .*line 4: it has 3 fields.*line 5: byte 0xe9.*line 6: .*`many`"):
        decided(job_in(tmp_path), monkeypatch)
    assert not journal_of(tmp_path / "out.csv").exists()
    outcome, said = decided(job_in(tmp_path, skip_errors=True), monkeypatch)
    assert "3 of 8 rows" in said[0]
    found = rows_of(tmp_path / "out.csv")
    assert [bool(row["error"]) for row in found] == [False, False, True, True, True, False, True, False]
    assert "longer than the context" in found[6]["error"]
    assert (outcome.n_rows, outcome.n_errors, outcome.n_targets) == (8, 4, 3)


def test_a_prompt_that_cannot_be_run_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path, 20)
    with (tmp_path / "data.csv").open("a") as file:
        file.write("too long,1\nafter,1\n")
    with pytest.raises(PromptError, match=r"(?s)data.csv` line 22: .*--skip-errors"):
        decided(job_in(tmp_path), monkeypatch)
    main = FakeEstimator(VALUES)
    decided(job_in(tmp_path, skip_errors=True), monkeypatch, main)
    assert len(rows_of(tmp_path / "out.csv")) == 22
    assert "Rate: row 0, quoted\nScore:" not in main.asked  # it was answered before the error


@pytest.mark.parametrize("name", ["out.tsv", "out.jsonl", "out.parquet"])
def test_the_suffix_says_how_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write_data(tmp_path, 9)
    decided(job_in(tmp_path), monkeypatch)
    decided(job_in(tmp_path, out=tmp_path / name), monkeypatch)
    wanted = rows_of(tmp_path / "out.csv")
    found: list[dict[str, Any]]
    if name == "out.parquet":
        found = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / name).to_pylist()
    elif name == "out.jsonl":
        found = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    else:
        lines = [line.split("\t") for line in (tmp_path / name).read_text().splitlines()]
        found = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert [{k: "" if v is None else str(v) for k, v in row.items()} for row in found] == wanted


SCRIPT = """
import resource, sys, time
from pathlib import Path
from deciding import FakeEstimator, fake_asker, job_in
from wager.decide import work
from wager.decide.job import Job
from wager.decide.law import Law
from wager.decide.outcome import run

folder, wait_s, work.TOGETHER = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
main = FakeEstimator([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], before=lambda prompts: time.sleep(wait_s))
Job.asker = lambda self, llm: fake_asker(self, llm, main)
for rows in (200, None):
    job = job_in(folder, metric="rmse", rows=rows, target=None)
    run(job, lambda: None, say=print, progress=lambda what, done, total: None)
    print(len(main.asked), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def scripted(folder: Path, *, wait_s: float = 0.0, together: int = 8) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(wait_s), str(together)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_killed_and_started_again_nothing_is_lost_or_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 400)
    process = scripted(tmp_path, wait_s=0.01)
    journal = journal_of(tmp_path / "out.csv")
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b"\n") < 40:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    n_before = journal.read_bytes().count(b"\n") - 1
    assert 0 < n_before < 400
    assert not (tmp_path / "out.csv").exists()
    out, _ = scripted(tmp_path).communicate(timeout=60)
    assert int(out.split()[-2]) == 400 - n_before
    killed = (tmp_path / "out.csv").read_bytes()
    journal.unlink()
    decided(job_in(tmp_path, metric="rmse", target=None), monkeypatch)
    assert killed == (tmp_path / "out.csv").read_bytes()


def test_ten_thousand_rows_take_little_more_memory_than_two_hundred(tmp_path: Path) -> None:
    """10 MB of rows: nothing is kept of them."""
    write_data(tmp_path, 10_000, padding="long " * 200)
    out, _ = scripted(tmp_path, together=500).communicate(timeout=120)
    n_few, few_bytes, n_all, all_bytes = (int(x) for x in out.split())
    assert (n_few, n_all) == (200, 10_000)
    assert all_bytes - few_bytes < 5e6


def test_each_rule_is_best_on_its_own_metric_where_targets_follow_the_laws() -> None:
    """1000 targets drawn from their rows' laws, seed 0: fixed, so no false alarms."""
    metrics = tuple(metric_named(name) for name in ("rmse", "mae", "accuracy", "pinball:0.9", "within:0.5"))
    options, rng = Options(labels=tuple(VALUES)), np.random.default_rng(0)
    board = Scoreboard(metrics, methods(metrics, options, None, main="enumerate", others=(), n=4), options, None)
    for i in range(1000):
        law = law_of(str(i), VALUES, None)
        draws = rng.choice(law.values, 5, p=law.weights).tolist()
        board.add(
            Answered(
                part="data",
                number=i,
                line=i,
                target=draws[0],
                laws={"enumerate": law},
                greedy=law.values[int(np.argmax(law.weights))],
                samples=tuple(draws[1:]),
            )
        )
    scores = board.scores()
    for metric in metrics:
        values = {score.method.name: score.cells[metric.spec].value for score in scores if metric.spec in score.cells}
        best = min(values.values()) if metric.better == "lower" else max(values.values())
        assert {name for name, value in values.items() if value == best} & {rule_for(metric).name}, (
            metric.spec,
            values,
        )
