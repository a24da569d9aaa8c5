"""What a program writes into a document: the text between two markers, the first of which names the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wager.bench.report import table

END = "<!-- end of what was made -->"


def begin(module: str, document: str) -> str:
    """The marker before what ``python -m module document`` writes."""
    return f"<!-- made by: python -m {module} {document} -->"


def with_made(text: str, begin: str, made: str) -> str:
    """``text`` with ``made`` between its markers. Raises ValueError where they are missing."""
    before, rest = text.split(begin + "\n", 1)
    _, after = rest.split(END, 1)
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"


def rewrite(path: str, with_table: Callable[[str], str]) -> None:
    """Bring the table of the document at ``path`` up to date."""
    document = Path(path)
    document.write_text(with_table(document.read_text(encoding="utf-8")), encoding="utf-8")


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table whose cells may hold bars."""
    return table(columns, [[cell.replace("|", "\\|") for cell in row] for row in rows])
