"""The table of methods on metrics, as Markdown and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike

from wager.decide.metrics import MetricInfo
from wager.decide.outcome import Outcome
from wager.decide.words import counted
from wager.intervals import Interval
from wager.types import JSON

_ARROWS = {"lower": "↓", "higher": "↑"}


def table(outcome: Outcome, metrics: ListLike[MetricInfo]) -> str:
    """Methods down, metrics across, with 95 % bootstrap intervals; the best of a column in bold."""
    best = {metric.spec: _best(outcome, metric) for metric in metrics}
    silent = any(score.n_silent for score in outcome.scores)
    rows = [["", *(f"{metric.spec} {_ARROWS[metric.better]}" for metric in metrics), *(["no answer"] * silent)]]
    for score in outcome.scores:
        name = score.method.name
        own = [spec for spec in best if spec in score.method.best_for]
        cells = [_cell(score.cells.get(spec), best[spec]) for spec in best]
        rows.append([f"{name} (for {', '.join(own)})" if own else name, *cells, *([str(score.n_silent)] * silent)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join(" " + "-" * width + " " for width in widths) + "|")
    return "\n".join(lines)


def held(outcome: Outcome, coverage: float) -> str:
    """How often the intervals or sets held the target; "" where there are none."""
    found = outcome.held
    if not found.n:
        return ""
    share, size = found.n_inside / found.n, found.size / found.n
    return (
        f"intervals hold {share:.1%} of {counted(found.n, 'target')} ({coverage:.1%} asked for), mean size {size:.3g}"
    )


def released(outcome: Outcome) -> list[str]:
    """What was withheld, and what that promises: sentences, none where nothing was to be withheld."""
    lines = []
    for spec, found in outcome.released.items():
        alpha, n_wrong = found.rule.alpha, counted(found.rule.n_wrong, "wrong calibration answer")
        line = f"{spec}: {found.n_out} of {counted(found.n, 'answer')} released, by {n_wrong}"
        if math.isinf(found.rule.threshold):
            line += f" (none is with fewer than {math.ceil(1 / alpha - 1 - 1e-9)})"
        if found.n_wrong:
            share = f"{found.n_wrong_out / found.n_wrong:.1%}"
            line += f"; of {counted(found.n_wrong, 'wrong one')} {found.n_wrong_out}, {share}"
        lines.append(line)
    for found in list(outcome.released.values())[:1]:
        lines.append(
            f"promised, on average over calibration sets: at most {found.rule.alpha:.1%} of the wrong answers are "
            "released; not promised: how many of those released are wrong"
        )
    return lines


def to_json(outcome: Outcome) -> JSON:
    """The same for programs."""
    scores = [
        {
            "method": score.method.name,
            "best_for": sorted(score.method.best_for),
            "n_silent": score.n_silent,
            "metrics": {
                spec: {"value": _finite(x.value), "low": _finite(x.low), "high": _finite(x.high)}
                for spec, x in score.cells.items()
            },
        }
        for score in outcome.scores
    ]
    counts = {name: getattr(outcome, name) for name in ("n_rows", "n_errors", "n_targets", "n_tokens", "covered")}
    inside = {"n": outcome.held.n, "n_inside": outcome.held.n_inside, "size": _finite(outcome.held.size)}
    names = ("n", "n_out", "n_wrong", "n_wrong_out")
    let_out = {
        spec: {**{name: getattr(found, name) for name in names}, "alpha": found.rule.alpha}
        for spec, found in outcome.released.items()
    }
    return {**counts, "scores": scores, "intervals": inside, "released": let_out, "warnings": outcome.warnings}


def _best(outcome: Outcome, metric: MetricInfo) -> float:
    values = [score.cells[metric.spec].value for score in outcome.scores if metric.spec in score.cells]
    known = [value for value in values if not math.isnan(value)]
    return (min if metric.better == "lower" else max)(known, default=math.nan)


def _cell(found: Interval | None, best: float) -> str:
    if found is None or math.isnan(found.value):
        return "–"
    value = f"**{found.value:.3f}**" if found.value == best else f"{found.value:.3f}"
    return f"{value} [{found.low:.3f}, {found.high:.3f}]"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
