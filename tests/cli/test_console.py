"""Progress: plain lines without a terminal, bars with one, nothing in the way of the answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wager.cli import COMMANDS, main
from wager.cli.console import Bars, read_prompt
from wager.errors import PromptError
from wager.policies import POLICIES


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit):
        main(args)
    return capsys.readouterr().out


def test_help_says_of_every_command_a_whole_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, "--help").split("Commands:")[1].strip().splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines), lines


def test_help_names_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, "run", "--help").partition("--policy")[2].partition("(docs/policies.md)")[0]
    assert set(POLICIES) <= set(said.replace(",", " ").split())


def test_progress_without_a_terminal_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        for done in range(0, 101, 10):
            bars("downloading x", done, 100)
        bars("measuring", 0, 0)
        bars("reading the prompt", 64, 128)
        bars("reading the prompt", 128, 128)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["downloading x …", "downloading x", "measuring …"]


@pytest.mark.parametrize("color", [False, True])
def test_progress_on_a_terminal_draws_bars(color: bool) -> None:
    script = """
from wager.cli.console import Bars, say
with Bars() as bars:
    for done in range(0, 11): bars("downloading x", done, 10)
    bars("reading", 0, 10); bars("reading", 1, 10); bars.close(); say("after")
"""
    main_end, child_end = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-c", script], stderr=child_end, env=env if color else env | {"NO_COLOR": "1"}, check=True
    )
    os.close(child_end)
    seen = os.read(main_end, 100_000).decode()
    os.close(main_end)
    assert done.returncode == 0
    assert "downloading x" in seen
    assert seen.rstrip().endswith("after")
    assert ("\x1b[38" in seen or "\x1b[3" in seen) == color


def test_long_work_under_way_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 1.5, 2.0])
    monkeypatch.setattr("wager.cli.console.time.monotonic", lambda: next(now))
    bars = Bars()
    for done in (1, 2, 3, 4):
        bars("reading the prompt", done, 4)
    assert capsys.readouterr().err == "reading the prompt …\nreading the prompt: done in 2.0 s\n"


@pytest.mark.parametrize("prompt", [None, "-"])
def test_closed_stdin_is_no_prompt(monkeypatch: pytest.MonkeyPatch, prompt: str | None) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(PromptError, match="there is no prompt"):
        read_prompt(prompt)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", "from wager.cli import main; main(['models'])"]
        env = {**os.environ, "WAGER_HOME": str(tmp_path)}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written (No space left on device): ")
    assert done.stderr.count("\n") == 1


def test_infinite_bias_is_still_json(wager: Callable[..., Any], llm: Any) -> None:
    def no_constant(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    out = wager("run", "x", "--json", "--logit-bias", "3=-inf", "--logit-bias", "4=1.5").out
    assert json.loads(out, parse_constant=no_constant)["sampling"]["logit_bias"] == {"3": "-inf", "4": 1.5}
