"""The table of `wager rules` for people, as Markdown."""

from __future__ import annotations

from collections.abc import Callable

from wager.bench.report import or_blank, table
from wager.bench.rules_plan import PLAIN
from wager.bench.rules_summary import Line, Summary

_DEPTHS = (1, 2, 4, 8)  # those that the table shows
_COLUMNS: dict[str, Callable[[Line], str]] = {
    "rule": lambda line: line.rule,
    "k": lambda line: _children(line),
    "depth": lambda line: str(line.depth or ""),
    "tokens/forward": lambda line: str(line.tokens_per_forward),
    "first": lambda line: or_blank(line.first_acceptance, "{:.3f}"),
    "optimum": lambda line: or_blank(line.optimum, "{:.3f}" if line.is_bound else "({:.3f})"),
    f"accepted at {', '.join(map(str, _DEPTHS))}": lambda line: _by_depth(line),
    "drawn": lambda line: f"{line.drawn:.1f}" if line.drawn else "",
    "fed": lambda line: f"{line.fed:.1f}" if line.drawn else "",
    "ms/token": lambda line: f"{line.ms_per_token:.1f}",
    "draft ms": lambda line: f"{line.draft_ms:.1f}",
    "target ms": lambda line: f"{line.target_ms:.1f}",
    "rule ms": lambda line: f"{line.rule_ms:.2f}",
    "host ms": lambda line: f"{line.host_ms:.2f}",
    "speed-up": lambda line: str(line.speed_up or ""),
    "KL": lambda line: or_blank(line.kl, "{:.3g}"),
    "TV": lambda line: or_blank(line.tv, "{:.3f}"),
    "same text": lambda line: f"{line.n_same} of {line.n_prompts}" if line.rule != PLAIN else "",
}


def markdown(summary: Summary) -> str:
    """The whole report."""
    parts = [_head(summary)]
    for temperature in dict.fromkeys(line.temperature for line in summary.lines):
        rows = [line for line in summary.lines if line.temperature == temperature]
        blank = {name for name, cell in _COLUMNS.items() if not any(cell(line) for line in rows)}
        names = [name for name in _COLUMNS if name not in blank]
        cells = [[_COLUMNS[name](line) for name in names] for line in rows]
        parts.append(f"## Temperature {temperature:g}\n\n" + table(names, cells))
    parts.append(_LEGEND)
    parts += _remarks(summary)
    return "\n\n".join(parts) + "\n"


_LEGEND = (
    "`k (n)`: n children on average, as forwards had no room for more. `first`: share of rounds whose first token was "
    "drafted; `optimum`: mean alpha*_k at the same contexts, what the best rule reaches on k i.i.d. draws; in brackets "
    "where it is no bound for this rule (children that differ, or lossy). `drawn`, `fed`: draft tokens a forward, "
    "before and after equal draws are merged. Times are ms a token, after the first ones. KL(output || target) and TV: "
    "per verified position. docs/numbers.md defines them all."
)


def _children(line: Line) -> str:
    """k, and how many children there were below the root where forwards had no room for as many."""
    fewer = not line.trunk and line.k > 1 and line.children < 0.99 * line.k
    return f"{line.k} ({line.children:.1f})" if fewer else str(line.k or "")


def _by_depth(line: Line) -> str:
    return ", ".join(f"{line.accepted_by_depth[d - 1]:.2f}" for d in _DEPTHS if d <= len(line.accepted_by_depth))


def _head(summary: Summary) -> str:
    p, s = summary.provenance, summary.provenance["settings"]
    versions = p["versions"]
    trunk = f", {s['trunk']} tokens before branches part" if s["trunk"] else ""
    return (
        f"# {s['draft']} drafts for {s['target']} on {p['cpu']['name']}, {p['cpu']['n_cores']} cores\n\n"
        f"{s['suite']}, up to {s['max_tokens']} tokens, seed {s['seed']}, profile {s['profile']}{trunk}. "
        f"wager {versions['wager']} ({(p['git'] or 'no source tree')[:13]}), OpenVINO {versions['openvino']}, "
        f"{p['started']}. Tokens per forward: sums over prompts, 95 % bootstrap intervals over prompts; speed-up: "
        "median over prompts of seconds per token, plain / rule."
    )


def _remarks(summary: Summary) -> list[str]:
    remarks = [f"**{str(found).replace(':', '**:', 1)}." for found in summary.mismatches]
    remarks += [
        f"Prompt `{row['prompt_id']}` ({row['task']}) was left out: {row['reason']}." for row in summary.skipped
    ]
    return remarks
