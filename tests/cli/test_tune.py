"""`wager tune --drafter skip`: finds a set and keeps it whole or not at all; `--drafter skip` uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deep_tools import make_deep
from wager.drafters.skip import FORMAT, saved_key
from wager.home import wager_home
from wager.machine import measurements_path, save_measurements
from wager.models import catalog

Wager = Callable[..., Any]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deep(tmp_path_factory.mktemp("deep"))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    lines = [{"prompt": text} for text in ("the sea and the sun", "the wind", "where is the river")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return str(tmp_path / "prompts.jsonl")


def kept() -> list[Path]:
    return sorted((wager_home() / "machines").glob("skip-*")) if (wager_home() / "machines").is_dir() else []


@pytest.mark.parametrize("method", ["swift", "cosine"])
def test_what_was_tuned_is_kept_and_used(wager: Wager, deep: Path, prompts: str, method: str) -> None:
    args = ("tune", str(deep), "--drafter", "skip", "--method", method, "--budget", "2", "--prompts", prompts)
    result = wager(*args, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["method"] == method
    assert found["n_tried"] > 3
    assert found["skip"]
    assert "trying sets of modules" in result.err
    (path,) = kept()
    assert f"kept in {path}" in result.err
    assert json.loads(path.read_text("utf-8")) == found
    run = ("run", "the sea", "-m", str(deep), "-n", "24", "-t", "0", "--compare", "--json", "--num-draft-tokens", "2")
    drafted = wager(*run, "--drafter", "skip")
    assert drafted.code == 0, drafted.err
    assert "nothing was tuned" not in drafted.err
    assert json.loads(drafted.out)["identical"]
    assert json.loads(drafted.out)["speculative"]["stats"]["n_accepted"] > 0
    from_file = wager(*run, "--drafter", f"skip:{path}")
    assert json.loads(from_file.out)["speculative"]["text"] == json.loads(drafted.out)["speculative"]["text"]


def test_the_report_is_for_people(wager: Wager, deep: Path, prompts: str) -> None:
    result = wager("tune", str(deep), "--drafter", "skip", "--budget", "0.5", "--prompts", prompts)
    assert result.code == 0, result.err
    for part in ("left out", "of 12 modules", "SWIFT's score", "expected speed", "x plain"):
        assert part in result.out


def test_untuned_says_so(wager: Wager, deep: Path, caplog: pytest.LogCaptureFixture) -> None:
    args = ("run", "the sea", "-m", str(deep), "-n", "4", "-t", "0")
    assert wager(*args, "--drafter", "skip").code == 0
    assert "nothing was tuned for this model" in caplog.text
    caplog.clear()
    assert wager(*args, "--drafter", "skip:0.3").code == 0
    assert not caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "is damaged"),
        (b"\xff\xfe", "cannot be read"),
        (b'{"skip": "x"}', "is damaged"),
        (b'{"format": %d, "skip": ["attn.99"]}' % FORMAT, "`attn.99` cannot be skipped"),
    ],
)
def test_a_damaged_result_is_not_taken_for_none(wager: Wager, deep: Path, content: bytes, said: str) -> None:
    path = measurements_path(saved_key(catalog.model_hash(deep)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    result = wager("run", "the sea", "-m", str(deep), "-n", "4", "--drafter", "skip")
    assert (result.code, result.out) == (2, "")
    last = result.err.splitlines()[-1]
    for part in ("error: ", str(path), said, f"have it measured again with `wager tune {deep.name} --drafter skip`"):
        assert part in last, last


def test_what_another_version_measured_is_not_believed(
    wager: Wager, deep: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = saved_key(catalog.model_hash(deep))
    save_measurements(key, {"skip": ["attn.2"], "cost_ratio": 0.29, "speed": 1.8})
    args = ("run", "the sea", "-m", str(deep), "-n", "4", "-t", "0", "--drafter", "skip")
    assert wager(*args).code == 0
    assert "was measured by another version, so every other layer is left out" in caplog.text
    caplog.clear()
    save_measurements(key, {"format": FORMAT, "skip": ["attn.2"]})
    assert wager(*args).code == 0
    assert not caplog.text


def test_a_policy_that_may_branch_can_be_held_to_one_path(wager: Wager, deep: Path) -> None:
    run = ("run", "the sea", "-m", str(deep), "-n", "24", "-t", "0", "--drafter", "window", "--policy")
    refused = wager(*run, "delayed")
    assert refused.code == 2
    assert "`policy` is 'delayed' but `drafter` is 'window', which drafts single paths: give delayed:1" in refused.err
    result = wager(*run, "delayed:1", "--compare", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["identical"]
    assert found["speculative"]["stats"]["n_drafted"] > 0


def test_ctrl_c_keeps_nothing(wager: Wager, deep: Path, prompts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from wager import tune_skip

    real, n = tune_skip.score, []

    def score(*args: Any, **options: Any) -> Any:
        n.append(1)
        if len(n) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(tune_skip, "score", score)
    result = wager("tune", str(deep), "--drafter", "skip", "--budget", "5", "--prompts", prompts)
    assert (result.code, result.out) == (130, "")
    assert kept() == []


def test_mistakes_are_one_line(wager: Wager, deep: Path, tiny_llama: Path, prompts: str, tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text('{"skip": ["attn.0"]}', "utf-8")
    (tmp_path / "other.json").write_text('{"kept": []}', "utf-8")
    run = ("run", "x", "-m", str(deep), "--drafter")
    tune = ("tune", str(deep))
    for args, said in (
        ((*tune, "--drafter", "lookup"), "--drafter is `lookup`"),
        ((*tune, "--drafter", "skip", "--method", "x"), "--method is `x`: give one of swift, conf, cosine"),
        ((*tune, "--drafter", "skip", "--budget", "0"), "--budget is `0`"),
        ((*tune, "--drafter", "skip", "--prompts", "nothere"), "--prompts is `nothere`"),
        (("tune", str(tiny_llama), "--drafter", "skip", "--prompts", prompts), "this model has 2 layers"),
        ((*run, "skip:1.5"), "give a ratio in [0, 1)"),
        ((*run, "skip:nothere"), "give a ratio, or a file that `wager tune MODEL --drafter skip` wrote"),
        (
            (*run, f"skip:{tmp_path / 'set.json'}"),
            f"`{tmp_path / 'set.json'}` holds no set of modules of this model (`attn.0` cannot be skipped: name attn.",
        ),
        ((*run, f"skip:{tmp_path / 'other.json'}"), f"`{tmp_path / 'other.json'}` is damaged, for it has no"),
        ((*run, "window:33"), "multiples of 32, as in window:32+256"),
        ((*run, "window:32+0"), "multiples of 32"),
        ((*run, "lookup+skip"), "'skip' runs a model"),
        ((*run, "window", "--tree-width", "2"), "'window', which drafts single paths"),
        ((*run, "skip:0.3", "--tree-width", "2"), "'skip:0.3', which drafts single paths"),
    ):
        result = wager(*args)
        assert (result.code, result.out) == (2, ""), (args, result.err)
        assert said in result.err, result.err
        assert result.err.splitlines()[-1].startswith("error: ")
    assert kept() == []
