"""`wager run --json-schema, --regex, --choice`: what reaches the engine, and what is refused before a model loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wager.grammar import Choice, JsonSchema, Regex


def constraint_of(llm: Any) -> Any:
    return llm.made[-1].calls[0]["sampling"].constraint


def test_every_constraint_reaches_the_engine(wager: Any, llm: Any, tmp_path: Path) -> None:
    (path := tmp_path / "pet.json").write_text('{"type": "object"}', encoding="utf-8")
    for options, wanted in (
        (["--json-schema", str(path)], JsonSchema('{"type": "object"}')),
        (["--regex", "[0-9]+,?"], Regex("[0-9]+,?")),
        (["--choice", "yes,no"], Choice(("yes", "no"))),
        (["--choice", "yes, sir", "--choice", "no"], Choice(("yes, sir", "no"))),
        ([], None),
    ):
        assert wager("run", "x", *options).code == 0
        assert constraint_of(llm) == wanted
    result = wager("run", "x", "--choice", "yes,no", "--json")
    assert json.loads(result.out)["sampling"]["constraint"] == {"choices": ["yes", "no"]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--json-schema", "nowhere.json"], "--json-schema `nowhere.json` cannot be read"),
        (["--regex", "a", "--choice", "a,b"], "--regex and --choice"),
        (["--choice", "a,"], "`choices` is ''"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    wager: Any, llm: Any, options: list[str], says: str
) -> None:
    result = wager("run", "x", *options)
    assert result.code == 2
    assert says in result.err
    assert not llm.made
