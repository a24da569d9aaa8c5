"""`wager bench`: methods × prompts, paired and interleaved; `wager bench report` makes the tables again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, say
from wager.cli.measure import measure

if TYPE_CHECKING:
    from wager.bench.report import Summary

app = typer.Typer(add_completion=False, rich_markup_mode=None)

DEFAULT_METHODS = "plain,lookup,oracle,genai"

AsJson = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    model: o.Model = o.DEFAULT_MODEL,
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated: plain, lookup, auto, model:PATH, lookup:n=8, oracle, oracle:copy, genai, "
            "llamacpp:FILE.gguf; a profile in front as in max/plain."
        ),
    ] = DEFAULT_METHODS,
    suite: Annotated[str, typer.Option(help="A shipped suite by name, or JSON lines with prompt or turns.")] = "mixed",
    per_task: Annotated[int | None, typer.Option(help="Only the first so many prompts of every task.")] = None,
    tasks: Annotated[str, typer.Option(help="Only these tasks, comma-separated.")] = "",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Longest answer in tokens.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    ignore_eos: o.IgnoreEos = False,
    repeats: Annotated[int, typer.Option(help="How often everything is measured.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first repeat; the next ones count up.")] = 0,
    threads: o.Threads = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; the same command continues there.")] = Path(
        "bench-out"
    ),
    as_json: AsJson = False,
) -> None:
    """Measure methods against plain decoding and peers.

    Prompt by prompt, in turns; exit code 1 if texts differ.
    """
    if context.invoked_subcommand is not None:
        return
    from wager.bench.setup import Options, opened

    options = Options(
        model=model,
        methods=methods,
        suite=suite,
        per_task=per_task,
        tasks=tasks,
        max_tokens=max_tokens,
        temperature=temperature,
        ignore_eos=ignore_eos,
        repeats=repeats,
        seed=seed,
        threads=threads,
        out=out,
    )
    measurement = measure(opened, options, out)
    _show(out, as_json=as_json)
    raise typer.Exit(1 if measurement.n_mismatches > 0 else 0)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of a measurement.")],
    as_json: AsJson = False,
) -> None:
    """Make the tables of a measurement again."""
    summary = _show(folder, as_json=as_json)
    raise typer.Exit(1 if summary.mismatches else 0)


@app.command()
def drafting(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILES]", help="Texts in UTF-8, .jsonl as for `wager store build`.")
    ] = None,
    model: o.Model = o.DEFAULT_MODEL,
    longest: Annotated[int, typer.Option(help="Longest history in tokens.")] = 100_000,
    steps: Annotated[int, typer.Option(help="Steps that are timed at every length.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the made-up text.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of table, figures and picture.")] = Path("drafting-out"),
    as_json: AsJson = False,
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


def _show(folder: Path, *, as_json: bool) -> Summary:
    """Print the summary, and leave it beside the rows as Markdown."""
    from wager.bench.journal import rows_of
    from wager.bench.report import markdown, summarise

    summary = summarise(rows_of(folder))
    text = markdown(summary)
    if folder.is_dir():
        (folder / "report.md").write_text(text, encoding="utf-8")
    print(json.dumps(asdict(summary), ensure_ascii=False, indent=2) if as_json else text, end="\n" if as_json else "")
    return summary
