"""The table of docs/drafters.md, from the registry: ``python -m wager.bench.drafters_doc docs/drafters.md``."""

from __future__ import annotations

import sys

from wager.bench.made import begin, markdown_table, rewrite, with_made
from wager.drafters import DRAFTERS, drafter_named
from wager.drafters.base import Family

BEGIN = begin("wager.bench.drafters_doc", "docs/drafters.md")
_COLUMNS = ["name", "drafts", "from", "needs", "remembers between requests", "a draft costs", "shape", "source"]
_FAMILIES: dict[Family, str] = {"text": "text", "target": "the model itself", "model": "another model"}


def drafters_table() -> str:
    """Markdown: a row per drafter, those from text first."""
    rows = []
    for family, words in _FAMILIES.items():
        for name in DRAFTERS:
            info = drafter_named(name)
            if info.family == family:
                shown = f"`{name}:{info.argument}`" if info.argument else f"`{name}`"
                shape = "trees" if info.trees else "one path"
                rows.append([shown, info.drafts, words, info.needs, info.remembers, info.costs, shape, info.source])
    return markdown_table(_COLUMNS, rows)


def with_table(text: str) -> str:
    """The document with its table as it should be. Raises ValueError where the markers are missing."""
    return with_made(text, BEGIN, drafters_table())


if __name__ == "__main__":
    rewrite(sys.argv[1], with_table)
