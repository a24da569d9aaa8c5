"""`wager doctor` says what is there and what is missing, whatever is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Wager = Callable[..., Any]


def test_doctor_names_machine_versions_and_home(wager: Wager) -> None:
    found = json.loads(wager("doctor", "--json").out)
    assert found["cpu"]["usable_cores"] >= 1
    assert set(found["packages"]) >= {"openvino", "openvino-genai", "openvino-tokenizers", "numpy"}
    assert found["problems"] == []
    text = wager("doctor")
    assert text.code == 0
    assert found["packages"]["openvino"] in text.out
    assert "all well" in text.out


@pytest.mark.parametrize("module", ["numpy", "openvino", "openvino_genai", "gguf"])
def test_doctor_works_without(module: str) -> None:
    script = f"import sys; sys.modules[{module!r}] = None; from wager.cli import main; main(['doctor', '--json'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert any(module.replace("_", "-") in problem for problem in json.loads(done.stdout)["problems"])


def test_doctor_names_a_home_that_cannot_be_written(
    wager: Wager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WAGER_HOME", str(tmp_path / "file" / "home"))
    result = wager("doctor")
    assert result.code == 1
    assert "WAGER_HOME" in result.err
