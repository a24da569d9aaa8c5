"""`wager tune`: how a model runs is found, kept whole or not at all, shown, and used without being told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wager.cli.tune import seconds
from wager.home import wager_home
from wager.tuning import bandwidth, curve, execution, report

Wager = Callable[..., Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less of everything: what is measured is not the point."""
    monkeypatch.setattr(bandwidth, "buffer_bytes", lambda: 8 << 20)
    monkeypatch.setattr(curve, "_ROWS", (1, 2, 8))
    monkeypatch.setattr(curve, "CONTEXTS", (16, 64))
    monkeypatch.setattr(curve, "_ROWS_FAR", (2, 8))
    monkeypatch.setattr(curve, "_SEQS", (2,))
    monkeypatch.setattr(curve, "_PAIRS", (12, 12))
    monkeypatch.setattr(execution, "drafting", lambda **_: {"lookup": 0.5})


def kept() -> list[Path]:
    return sorted((wager_home() / "machines").glob("tuned-*")) if (wager_home() / "machines").is_dir() else []


def test_what_was_tuned_is_kept_shown_and_used(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    pytest.importorskip("matplotlib")
    result = wager("tune", str(tiny_llama), "--budget", "2s", "--plot", str(picture))
    assert result.code == 0, result.err
    assert picture.stat().st_size > 10_000
    (path,) = kept()
    assert f"kept in {path}: profile fast uses it" in result.err
    record = json.loads(path.read_text("utf-8"))
    for part in ("setting ", "to the reference profile", "v(n) in ms", "exact 95 % interval", "GB/s", "roofline"):
        assert part in result.out, result.out
    shown = wager("inspect", str(tiny_llama), "--no-measure")
    assert "profile fast, as tuned:" in shown.out
    assert "profile max: not tuned" in shown.out
    assert set(report.summary(record)) <= set(shown.out.splitlines())
    record["tuned"]["properties"]["INFERENCE_NUM_THREADS"] = "1"  # so that its use shows
    path.write_text(json.dumps(record))
    run = wager("run", "ab", "-m", str(tiny_llama), "-n", "8", "--json", "--raw", "--drafter", "lookup")
    assert run.code == 0, run.err
    assert json.loads(run.out)["settings"]["properties"] == record["tuned"]["properties"]


def test_an_old_record_is_said_to_be_old(wager: Wager, tiny_llama: Path) -> None:
    result = wager("tune", str(tiny_llama), "--budget", "0.5", "--json", "--profile", "max")
    assert result.code == 0, result.err
    record = json.loads(result.out)
    (path,) = kept()
    assert json.loads(path.read_text("utf-8")) == record
    path.write_text(json.dumps({"key": record["key"], "tuned": record["tuned"]}))
    shown = wager("inspect", str(tiny_llama), "--no-measure")
    assert "damaged: run `wager tune` again to see it" in shown.out
    record["key"]["openvino"] = "2020.1"
    path.write_text(json.dumps(record))
    shown = wager("inspect", str(tiny_llama), "--no-measure")
    assert "profile max: tuned, but not used: openvino was 2020.1, is 20" in shown.out
    assert "run `wager tune` again" in shown.out


def test_ctrl_c_keeps_nothing(wager: Wager, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bandwidth, "measure", interrupted)
    result = wager("tune", str(tiny_llama), "--budget", "0.1")
    assert (result.code, result.out) == (130, "")
    assert not (wager_home() / "machines").exists()


def test_budgets() -> None:
    assert [seconds(text) for text in ("120", "120s", "2m", "0.5m")] == [120, 120, 120, 30]


def test_mistakes_are_one_line(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    for args, said in (
        (("--budget", "0"), "--budget is `0`: give a positive time, as 120, 120s or 2m"),
        (("--budget", "2h"), "--budget is `2h`"),
        (("--budget", "inf"), "--budget is `inf`"),
        (("--drafter", "lookup"), "--drafter is `lookup`"),
        (("--prompts", "x"), "--prompts `x` is for --drafter skip"),
        (("--plot", "x.doc"), "--plot is `x.doc`: give a file ending in .png"),
        (("--plot", str(tmp_path / "no" / "x.png")), "in a folder that is there"),
        (("--drafter", "skip", "--plot", "x.png"), "--plot `x.png` is for"),
        (("--profile", "quick"), "`profile` is 'quick'"),
        (("--threads", "0"), "`threads` is 0"),
    ):
        result = wager("tune", str(tiny_llama), *args)
        assert (result.code, result.out) == (2, ""), (args, result.err)
        assert said in result.err, result.err
    assert kept() == []


def test_memory_is_read_and_bounds_decoding() -> None:
    rate = bandwidth.read_rate(4 << 20, n_threads=1, repeats=3)
    assert 1e8 < rate < 1e12
    assert bandwidth.buffer_bytes() >= 1 << 20
    assert bandwidth.roofline(10e9, weight_bytes=90_000_000, kv_bytes_per_token=10_000, context=1000) == 100.0
