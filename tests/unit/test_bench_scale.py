"""`wager bench scale`: the whole command on a tiny shape, and its arithmetic on made-up runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from wager.bench.scale import LABEL, Options, Repeat, Run, parse_lengths, realised, summarise
from wager.cli import main
from wager.cost import StepCost
from wager.errors import OptionError
from wager.home import models_home
from wager.models.kernels import kernels

TINY = "n_layers=1,hidden=64,n_heads=2,n_kv_heads=1,head_dim=32,ffn=64,vocab=400"
Scale = Callable[..., int]


@pytest.fixture
def scale(tmp_path: Path) -> Scale:
    def run(*args: str) -> int:
        given = ("--shape", TINY, "--lengths", "1,3", "-n", "16", "--prompt-tokens", "8", "--repeats", "1")
        with pytest.raises(SystemExit) as ended:
            main(["bench", "scale", *given, "--out", str(tmp_path / "out"), *args])
        return int(ended.value.code or 0)

    return run


def options(**changes: object) -> Options:
    given = {"chances": (0.5,), "lengths": (3,), "n_prompt": 8, "n_tokens": 32, "repeats": 2, "seed": 0, "threads": 1}
    return Options(**{**given, **changes})  # type: ignore[arg-type]


def test_from_the_command_to_the_table(scale: Scale, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale() == 0
    shown = capsys.readouterr().out
    assert LABEL in shown
    assert not list(models_home().iterdir()), "the model stays behind"
    found = json.loads((tmp_path / "out" / "scale.json").read_text())
    assert found["label"] == LABEL
    assert {"command", "versions", "cpu", "settings", "cost"} <= set(found)
    assert [line["n_draft"] for line in found["lines"]] == [0, 1, 3]
    least = 1 if kernels()[0] else 2
    assert [line["width"] for line in found["lines"]] == [least, 2, 4]
    assert LABEL in (tmp_path / "out" / "scale.md").read_text()


def test_a_kept_model_is_used_again(scale: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale("--keep") == 0
    (folder,) = models_home().iterdir()
    assert folder.name.startswith("random-")
    written = (folder / "openvino_model.bin").stat().st_mtime_ns
    capsys.readouterr()
    assert scale("--json", "--clock", "cpu") == 0
    assert json.loads(capsys.readouterr().out)["label"] == LABEL
    assert (folder / "openvino_model.bin").stat().st_mtime_ns == written


def made_up(n: int, n_steps: int, n_tokens: int, seconds: float, accepted: list[int], tried: list[int]) -> Run:
    return Run(n, n_steps, n_tokens, seconds, 0.9 * seconds, max(2, n + 1), 20.0, accepted, tried)


def test_ratios_are_measured_over_predicted() -> None:
    """Two widths at 10 and 20 ms; plain takes what it should, and the draft a quarter longer a step."""
    cost = StepCost([2, 4])
    timings = [(2, 8, 0.010), (4, 8, 0.020)]
    plain = made_up(0, 30, 30, 0.30 / 0.9, [], [])
    draft = made_up(3, 10, 20, 0.25 / 0.9, [6, 3, 1], [10, 10, 10])
    slow = [(width, context, 2 * seconds) for width, context, seconds in timings]
    repeats = [Repeat([plain, draft, plain], timings)] * 3 + [Repeat([plain, draft, plain], slow)] * 2
    first, second = summarise(cost, repeats, options())
    assert first.step_ratio.high == pytest.approx(2.0), "a repeat is compared with its own timings"
    assert first.predicted_step_s == pytest.approx(0.010)
    assert first.step_ratio.value == pytest.approx(1.0)
    assert first.outside_forward == pytest.approx(0.1)
    assert first.speedup.value == pytest.approx(1.0)
    assert second.expected_tokens == pytest.approx(1.875)
    assert second.tokens == pytest.approx(2.0)
    assert second.step_ratio.value == pytest.approx(0.8)
    assert second.ratio.value == pytest.approx(20 / (0.25 / 0.9) / (1.875 / 0.020))
    assert second.predicted_speedup == pytest.approx(1.875 / 2)
    assert second.speedup.value == pytest.approx(0.8)
    assert second.acceptance == pytest.approx([0.6, 0.5, 1 / 3])


def test_acceptance_counts_only_what_was_reached() -> None:
    runs = [made_up(2, 5, 9, 1.0, [4, 2], [5, 5]), made_up(2, 5, 9, 1.0, [1], [5])]
    assert realised(runs, 2) == pytest.approx([0.5, 0.4])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lengths": ()}, "--lengths"),
        ({"lengths": (3, 1)}, "ascending"),
        ({"lengths": (0, 1)}, "at least 1"),
        ({"n_tokens": 9}, "give at least 11"),
        ({"n_prompt": 1}, "--prompt-tokens"),
        ({"repeats": 0}, "--repeats"),
        ({"clock": "sun"}, "--clock"),
    ],
)
def test_options_that_cannot_be_measured_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options(**changes)


def test_lengths_are_numbers() -> None:
    assert parse_lengths("1, 3") == (1, 3)
    with pytest.raises(OptionError, match="whole numbers"):
        parse_lengths("1,x")
