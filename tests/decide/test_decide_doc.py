"""docs/decide.md: its tables are those of the registries, and its first example says what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from wager.bench import decide_doc
from wager.decide.metrics import METRICS
from wager.decide.rules import RULES

TEXT = (Path(__file__).parents[2] / "docs" / "decide.md").read_text(encoding="utf-8")


def test_the_tables_are_up_to_date() -> None:
    """Fails when a registry changed and the document did not: python -m wager.bench.decide_doc docs/decide.md."""
    assert decide_doc.with_tables(TEXT) == TEXT, "run: python -m wager.bench.decide_doc docs/decide.md"
    for name in METRICS:
        assert len(re.findall(rf"^\| `{name}[`:]", decide_doc.metrics_table(), re.MULTILINE)) == 1
    for name in RULES:
        assert len(re.findall(rf"^\| `{name}[`:]", decide_doc.rules_table(), re.MULTILINE)) == 1
    assert all((info.predicts, info.ties, info.source) for info in RULES.values())


def test_the_example_gives_what_it_says() -> None:
    block = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    checked = 0
    for line in block[1].splitlines():
        code, _, said = line.partition("#")
        number = re.match(r"\s*(-?[\d.]*\d)", said)
        if number and not code.startswith("law"):
            assert eval(code, names) == pytest.approx(float(number[1]), abs=1e-3), line
            checked += 1
        else:
            exec(code, names)
    assert checked == 6
