"""`wager decide`: for every row of a file the answer that is best for a metric."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, Ticker, print_json, say

if TYPE_CHECKING:
    from wager.decide.job import Job
    from wager.decide.outcome import Outcome
    from wager.llm import LLM

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LITTLE = 0.05  # of the probability: decisions rest on what the model would hardly say


@app.command()
def decide(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows: .csv, .tsv, .jsonl or .parquet.")],
    prompt: Annotated[Path, typer.Option("--prompt", help="Template with {column} fields; {{ and }} are braces.")],
    metric: Annotated[str, typer.Option("--metric", help="Comma-separated: rmse, mae, accuracy, … (docs/decide.md).")],
    out: Annotated[Path, typer.Option("--out", help="Predictions: .csv, .tsv, .jsonl or .parquet.")],
    labels: Annotated[
        str | None, typer.Option("--labels", help="What may be answered: 0..5:0.25, a,b,c or bad=1,good=5.")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option("--candidates", help="The same, one a line: a text, or a text, a tab and its number.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Column to compare with: prints a table.")] = None,
    n: Annotated[int, typer.Option("-n", help="Draws, or chains of reasoning.", show_default=True)] = 16,
    estimator: Annotated[
        str | None, typer.Option("--estimator", help="enumerate (default with labels), sample (without) or scored.")
    ] = None,
    compare_estimators: Annotated[
        bool, typer.Option("--compare-estimators", help="All three, side by side in the table.")
    ] = False,
    reasoning: Annotated[
        bool, typer.Option("--reasoning", help="Draw chains of reasoning, ask after each, average.")
    ] = False,
    bridge: Annotated[
        str | None, typer.Option("--bridge", help="What is put after a chain; default: a new line and `Answer:`.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Rows with targets to learn intervals and lines from.")
    ] = None,
    calibration_rows: Annotated[int | None, typer.Option("--calibration-rows", help="Only its first so many.")] = None,
    coverage: Annotated[
        float | None, typer.Option("--coverage", help="Share of targets that intervals hold; default: 0.9.")
    ] = None,
    conformal: Annotated[
        str | None,
        typer.Option("--conformal", help="aps, saps (sets); absolute, normalised, quantile (intervals)."),
    ] = None,
    abstain: Annotated[
        float | None, typer.Option("--abstain", help="Of wrong answers let out at most this share.")
    ] = None,
    costs: Annotated[
        Path | None, typer.Option("--costs", help="For the metric cost: CSV, a row for each target.")
    ] = None,
    positive: Annotated[str | None, typer.Option("--positive", help="Label whose probability is scored (auc).")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Only the first so many; more can follow later.")] = None,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="Rows that cannot be used get an error instead of stopping it all.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="No chat template: continue the prompt.")] = False,
    system: o.System = None,
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="Of the draws.", show_default=True)] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Longest free answer or chain of reasoning.")
    ] = None,
    stop: o.Stop = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same answers.", show_default=True)] = 0,
    model: o.Model = o.DEFAULT_MODEL,
    profile: o.Profile = "fast",
    threads: o.Threads = None,
    kv_cache_gb: o.KvCacheGb = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="A picture of laws and predictions.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Predict for every row of DATA what is best for each metric.

    The same command continues after an interruption, and decides anew, without the model, where only metrics changed.
    """
    given = locals()
    from wager.decide.job import Job

    given["stop"] = tuple(stop or ())
    job = Job(**{name: given[name] for name in Job.__dataclass_fields__})
    options = {"model": model, "profile": profile, "threads": threads, "kv_cache_gb": kv_cache_gb}
    outcome = _run(job, options, plot)
    _show(outcome, job, as_json=as_json)


def _run(job: Job, options: Mapping[str, object], plot: Path | None) -> Outcome:
    from wager.decide.outcome import journal_of, run

    with Bars() as bars, ExitStack() as stack:
        progress = Ticker(bars)

        def load() -> LLM:
            llm = o.load(options, bars)
            stack.callback(llm.close)
            return llm

        try:
            return run(job, load, say=progress.say, progress=progress, plot=plot)
        except KeyboardInterrupt:
            bars.close()
            say(f"stopped: what was answered is in {journal_of(job.out)}, the same command continues")
            raise


def _show(outcome: Outcome, job: Job, *, as_json: bool) -> None:
    from wager.decide.report import held, released, table, to_json
    from wager.decide.words import counted

    errors = f", {outcome.n_errors} without an answer (see the column error)" if outcome.n_errors else ""
    done = f"{counted(outcome.n_rows, 'row')} in {job.out}{errors}"
    say(f"{done}; {counted(outcome.n_tokens, 'token')} beyond the {'prompt' if outcome.n_rows == 1 else 'prompts'}")
    for line in (*outcome.warnings, *released(outcome)):
        say(line)
    if job.main == "enumerate" and outcome.covered < _LITTLE:
        say(f"the candidates hold {outcome.covered:.2g} of the model's probability: the prompt does not ask for them")
    if as_json:
        print_json(to_json(outcome))
    elif outcome.scores:
        print(table(outcome, job.metrics))
        if line := held(outcome, job.level):
            print(f"\n{line}")
