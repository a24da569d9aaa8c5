"""docs/writing-a-drafter.md does what it says: its Python is run as it stands, on a tiny model."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from drafter_tools import ask
from wager.drafters import DrafterInfo, drafter_named, is_drafter, make_drafter
from wager.types import Limits

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-drafter.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def said(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the document leaves behind."""
    names: dict[str, Any] = {"MODEL": tiny_llama}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        exec("\n".join(blocks("python")), names)
    return names


def test_it_drafts_and_the_text_is_that_of_plain_decoding(said: dict[str, Any]) -> None:
    stats = said["stats"]
    assert said["drafted"].tokens == said["plain"].tokens
    assert said["drafted"].text == said["plain"].text
    assert stats.n_accepted > 20  # all of it was said before
    assert stats.tokens_per_forward > 1.5
    assert said["plain"].stats.n_drafted == 0
    assert said["llm"].info["drafter"] == "markov-trees"


def test_its_trees_branch(said: dict[str, Any]) -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2]
    assert not ask(said["MarkovTrees"](), text, Limits(6, 2, 2)).is_chain
    assert ask(said["Markov"](), text, Limits(6, 2, 2)).is_chain


def test_the_entry_point_is_one(said: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the first and the last block as ``markov.py`` and the line as it stands."""
    [toml] = blocks("toml")
    [(name, value)] = tomllib.loads(toml)["project"]["entry-points"]["wager.drafters"].items()
    code = [block for block in blocks("python") if "class Markov:" in block or "DRAFTER =" in block]
    (tmp_path / "markov.py").write_text("\n".join(code), encoding="utf-8")
    about = tmp_path / "markov-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: markov\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[wager.drafters]\n{name} = {value}\n", encoding="utf-8")
    assert not is_drafter("markov")
    monkeypatch.syspath_prepend(tmp_path)
    assert make_drafter("markov", None).name == "markov"
    assert not drafter_named("markov").trees
    assert isinstance(said["DRAFTER"], DrafterInfo)
