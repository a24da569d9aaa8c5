"""The report of a measurement as one HTML page: no script, no other host, light and dark, readable on a phone."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

from wager.bench import report
from wager.bench.charts import PLOTS
from wager.bench.report import Section
from wager.bench.summary import Summary

_STYLE = Path(__file__).with_name("page.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(summary: Summary) -> str:
    """The whole document."""
    title = report.title(summary)
    provenance = json.dumps(summary.provenance, ensure_ascii=False, indent=1)
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="soft">{escape(report.introduction(summary))}</p>',
            _remarks(report.remarks(summary)),
            *(_section(section, summary) for section in report.sections(summary)),
            f"<details><summary>Provenance</summary><pre>{escape(provenance)}</pre></details>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>wager bench: {escape(title)}</title>\n<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n"
        f"</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section, summary: Summary) -> str:
    note = f'<p class="soft">{_inline(section.note)}</p>' if section.note else ""
    plot = PLOTS[section.name](summary) if section.name in PLOTS else ""
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{note}\n{plot}\n{_table(section)}\n</section>"


def _table(section: Section) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in section.head)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in section.rows
    )
    label = escape(section.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _remarks(remarks: list[str]) -> str:
    if not remarks:
        return ""
    items = "".join(f"<li{_alarm(said)}>{_inline(said)}</li>" for said in remarks)
    return f'<ul class="remarks">{items}</ul>'


def _alarm(said: str) -> str:
    return ' class="alarm"' if said.startswith("**") else ""


def _inline(markdown: str) -> str:
    """Code and bold of a sentence of Markdown as HTML."""
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(markdown))
    return re.sub(r"\*\*([^*]*)\*\*", r"<strong>\1</strong>", text)
