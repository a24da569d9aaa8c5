"""`wager tune`: measure once what makes a model fast here, and keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, print_json, say
from wager.errors import OptionError

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PER_TASK = 2


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="Name, OpenVINO folder, or .gguf file.")] = o.DEFAULT_MODEL,
    drafter: Annotated[str | None, typer.Option("--drafter", help="What to tune: skip.", show_default=False)] = None,
    method: Annotated[str, typer.Option("--method", help="How sets are proposed: swift, conf, cosine.")] = "swift",
    budget: Annotated[float, typer.Option("--budget", help="Seconds to search.")] = 180.0,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="JSON lines with `prompt` or `turns`; default: our own suite.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the search.")] = 0,
    profile: o.Profile = "fast",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Find what `--drafter skip` leaves out of a model, and keep it.

    A set of attentions and MLPs: the one with which drafting is fastest here, of those tried within the budget.
    """
    if drafter != "skip":
        given = "not given" if drafter is None else f"`{drafter}`"
        raise OptionError(f"--drafter is {given}: give --drafter skip, nothing else can be tuned yet")
    from wager.drafters.skip_search import METHODS

    if method not in METHODS:
        raise OptionError(f"--method is `{method}`: give one of {', '.join(METHODS)}")
    if not budget > 0:
        raise OptionError(f"--budget is `{budget}`: give a positive number of seconds")
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
        found = tune_skip(target, written, method=method, budget_s=budget, seed=seed, progress=bars)
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
