"""`wager bench serve`: tokens a second and latencies of the server by number of clients."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, say
from wager.errors import OptionError


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

    Exit code 1 if speculation changed a text or a request failed.
    """
    from wager.bench import serving as s
    from wager.bench.our_serving import MODES
    from wager.bench.peers import Worker
    from wager.bench.setup import circumstances
    from wager.bench.suite import choose, load_suite, sha256, suite_path
    from wager.journal import Journal

    names = [name.strip() for name in modes.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*MODES, s.GENAI)]
    if unknown or not names:
        raise OptionError(f"--modes is `{modes}`: give some of {', '.join((*MODES, s.GENAI))}")
    counts = _counts(clients)
    if rounds < 1:
        raise OptionError(f"--rounds is `{rounds}`: give at least 1")
    path = suite_path(suite)
    prompts = choose(load_suite(path), per_task=per_task, tasks=[t.strip() for t in tasks.split(",") if t.strip()])
    chats = [
        {"messages": [{"role": "user", "content": p.text}], "max_tokens": max_tokens, "temperature": 0} for p in prompts
    ]
    settings = {
        "model": model,
        "modes": names,
        "clients": counts,
        "suite_sha256": sha256(path),
        "prompts": len(prompts),
    }
    settings |= {"max_tokens": max_tokens, "profile": profile, "threads": threads}
    with ExitStack() as stack, Bars() as bars:
        out.mkdir(parents=True, exist_ok=True)
        first = {**circumstances(), "settings": settings}
        journal = Journal(out / "load.jsonl", first, holds="a measurement", remedy="give another --out")
        stack.callback(journal.close)
        known = [row for row in journal if row["kind"] == "load"]
        about = {"model": model, "profile": profile, "threads": threads, "max_seqs": max(counts)}
        ours = Worker("our_serving", {**about, "prompts": [p.text for p in prompts]})
        stack.callback(ours.close)
        answering = {name: s.over_http(ours, name) for name in names if name in MODES}
        if s.GENAI in names:
            given = ("ir_dir", "properties", "eos_ids")
            peer = Worker("genai_serving", {**{k: ours.settings[k] for k in given}, "kv_cache_gb": 2})
            stack.callback(peer.close)
            answering[s.GENAI] = s.in_process(peer, ours.settings["ids"])
        n_known = 1 + max((row["round"] for row in known), default=-1)
        s.measure(answering, chats, counts, rounds=rounds, first=n_known, add=journal.add, progress=bars)
        rows = [row for row in journal if row["kind"] == "load"]
    text = s.markdown(s.cells(rows))
    (out / "load.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    n_errors, n_other = sum("error" in r for row in rows for r in row["requests"]), s.differences(rows)
    if n_errors or n_other:
        say(f"{n_errors} requests failed, {n_other} rounds gave other texts")
        raise typer.Exit(1)


def _counts(clients: str) -> list[int]:
    try:
        counts = [int(part) for part in clients.split(",")]
    except ValueError as error:
        raise OptionError(f"--clients is `{clients}`: give numbers such as 1,2,4") from error
    if min(counts) < 1:
        raise OptionError(f"--clients is `{clients}`: give at least 1")
    return counts
