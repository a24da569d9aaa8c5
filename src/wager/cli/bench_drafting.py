"""`wager bench drafting`: what drafters from text cost as the text grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, say


def drafting(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILES]", help="Texts in UTF-8, .jsonl as for `wager store build`.")
    ] = None,
    model: o.Model = o.DEFAULT_MODEL,
    longest: Annotated[int, typer.Option(help="Longest history in tokens.")] = 100_000,
    steps: Annotated[int, typer.Option(help="Steps that are timed at every length.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the made-up text.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of table, figures and picture.")] = Path("drafting-out"),
    as_json: o.AsJson = False,
) -> None:
    """Measure what drafters from text cost as the text grows, on a made-up text and on FILES."""
    from wager.bench import drafting as d

    d.check(longest=longest, n_steps=steps)
    with Bars() as bars:
        texts, n_ids = d.texts(files or [], model, longest + steps, seed=seed, progress=bars)
        points = d.measure(texts, n_ids, longest=longest, n_steps=steps, seed=seed, progress=bars)
    found = d.to_json(points, {"n_ids": n_ids, "steps": steps, "seed": seed, "files": [f.name for f in files or []]})
    text = d.markdown(points)
    out.mkdir(parents=True, exist_ok=True)
    (out / "drafting.md").write_text(text + "\n", encoding="utf-8")
    (out / "drafting.json").write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    if not d.plot(points, out / "drafting.png"):
        say("no picture without matplotlib: pip install 'wager[bench]'")
    print(json.dumps(found, ensure_ascii=False, indent=2) if as_json else text)
