"""The report of a measurement in sections, a table each; here as Markdown, with plots in page.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.bench.stats import Percentiles
from wager.bench.summary import MIN_DECODED, PARTS, Line, Summary

_DEPTHS = 8  # columns of the table; deeper drafts are in the plot and in the JSON


@dataclass(frozen=True, slots=True)
class Section:
    """``name`` finds its plot. ``note``: what the columns mean, in a sentence or two."""

    name: str
    title: str
    note: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def title(summary: Summary) -> str:
    p = summary.provenance
    return f"{p['settings']['model']} on {p['cpu']['name']}, {p['cpu']['n_cores']} cores"


def introduction(summary: Summary) -> str:
    p, s = summary.provenance, summary.provenance["settings"]
    ending = "past the end of the answer" if s["ignore_eos"] else "or to the end of the answer"
    load = f" Load at the start: {p['load'][0]:.1f} processes." if p.get("load") else ""
    return (
        f"{s['suite']}, up to {s['max_tokens']} tokens {ending}, temperature {s['temperature']:g}, seed {s['seed']}. "
        f"wager {p['versions']['wager']} ({(p['git'] or 'no source tree')[:13]}), "
        f"OpenVINO {p['versions']['openvino']}, {p['started']}, {', '.join(p['cpu']['flags'])}.{load} "
        "Medians of paired ratios over prompts with 95 % bootstrap intervals."
    )


def sections(summary: Summary) -> list[Section]:
    """Those that have something to say."""
    found = [_overall(summary), _by_task(summary), _by_peer(summary), _latency(summary), _split(summary)]
    found += [_depths(summary), _roofline(summary)]
    return [section for section in found if section.rows]


def remarks(summary: Summary) -> list[str]:
    """What went wrong or was left out, alarms first."""
    said = [
        f"**NOT IDENTICAL**: `{m['method']}` and `{m['other']}` on prompt `{m['prompt_id']}` ({m['task']}), "
        f"token {m['at']}: {m['token']} and {m['other_token']}."
        for m in summary.mismatches
    ]
    said += [f"`{row['method']}` is missing: {row['reason']}." for row in summary.missing]
    said += [f"Prompt `{row['prompt_id']}` ({row['task']}) was left out: {row['reason']}." for row in summary.skipped]
    said += [
        f"`{name}` knows repeated prompts: its own model keeps their K/V, which shortens its time to the first token."
        for name in summary.keep_replayed
    ]
    if summary.n_short:
        said.append(f"{summary.n_short} answers of at most {MIN_DECODED} tokens are in no time or ratio.")
    return said


def markdown(summary: Summary) -> str:
    """The report for people."""
    parts = [f"# {title(summary)}", introduction(summary)]
    for section in sections(summary):
        parts += [f"## {section.title}", *([section.note] if section.note else []), table(section.head, section.rows)]
    return "\n\n".join([*parts, *remarks(summary)]) + "\n"


# -- the sections ------------------------------------------------------------------------------------------------


def _overall(summary: Summary) -> Section:
    head = ["method", "requests", "speed-up", "end to end", "ms/token", "tokens/s", "tokens/forward", "accepted"]
    head += ["outside forward", "of roofline", "first token", "same text"]
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
            or_blank(line.of_roofline, "{:.0%}"),
            f"{line.first_token_ms.p50:.0f} ms" if line.first_token_ms else "",
            "" if line.n_same is None else f"{line.n_same} of {line.n_compared}",
        ]
        for line in summary.lines
    ]
    return Section("overall", "Over all prompts", "", head, rows)


def _by_task(summary: Summary) -> Section:
    names = _in_order(summary.tasks.values())
    rows = [[task, *(str(by.get(name, "")) for name in names)] for task, by in summary.tasks.items()]
    return Section("tasks", "Speed-up over plain decoding, by task", "", ["task", *names], rows)


def _by_peer(summary: Summary) -> Section:
    names = _in_order(summary.peers.values())
    rows = [[mine, *(str(by.get(name, "")) for name in names)] for mine, by in summary.peers.items()]
    return Section("peers", "Time per token of peers / ours", "Above 1 we are faster.", ["ours", *names], rows)


def _latency(summary: Summary) -> Section:
    head = ["method", *(f"{what} p{p}" for what in ("first token", "between", "answer") for p in (50, 90, 99))]
    rows = [
        [line.method, *_three(line.first_token_ms, "ms"), *_three(line.gap_ms, "ms"), *_three(line.total_s, "s")]
        for line in summary.lines
        if line.first_token_ms
    ]
    note = (
        "Percentiles over requests; between: from one arrival of tokens to the next (a forward that accepts drafts "
        "brings several at once); answer: from the request to its last token."
    )
    return Section("latency", "Latency", note, head, rows)


def _split(summary: Summary) -> Section:
    rows = [
        [line.method, *(f"{line.split_ms[part]:.2f}" for part in PARTS), f"{sum(line.split_ms.values()):.2f}"]
        for line in summary.lines
        if line.split_ms
    ]
    note = "Milliseconds a token, after the step that gave the first one: in the drafter, in the target, elsewhere."
    return Section("split", "Where the time goes", note, ["method", *PARTS, "together"], rows)


def _depths(summary: Summary) -> Section:
    drafting = [line for line in summary.lines if line.accepted_by_depth]
    n = min(_DEPTHS, max((len(line.accepted_by_depth or ()) for line in drafting), default=0))
    rows = [[line.method, *(f"{a / d:.2f} of {d}" if d else "" for a, d in _first(line, n))] for line in drafting]
    note = "Share of the drafts that reached a depth which were accepted as deep, of how many."
    return Section("depths", "Acceptance by depth", note, ["method", *map(str, range(1, n + 1))], rows)


def _roofline(summary: Summary) -> Section:
    bandwidth = summary.provenance.get("bandwidth", {}).get("large_bytes_per_s")
    rows = [
        [
            line.method,
            f"{line.weights_bytes / 1e6:.0f} MB",
            f"{line.roofline_ms:.1f}",
            f"{line.ms_per_token:.1f}",
            f"{line.of_roofline:.0%}",
        ]
        for line in summary.lines
        if line.weights_bytes and line.roofline_ms and line.of_roofline
    ]
    note = (
        f"Reading every weight once a token, at the {(bandwidth or 0) / 1e9:.1f} GB/s measured here, bounds plain "
        "decoding; drafts may pass 100 %."
    )
    head = ["method", "weights", "ms/token at the roofline", "ms/token", "of roofline"]
    return Section("roofline", "Roofline of plain decoding", note, head, rows)


def _first(line: Line, n: int) -> ListLike[list[int]]:
    known = (line.accepted_by_depth or [])[:n]
    return [*known, *[[0, 0]] * (n - len(known))]


def _three(of: Percentiles | None, unit: str) -> list[str]:
    form = "{:.0f} " if unit == "ms" and of and of.p50 >= 100 else "{:.1f} " if unit == "ms" else "{:.2f} "
    return ["", "", ""] if of is None else [form.format(value) + unit for value in (of.p50, of.p90, of.p99)]


def _in_order(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Every name in the groups once, as they first come."""
    return list(dict.fromkeys(name for group in groups for name in group))


def or_blank(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table that is also aligned as plain text."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *rows]]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
