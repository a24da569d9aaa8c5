"""`wager bench report`: the tables and plots of a measurement, from its rows alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli.console import say

if TYPE_CHECKING:
    from wager.bench.summary import Summary

AsJson = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of a measurement.")],
    as_json: AsJson = False,
) -> None:
    """Make tables and plots of a measurement: report.md and report.html in its folder."""
    summary = show(folder, as_json=as_json)
    raise typer.Exit(1 if summary.mismatches else 0)


def show(folder: Path, *, as_json: bool) -> Summary:
    """Print the summary, and leave it beside the rows as Markdown and as a page with plots."""
    from wager.bench.journal import rows_of
    from wager.bench.page import page
    from wager.bench.report import markdown
    from wager.bench.summary import summarise

    summary = summarise(rows_of(folder))
    text = markdown(summary)
    if folder.is_dir():
        (folder / "report.md").write_text(text, encoding="utf-8")
        (folder / "report.html").write_text(page(summary), encoding="utf-8")
        say(f"with plots: {folder / 'report.html'}")
    print(json.dumps(asdict(summary), ensure_ascii=False, indent=2) if as_json else text, end="\n" if as_json else "")
    return summary
