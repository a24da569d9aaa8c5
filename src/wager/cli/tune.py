"""`wager tune`: measure once what makes a model fast here, and keep it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, print_json, say
from wager.errors import OptionError

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PER_TASK = 2
_BUDGETS = {None: 120.0, "skip": 180.0}
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0}


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="Name, OpenVINO folder, or .gguf file.")] = o.DEFAULT_MODEL,
    drafter: Annotated[
        str | None, typer.Option("--drafter", help="Tune this drafter (skip) instead.", show_default=False)
    ] = None,
    method: Annotated[str, typer.Option("--method", help="How sets are proposed: swift, conf, cosine.")] = "swift",
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time to take, as 120, 120s or 2m; default: 2m, or 3m for skip.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="For skip: JSON lines with `prompt` or `turns`; default: our own.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the search.")] = 0,
    profile: o.Profile = "fast",
    threads: o.Threads = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw v(n) into this file (.png, .svg, .pdf).")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Find how a model runs fastest here, and keep it.

    Every command then uses it. Or what `--drafter skip` leaves out of a model: the set of attentions and MLPs with
    which drafting is fastest.
    """
    if drafter not in _BUDGETS:
        raise OptionError(f"--drafter is `{drafter}`: give --drafter skip, or none to tune how the model runs")
    budget_s = _BUDGETS[drafter] if budget is None else seconds(budget)
    if drafter == "skip":
        if picture is not None:
            raise OptionError(f"--plot `{picture}` is for the model's own tuning: leave out --drafter")
        _tune_skip(model, method, budget_s, prompts, seed, profile, threads, as_json)
        return
    if prompts is not None:
        raise OptionError(f"--prompts `{prompts}` is for --drafter skip: add that, or leave it out")
    from wager.models import catalog, tuned
    from wager.tuning import execution, report

    if picture is not None:
        report.check_picture(picture)
    with Bars() as bars:
        folder = catalog.resolve(model, progress=bars)
        found = execution.tune(folder, profile=profile, budget_s=budget_s, threads=threads, seed=seed, progress=bars)
    if as_json:
        print_json(found)
    else:
        print("\n".join(report.lines(found)))
    if picture is not None:
        report.plot(found, picture)
    say(f"kept in {tuned.record_path(folder, profile)}: profile {profile} uses it from now on")


def seconds(text: str) -> float:
    """``120``, ``120s`` or ``2m`` in seconds. Raises OptionError for anything else, and what is not positive."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m") else (text, "")
    try:
        found = float(number) * _UNITS[unit]
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise OptionError(f"--budget is `{text}`: give a positive time, as 120, 120s or 2m")
    return found


def _tune_skip(
    model: str,
    method: str,
    budget_s: float,
    prompts: Path | None,
    seed: int,
    profile: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from wager.drafters.skip_search import METHODS

    if method not in METHODS:
        raise OptionError(f"--method is `{method}`: give one of {', '.join(METHODS)}")
    texts = _prompts(prompts)
    from wager.drafters.skip import saved_key
    from wager.machine import measurements_path, save_measurements
    from wager.models import catalog
    from wager.models.openvino import load_model
    from wager.text import Text
    from wager.tune_skip import tune as tune_skip
    from wager.tune_skip import write_texts

    with Bars() as bars:
        folder = catalog.resolve(model, progress=bars)
        target = load_model(folder, profile=profile, threads=threads)
        written = write_texts(target, Text(folder), texts, progress=bars)
        found = tune_skip(target, written, method=method, budget_s=budget_s, seed=seed, progress=bars)
    key = saved_key(catalog.model_hash(folder))
    save_measurements(key, found)
    if as_json:
        print_json(found)
    else:
        print("\n".join(lines(found)))
    say(f"kept in {measurements_path(key)}: --drafter skip uses it")


def _prompts(path: Path | None) -> list[str]:
    from wager.bench.suite import choose, load_suite, suite_path

    if path is not None and not path.is_file():
        raise OptionError(f"--prompts is `{path}`: give a JSON-lines file that is there")
    suite = load_suite(path or suite_path("mixed"))
    return [prompt.text for prompt in choose(suite, per_task=_PER_TASK if path is None else None, tasks=())]


def lines(found: dict[str, Any]) -> list[str]:
    """The report for people."""
    memory = f"{megabytes(found['memory_bytes'])} more" if found["memory_bytes"] else "unknown"
    rows = [
        ("left out", f"{len(found['skip'])} of {found['n_modules']} modules: {', '.join(found['skip'])}"),
        ("tried", f"{found['n_tried']} sets ({found['method']}, seed {found['seed']})"),
        ("a drafted token costs", f"{found['cost_ratio']:.2f} of a plain step"),
        ("first token right", f"{found['right']:.0%} of drafts, on texts that were not searched on"),
        ("best draft length", f"{found['n_draft']}, of which {found['n_accepted']:.2f} are accepted"),
        ("SWIFT's score", f"{found['matchness']:.2f}"),
        ("memory", memory),
        ("expected speed", f"{found['speed']:.2f} x plain" + ("" if found["speed"] > 1 else ": it does not pay here")),
    ]
    return [f"{name:<24}{value}" for name, value in rows]
