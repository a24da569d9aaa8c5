"""From the rows of a measurement to tables: every number follows from the JSON lines alone."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

import numpy as np

from wager.bench.answer import s_per_token
from wager.bench.journal import runs
from wager.bench.methods import Method, parse_method
from wager.bench.stats import bootstrap_median, paired_ratios, share
from wager.intervals import Interval
from wager.types import JSON

MIN_DECODED = 8  # answers with fewer tokens after the first are too short to time
Pairs = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Line:
    """One method over all prompts. Ratios are plain / method in the same profile; None where plain was not run."""

    method: str
    n_requests: int
    speed_up: Interval | None
    end_to_end: Interval | None
    ms_per_token: float
    tokens_per_s: float
    first_token_ms: float
    n_same: int | None  # answers identical to plain's, of n_compared
    n_compared: int
    tokens_per_forward: float | None = None
    acceptance_rate: float | None = None
    outside_share: float | None = None


@dataclass(slots=True)
class Summary:
    provenance: JSON
    lines: list[Line] = field(default_factory=list)
    tasks: dict[str, dict[str, Interval]] = field(default_factory=dict)  # task -> method -> speed-up
    peers: dict[str, dict[str, Interval]] = field(default_factory=dict)  # ours -> peer -> peer's time / ours
    missing: list[JSON] = field(default_factory=list)
    skipped: list[JSON] = field(default_factory=list)
    mismatches: list[JSON] = field(default_factory=list)
    n_short: int = 0


def summarise(rows: ListLike[JSON]) -> Summary:
    """``rows`` as read from runs.jsonl, provenance first."""
    summary = Summary(rows[0])
    done = runs(rows)
    timed = [row for row in done if row["n_tokens"] > MIN_DECODED]
    summary.n_short = len(done) - len(timed)
    names = [name for name in rows[0]["settings"]["methods"] if any(row["method"] == name for row in done)]
    methods = {name: parse_method(name) for name in names}
    for name in names:
        base = _plain_of(methods[name], methods)
        summary.lines.append(_line(name, base, done, timed))
        if base is not None and base != name:
            for task in dict.fromkeys(row["task"] for row in timed):
                ratio = _ratio([row for row in timed if row["task"] == task], base, name, s_per_token)
                if ratio is not None:
                    summary.tasks.setdefault(task, {})[name] = ratio
    for mine in (name for name in names if methods[name].is_ours and methods[name].kind != "oracle"):
        for peer in (name for name in names if not methods[name].is_ours):
            ratio = _ratio(timed, peer, mine, s_per_token)
            if ratio is not None:
                summary.peers.setdefault(mine, {})[peer] = ratio
    skipped = {row["prompt_id"]: row for row in rows if row["kind"] == "skipped"}
    last = {row["method"]: row for row in rows if row["kind"] in ("method", "missing")}
    summary.skipped = list(skipped.values())
    summary.missing = [row for row in last.values() if row["kind"] == "missing"]
    summary.mismatches = [row for row in rows if row["kind"] == "mismatch"]
    return summary


def _plain_of(method: Method, methods: dict[str, Method]) -> str | None:
    return next((n for n, m in methods.items() if m.kind == "plain" and m.profile == method.profile), None)


def _line(name: str, base: str | None, done: list[JSON], timed: list[JSON]) -> Line:
    mine = [row for row in timed if row["method"] == name]
    others = base is not None and base != name
    texts = {(r["prompt_id"], r["repeat"]): r["tokens"] for r in done if r["method"] == base} if others else {}
    pairs = [(r["tokens"], texts[r["prompt_id"], r["repeat"]]) for r in done
             if r["method"] == name and (r["prompt_id"], r["repeat"]) in texts]  # fmt: skip
    own = [row for row in mine if "n_forwards" in row]
    decode_s = sum(row["decode_s"] for row in mine)
    n_decoded = sum(row["n_tokens"] - 1 for row in mine)
    inside = share([row["decode_target_s"] for row in own], [row["decode_s"] for row in own])
    return Line(
        method=name,
        n_requests=len(mine),
        speed_up=_ratio(timed, base, name, s_per_token) if base is not None and others else None,
        end_to_end=_ratio(timed, base, name, _total_s) if base is not None and others else None,
        ms_per_token=float(np.median([1e3 * s_per_token(row) for row in mine])) if mine else 0.0,
        tokens_per_s=n_decoded / decode_s if decode_s > 0 else 0.0,
        first_token_ms=float(np.median([1e3 * row["first_token_s"] for row in mine])) if mine else 0.0,
        n_same=sum(a == b for a, b in pairs) if others else None,
        n_compared=len(pairs),
        tokens_per_forward=share([r["n_tokens"] for r in own], [r["n_forwards"] for r in own]) if own else None,
        acceptance_rate=share([r["n_accepted"] for r in own], [r["n_drafted"] for r in own]) if own else None,
        outside_share=1 - inside if own else None,
    )


def _total_s(row: JSON) -> float:
    return float(row["total_s"]) / int(row["n_tokens"])


def _ratio(rows: ListLike[JSON], base: str, name: str, value: Callable[[JSON], float]) -> Interval | None:
    """Median over prompts of value(base) / value(name); None where no prompt has both."""

    def pairs(method: str) -> Pairs:
        return {(row["prompt_id"], row["repeat"]): value(row) for row in rows if row["method"] == method}

    ratios = paired_ratios(pairs(base), pairs(name))
    return bootstrap_median(ratios) if len(ratios) else None


# -- Markdown ----------------------------------------------------------------------------------------------------


def markdown(summary: Summary) -> str:
    """The report for people."""
    parts = [_head(summary), _overall(summary)]
    if summary.tasks:
        names = list(dict.fromkeys(name for by_method in summary.tasks.values() for name in by_method))
        rows = [[task, *(str(by.get(name, "")) for name in names)] for task, by in summary.tasks.items()]
        parts.append("## Speed-up over plain decoding, by task\n\n" + table(["task", *names], rows))
    if summary.peers:
        names = list(dict.fromkeys(name for by_peer in summary.peers.values() for name in by_peer))
        rows = [[mine, *(str(by.get(name, "")) for name in names)] for mine, by in summary.peers.items()]
        parts.append("## Time per token of peers / ours\n\n" + table(["ours", *names], rows))
    parts += _remarks(summary)
    return "\n\n".join(parts) + "\n"


def _head(summary: Summary) -> str:
    p, s = summary.provenance, summary.provenance["settings"]
    cpu, versions = p["cpu"], p["versions"]
    ending = "past the end of the answer" if s["ignore_eos"] else "or to the end of the answer"
    return (
        f"# {s['model']} on {cpu['name']}, {cpu['n_cores']} cores\n\n"
        f"{s['suite']}, up to {s['max_tokens']} tokens {ending}, temperature {s['temperature']:g}, seed {s['seed']}. "
        f"wager {versions['wager']} ({(p['git'] or 'no source tree')[:13]}), OpenVINO {versions['openvino']}, "
        f"{p['started']}, {', '.join(cpu['flags'])}. "
        "Medians of paired ratios over prompts with 95 % bootstrap intervals."
    )


def _overall(summary: Summary) -> str:
    head = ["method", "requests", "speed-up", "end to end", "ms/token", "tokens/s", "tokens/forward", "accepted"]
    head += ["outside forward", "first token", "same text"]
    rows = [
        [
            line.method,
            str(line.n_requests),
            str(line.speed_up or ""),
            str(line.end_to_end or ""),
            f"{line.ms_per_token:.1f}",
            f"{line.tokens_per_s:.1f}",
            or_blank(line.tokens_per_forward, "{:.2f}"),
            or_blank(line.acceptance_rate, "{:.0%}") if line.acceptance_rate else "",
            or_blank(line.outside_share, "{:.1%}"),
            f"{line.first_token_ms:.0f} ms",
            "" if line.n_same is None else f"{line.n_same} of {line.n_compared}",
        ]
        for line in summary.lines
    ]
    return "## Over all prompts\n\n" + table(head, rows)


def _remarks(summary: Summary) -> list[str]:
    remarks = [
        f"**NOT IDENTICAL**: `{m['method']}` and `{m['other']}` on prompt `{m['prompt_id']}` ({m['task']}), "
        f"token {m['at']}: {m['token']} and {m['other_token']}."
        for m in summary.mismatches
    ]
    remarks += [f"`{row['method']}` is missing: {row['reason']}." for row in summary.missing]
    remarks += [
        f"Prompt `{row['prompt_id']}` ({row['task']}) was left out: {row['reason']}." for row in summary.skipped
    ]
    if summary.n_short:
        remarks.append(f"{summary.n_short} answers of at most {MIN_DECODED} tokens are in no time or ratio.")
    return remarks


def or_blank(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table that is also aligned as plain text."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *rows]]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
