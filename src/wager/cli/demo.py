"""`wager demo`: what speculation gains on a text that repeats its source, and that it changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.compare import compare, report
from wager.cli.console import Bars, say

app = typer.Typer(add_completion=False, rich_markup_mode=None)

PARAGRAPH = (
    "The lighthouse on the northern cape was biult in 1871, after three merchant ships were lost on the rocks in a "
    "single winter. Its lamp burned whale oil at first, then kerosene, and since 1926 it has run on electricity. The "
    "keeper lived in a small stone house beside the tower with his family, kept a log of every ship that passed, and "
    "recieved supplies by boat once a month. Today the light is automatic, but the log books are still kept in the "
    "house, which is open to visitors from May to September."
)
PROMPT = f"Correct the spelling mistakes in this text and write out the whole corrected text:\n\n{PARAGRAPH}"


@app.command()
def demo(
    model: o.Model = o.DEFAULT_MODEL,
    drafter: o.DrafterName = "auto",
    draft_model: o.DraftModel = None,
    profile: o.Profile = "fast",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Longest answer in tokens.")] = 160,
    as_json: o.AsJson = False,
) -> None:
    """Answer a built-in prompt twice, plain and speculative, and compare."""
    given = locals()
    with Bars() as bars, closing(o.load(given, bars)) as llm:
        sampling = llm.sampling(temperature=0.0, max_tokens=max_tokens)
        if not as_json:
            say(f"prompt: {PROMPT}\n")
        result = compare(llm, PROMPT, sampling, bars, raw=False, system=None, shown=not as_json)
        raise typer.Exit(report(result, sampling, llm, as_json=as_json))
