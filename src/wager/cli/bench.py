"""`wager bench`: methods × prompts, paired and interleaved; `wager bench report` makes the tables again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wager.cli import bench_drafting, bench_quality, bench_report, bench_scale, bench_serve
from wager.cli import options as o
from wager.cli.measure import measure

app = typer.Typer(add_completion=False, rich_markup_mode=None)

DEFAULT_METHODS = "plain,lookup,auto,genai,transformers"

# Each subcommand is a file of its own.
app.command()(bench_report.report)
app.command()(bench_drafting.drafting)
app.command()(bench_quality.quality)
app.command()(bench_scale.scale)
app.command()(bench_serve.serve)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    model: o.Model = o.DEFAULT_MODEL,
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated: plain, any drafter as in lookup, auto, model:PATH, lookup:n=8, oracle, oracle:copy, "
            "genai, transformers, llamacpp; a profile in front as in max/plain (docs/benchmarks.md)."
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
    as_json: bench_report.AsJson = False,
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
    bench_report.show(out, as_json=as_json)
    raise typer.Exit(1 if measurement.n_mismatches > 0 else 0)
