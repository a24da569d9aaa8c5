"""`wager bench quality`: what quantisations cost and gain, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, print_json


def quality(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="Names, OpenVINO folders, or .gguf files.")],
    profiles: Annotated[str, typer.Option(help="Comma-separated: fast, u8, max, reference.")] = "fast",
    reference: Annotated[
        str | None, typer.Option(metavar="MODEL", help="What to compare with; default: the first model.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text in UTF-8 to compare on; default: one that is shipped.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="Prompts to time on; 0 leaves the timing out.")] = 4,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Tokens timed of every answer.")] = 64,
    threads: o.Threads = None,
    clock: Annotated[str, typer.Option(help="wall, or cpu: seconds of the processor, for a busy machine.")] = "wall",
    as_json: o.AsJson = False,
) -> None:
    """Perplexity, KL, arg-max agreement, speed and bytes of models: the table to choose a quantisation by."""
    from wager.bench import quality as q
    from wager.bench.suite import listed

    with Bars() as bars:
        table = q.measure(
            models,
            profiles=listed(profiles),
            reference=reference,
            text=text,
            n_prompts=prompts,
            max_tokens=max_tokens,
            threads=threads,
            clock=clock,
            progress=bars,
        )
    if as_json:
        print_json(table.to_json())
    else:
        print(q.markdown(table))
