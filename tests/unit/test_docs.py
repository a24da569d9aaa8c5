"""The documents say what is there: links lead somewhere, commands and options exist, every number is defined."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from wager.bench import drafters_doc, policies_doc
from wager.bench.rules_doc import rules_table, with_table
from wager.bench.rules_summary import Line
from wager.cli import COMMANDS
from wager.drafters import DRAFTERS, drafter_named
from wager.policies import POLICIES
from wager.record import RunStats
from wager.verify import LOSSY, RULES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_commands_and_options_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command, rest in re.findall(r"bin/wager (\w+)([^#\n]*)", text):
        assert command in COMMANDS
        known = typer.main.get_command(import_module(f"wager.cli.{command}").app)
        names = {name for parameter in known.params for name in parameter.opts}
        assert set(re.findall(r"(--[a-z-]+)", rest)) <= names
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", text)) - {"and"} <= targets


def test_the_table_of_drafters_is_up_to_date() -> None:
    """Fails when the registry changed and the document did not: python -m wager.bench.drafters_doc docs/drafters.md."""
    text = (ROOT / "docs" / "drafters.md").read_text(encoding="utf-8")
    assert text == drafters_doc.with_table(text), "run: python -m wager.bench.drafters_doc docs/drafters.md"
    for name in DRAFTERS:
        assert len(re.findall(rf"^\| `{name}[`:]", text, re.MULTILINE)) == 1
        info = drafter_named(name)
        assert all((info.drafts, info.needs, info.remembers, info.costs, info.source)), f"{name} says too little"


def test_the_table_of_policies_is_up_to_date() -> None:
    """Fails when the registry changed and the document did not: python -m wager.bench.policies_doc docs/policies.md."""
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    assert text == policies_doc.with_table(text), "run: python -m wager.bench.policies_doc docs/policies.md"
    for name in POLICIES:
        assert policies_doc.policies_table().count(f"| `{name}` ") == 1


def test_every_number_is_defined() -> None:
    text = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    for name in RunStats().to_json():
        assert f"`{name}`" in text, f"docs/numbers.md does not define {name}"


def test_the_table_of_rules_is_up_to_date() -> None:
    """Fails when the registry changed and the document did not: python -m wager.bench.rules_doc docs/rules.md."""
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert text == with_table(text), "run: python -m wager.bench.rules_doc docs/rules.md"
    for name in (*RULES, *(f"{name}:X" for name in LOSSY)):
        assert rules_table().count(f"| `{name}` ") == 1


def test_every_number_of_the_comparison_of_rules_is_defined() -> None:
    text = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    for name in Line.__dataclass_fields__.keys() - {"rule", "temperature", "drafts", "n_prompts"}:
        assert f"`{name}`" in text, f"docs/numbers.md does not define {name}"


def test_the_rule_written_in_the_document_is_proved_there() -> None:
    """And one with its residual drawn from p is not."""
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    [source] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "check_rule" in code]
    exec(source, {})
    assert "positive(here.p - here.q)" in source
    with pytest.raises(AssertionError, match="rule 'mine'"):
        exec(source.replace("positive(here.p - here.q)", "here.p"), {})
