"""`wager demo`: what speculation gains on an answer that stays close to its source, and that it changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.compare import compare, report
from wager.cli.console import Bars, say

app = typer.Typer(add_completion=False, rich_markup_mode=None)

NOTICE = (
    "The harbour museum opens from Tuesday to Sunday, 10 am to 5 pm. Tickets cost 6 euros for adults and 2 euros for "
    "children. Guided tours start at 11 am and 3 pm and take about an hour. The old lightship at pier 4 can be visited "
    "in summer only. Dogs are welcome in the garden but not in the exhibition. The café on the first floor serves "
    "breakfast until noon and has the best view over the docks."
)
PROMPT = f"Write this information as a list with one bullet point per sentence:\n\n{NOTICE}"


@app.command()
def demo(
    model: o.Model = o.DEFAULT_MODEL,
    drafter: o.DrafterName = "auto",
    draft_model: o.DraftModel = None,
    profile: o.Profile = "fast",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Longest answer in tokens.")] = 160,
    as_json: o.AsJson = False,
) -> None:
    """Answer a built-in prompt plain and speculative, and compare."""
    given = locals()
    with Bars() as bars, closing(o.load(given, bars)) as llm:
        sampling = llm.sampling(temperature=0.0, max_tokens=max_tokens)
        if not as_json:
            say(f"prompt: {PROMPT}\n")
        result = compare(llm, PROMPT, sampling, bars, raw=False, system=None, shown=not as_json)
        raise typer.Exit(report(result, sampling, llm, as_json=as_json))
