"""`wager bench serve`: tokens a second and latencies of the server by number of clients."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, say
from wager.errors import OptionError
from wager.types import JSON


def serve(
    model: o.Model = o.DEFAULT_MODEL,
    clients: Annotated[str, typer.Option(help="Numbers of clients, comma-separated.")] = "1,2,4,8,16",
    modes: Annotated[
        str, typer.Option(help="Comma-separated: off, on (four draft tokens), auto, genai.")
    ] = "off,auto,genai",
    suite: Annotated[str, typer.Option(help="A shipped suite by name, or JSON lines with prompt or turns.")] = "mixed",
    per_task: Annotated[int | None, typer.Option(help="Only the first so many prompts of every task.")] = 2,
    tasks: Annotated[str, typer.Option(help="Only these tasks, comma-separated.")] = "",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Longest answer in tokens.")] = 64,
    rounds: Annotated[int, typer.Option(help="How often everything is measured.")] = 5,
    profile: o.Profile = "fast",
    threads: o.Threads = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; the same command continues there.")] = Path(
        "serve-out"
    ),
) -> None:
    """Put our server under load, with and without speculation, and openvino-genai beside it.

    Exit code 1 if a request failed or, in a profile that promises it cannot, speculation changed a text.
    """
    from wager.bench import serving as s
    from wager.bench.our_serving import MODES
    from wager.bench.suite import choose, listed, load_suite, sha256, suite_path
    from wager.models.profiles import PROFILES

    names = listed(modes)
    if not names or not set(names) <= {*MODES, s.GENAI}:
        raise OptionError(f"--modes is `{modes}`: give some of {', '.join((*MODES, s.GENAI))}")
    if rounds < 1:
        raise OptionError(f"--rounds is `{rounds}`: give at least 1")
    path, counts = suite_path(suite), _counts(clients)
    prompts = choose(load_suite(path), per_task=per_task, tasks=listed(tasks))
    settings = {
        "model": model,
        "profile": profile,
        "threads": threads,
        "modes": names,
        "clients": counts,
        "suite_sha256": sha256(path),
        "prompts": len(prompts),
        "max_tokens": max_tokens,
    }
    rows = _measured(settings, [p.text for p in prompts], rounds, out)
    text = s.markdown(s.cells(rows))
    (out / "load.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    n_errors, n_other = s.errors(rows), s.differences(rows)
    if n_errors or n_other:
        say(f"{n_errors} requests failed, {n_other} loads gave other texts")
    if n_errors or (n_other and PROFILES[profile].rules):
        raise typer.Exit(1)


def _measured(settings: JSON, texts: list[str], rounds: int, out: Path) -> list[JSON]:
    """The rows of all rounds, those of earlier sessions included."""
    from wager.bench import serving as s
    from wager.bench.our_serving import MODES
    from wager.bench.peers import Worker
    from wager.bench.setup import circumstances
    from wager.journal import Journal

    counts = settings["clients"]
    with ExitStack() as stack, Bars() as bars:
        out.mkdir(parents=True, exist_ok=True)
        first = {**circumstances(), "settings": settings}
        journal = Journal(out / "load.jsonl", first, holds="a measurement", remedy="give another --out")
        stack.callback(journal.close)
        n_known = 1 + max((row["round"] for row in journal if row["kind"] == "load"), default=-1)
        about = {name: settings[name] for name in ("model", "profile", "threads")}
        ours = Worker("our_serving", {**about, "max_seqs": max(counts), "prompts": texts})
        stack.callback(ours.close)
        answering = {name: s.over_http(ours, name) for name in settings["modes"] if name in MODES}
        if s.GENAI in settings["modes"]:
            given = {name: ours.settings[name] for name in ("ir_dir", "properties", "eos_ids")}
            peer = Worker("genai_serving", {**given, "kv_cache_gb": 2})
            stack.callback(peer.close)
            answering[s.GENAI] = s.in_process(peer, ours.settings["ids"])
        more = {"max_tokens": settings["max_tokens"], "temperature": 0}
        chats = [{"messages": [{"role": "user", "content": text}], **more} for text in texts]
        s.measure(answering, chats, counts, rounds=rounds, first=n_known, add=journal.add, progress=bars)
        return [row for row in journal if row["kind"] == "load"]


def _counts(clients: str) -> list[int]:
    try:
        counts = [int(part) for part in clients.split(",")]
    except ValueError as error:
        raise OptionError(f"--clients is `{clients}`: give numbers such as 1,2,4") from error
    if min(counts) < 1:
        raise OptionError(f"--clients is `{clients}`: give at least 1")
    return counts
