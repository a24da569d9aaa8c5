"""`wager decide` on a tiny model: the whole way, estimators side by side, the picture, and mistakes in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deciding import rows_of, write_data
from wager.decide.outcome import journal_of

Wager = Callable[..., Any]


def command(folder: Path, *more: str, metric: str = "rmse,mae") -> list[str]:
    usual = ["decide", str(folder / "data.csv"), "--prompt", str(folder / "prompt.txt"), "--metric", metric]
    return [*usual, "--out", str(folder / "out.csv"), *more]


def test_the_whole_way_on_a_tiny_model(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    """And the laws are those of ``LLM.score``, whatever else was asked."""
    from wager.llm import LLM

    write_data(tmp_path, 4)
    given = ["--labels", "0..2:0.5", "--model", str(tiny_llama), "--raw", "--threads", "1", "-n", "3"]
    given += ["--target", "score", "--calibration", str(tmp_path / "data.csv"), "--compare-estimators"]
    result = wager(*command(tmp_path, *given, "--plot", str(tmp_path / "plot.png")))
    assert result.code == 0, result.err
    for name in (
        "| greedy",
        "majority of 3",
        "mean (for rmse)",
        "mean, sample",
        "mean, scored",
        "affine mean",
        "constant",
    ):
        assert name in result.out
    assert "intervals hold" in result.out
    assert "of the model's probability: the prompt does not ask for them" in result.err  # it says anything at all
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    found = rows_of(tmp_path / "out.csv")
    llm = LLM(tiny_llama, threads=1)
    texts = [" 0", " 0.0", " 0.5", " 1", " 1.0", " 1.5", " 2", " 2.0"]
    scores = llm.score("Rate: row 0, quoted\nScore:", texts, chat=False)
    llm.close()
    mass = dict.fromkeys((0.0, 0.5, 1.0, 1.5, 2.0), 0.0)
    for text, logprob in zip(texts, scores.logprobs, strict=True):
        mass[float(text)] += float(2.718281828459045**logprob)
    total = sum(mass.values())
    assert float(found[0]["covered"]) == pytest.approx(total, rel=1e-6)
    assert float(found[0]["law_mean"]) == pytest.approx(sum(v * w for v, w in mass.items()) / total, rel=1e-6)
    again = wager(*command(tmp_path, *given, "--json"))
    assert json.loads(again.out)["n_targets"] == 4
    assert "measuring" not in again.err
    assert [row["law_mean"] for row in rows_of(tmp_path / "out.csv")] == [row["law_mean"] for row in found]


def test_one_row_is_told_as_one(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    write_data(tmp_path, 1)
    given = ["--model", str(tiny_llama), "--threads", "1", "--raw", "--labels", "a,b", "-n", "1", "--max-tokens", "1"]
    result = wager(*command(tmp_path, *given, "--estimator", "sample", metric="accuracy"))
    assert "1 row in" in result.err
    assert "1 token beyond the prompt\n" in result.err
    with (tmp_path / "data.csv").open("a") as file:
        file.write("a,b,c\n")
    result = wager(*command(tmp_path, *given, metric="accuracy"))
    assert "has 1 row that cannot be used" in result.err
    assert "mend it, or --skip-errors" in result.err


def test_chains_of_reasoning_and_free_answers(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    write_data(tmp_path, 2)
    model = ["--model", str(tiny_llama), "--threads", "1", "-n", "2", "--max-tokens", "5", "--raw"]
    result = wager(*command(tmp_path, *model, "--labels", "yes,no", "--reasoning", metric="accuracy"))
    assert result.code == 0, result.err
    assert {row["prediction_accuracy"] for row in rows_of(tmp_path / "out.csv")} <= {"yes", "no"}
    assert all(int(row["n_tokens"]) > 10 for row in rows_of(tmp_path / "out.csv"))
    journal_of(tmp_path / "out.csv").unlink()
    assert wager(*command(tmp_path, *model, metric="token-f1")).code == 0
    assert len(rows_of(tmp_path / "out.csv")) == 2


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ("--labels 0..5:0", "is no grid"),
        ("--labels 5..0", "from low to high"),
        ("--labels 0..1:1e-9", "1000000001 values"),
        ("--labels a,b", "compares numbers, and the candidates are texts such as `a`"),
        ("--labels a=1,b=x", "value `x`, which is no number"),
        ("--labels 1,1", "`1` twice"),
        ("--labels 1,,2", "empty candidate"),
        ("--labels 0..5 --candidates none.txt", "give one of them"),
        ("--candidates none.txt", "`none.txt` cannot be read"),
        ("--estimator enumerate", "give --labels or --candidates"),
        ("--estimator guess", "enumerate, sample, scored"),
        ("--reasoning", "give --labels"),
        ("--calibration data.csv", "needs --target"),
        ("--target grade", "`grade` is no column"),
        ("--labels 0..5 --coverage 90 --target score --calibration data.csv", "a share between 0 and 1"),
        ("--labels 0..5 --coverage 0.5", "needs --calibration"),
        ("--labels 0..5 --compare-estimators", "needs --target"),
        ("--labels 0..5 --bridge x", "needs --reasoning"),
        ("--labels 0..5 --calibration-rows 5", "needs --calibration"),
        ("--labels 0..5 --positive 5", "needs --metric auc"),
        ("--labels 0..5 --temperature 0.5", "nothing is drawn"),
        ("--out data.csv", "would overwrite"),
        ("--out same.csv", "would overwrite"),
        ("--metric accuracy --labels Yes,no,yes", "`Yes` and `yes` differ by capital letters only"),
        ("--metric balanced-accuracy --labels a,b", "needs priors: give --calibration"),
        ("--metric cost --labels a,b", "needs costs: give --costs"),
        ("--metric cost --costs costs.csv", "needs labels: give --labels"),
        ("--metric accuracy --labels a,b --costs costs.csv", "needs --metric cost"),
        ("--metric cost --labels a,b --costs none.csv", "`none.csv` cannot be read"),
        (
            "--metric cost --labels a,c --costs costs.csv",
            "has the columns ['a', 'b']: give one for each label of ['a', 'c']",
        ),
        ("--metric cost --labels a,b --costs bad.csv", "has the cost `x`: give finite numbers"),
        ("--metric cost --labels a,b --costs short.csv", "row 2 has 2 fields, the header 3"),
        ("--labels 0..5 --conformal aps", "needs --calibration"),
        ("--labels 0..5 --conformal aps --target score --calibration data.csv", "for numbers give one of absolute,"),
        (
            "--metric accuracy --labels a,b --conformal quantile --target score --calibration data.csv",
            "for labels give one of aps, saps",
        ),
        ("--metric f1 --conformal aps --target score --calibration data.csv", "needs numbers or known labels"),
        ("--labels 0..5 --abstain 0.1", "needs --calibration"),
        ("--labels 0..5 --abstain 1 --target score --calibration data.csv", "--abstain is 1.0"),
        ("--labels 0..5 --abstain 0.1 --target score --calibration data.csv", "ask for a metric of labels"),
        (
            "--metric balanced-accuracy --labels a,b --abstain 0.1 --target score --calibration data.csv",
            "learns priors from the same rows",
        ),
        ("--metric auc --labels a,b,c", "give `positive`"),
        ("--metric ndcg:5 --target score", "orders of all items"),
        ("--metric qwk --labels 0..5 --target score", "line 3: its score `0.5` is no answer of this kind"),
        ("--plot plot.doc", "one of .png, .svg, .pdf"),
        ("-n 0", "-n is 0"),
        ("--rows 0", "--rows is 0"),
        ("--temperature 0", "positive number"),
        ("--metric rsme", "rsme"),
        ("--metric rmse,f1", "in two runs"),
        ("--metric ordinal-linear", "needs labels"),
        ("--raw --system s", "leave out --raw"),
        ("--out out.xlsx", "unknown kind"),
        ("--prompt none.txt", "template `none.txt` cannot be read"),
    ],
)
def test_mistakes_are_one_line_before_a_model_is_loaded(
    wager: Wager, llm: Any, tmp_path: Path, more: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path, 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "same.csv").symlink_to("data.csv")
    (tmp_path / "costs.csv").write_text("target,a,b\na,0,1\nb,5,0\n")
    (tmp_path / "bad.csv").write_text("target,a,b\na,0,1\nb,x,0\n")
    (tmp_path / "short.csv").write_text("target,a,b\na,0\n")
    result = wager(*command(tmp_path, *more.split()))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert match in result.err
    assert not llm.made


def test_a_template_that_asks_for_another_column(wager: Wager, llm: Any, tmp_path: Path) -> None:
    write_data(tmp_path, 2)
    (tmp_path / "prompt.txt").write_text("Rate {txt}")
    result = wager(*command(tmp_path, "--labels", "0..5"))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "asks for the column {txt}, and the data has text, score" in result.err


def test_an_interrupted_run_says_how_to_go_on(
    wager: Wager, llm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wager.decide.job import Job

    def interrupted(self: Job, llm: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "asker", interrupted)
    write_data(tmp_path, 2)
    result = wager(*command(tmp_path, "--labels", "0..5"))
    assert result.code == 130
    assert "the same command continues" in result.err
    assert llm.made[-1].closed
