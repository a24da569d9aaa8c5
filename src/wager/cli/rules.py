"""`wager rules`: every verification rule on one pair of models, prompt by prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.console import print_json, say
from wager.cli.measure import measure

if TYPE_CHECKING:
    from wager.bench.rules_summary import Summary

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def rules(
    target: Annotated[str, typer.Option(help="Name, OpenVINO folder, or .gguf file.")] = o.DEFAULT_MODEL,
    draft: Annotated[str, typer.Option(help="A drafter (copy:int4, lookup, …), or the draft model.")] = "copy:int4",
    prompts: Annotated[
        str, typer.Option(help="A shipped suite by name, or JSON lines with prompt or turns.")
    ] = "mixed",
    temperature: Annotated[list[float], typer.Option("--temperature", "-t", help="Repeatable; 0 is greedy.")] = [1.0],  # noqa: B006
    k: Annotated[str, typer.Option(help="Numbers of children, comma-separated.")] = "1,2,4,8",
    depth: Annotated[str, typer.Option(help="Draft tokens a path, comma-separated.")] = "4,8",
    rules: Annotated[str, typer.Option(help="Rules, comma-separated, as in --rule; default: all.")] = "",
    per_task: Annotated[int | None, typer.Option(help="Only the first so many prompts of every task.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Longest answer in tokens.")] = 64,
    seed: Annotated[int, typer.Option(help="Each prompt's seed follows from it.")] = 0,
    profile: o.Profile = "fast",
    trunk: Annotated[int, typer.Option(help="Tokens of a draft before its branches part.")] = 0,
    threads: o.Threads = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; the same command continues there.")] = Path(
        "rules-out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Compare verification rules on real prompts.

    Exit code 1 if a text differs that must not.
    """
    from wager.bench.rules_setup import Options, opened

    options = Options(
        target=target,
        draft=draft,
        prompts=prompts,
        temperature=temperature,
        k=k,
        depth=depth,
        rules=rules,
        per_task=per_task,
        max_tokens=max_tokens,
        seed=seed,
        profile=profile,
        trunk=trunk,
        threads=threads,
        out=out,
    )
    measure(opened, options, out)
    summary = _show(out, as_json=as_json)
    raise typer.Exit(1 if summary.mismatches else 0)


def _show(folder: Path, *, as_json: bool) -> Summary:
    """Print the summary; beside the rows it is left as JSON, as Markdown and as a picture."""
    from wager.bench.journal import rows_of
    from wager.bench.rules_plot import plot
    from wager.bench.rules_report import markdown
    from wager.bench.rules_summary import summarise

    summary = summarise(rows_of(folder))
    text, found = markdown(summary), summary.to_json()
    (folder / "rules.md").write_text(text, encoding="utf-8")
    (folder / "rules.json").write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    if not plot(summary, folder / "rules.png"):
        say("no picture without matplotlib: pip install 'wager[bench]'")
    if as_json:
        print_json(found)
    else:
        print(text, end="")
    return summary
