"""Plots as HTML with inline SVG: widths in per cent and text in its own size, so that they read on any screen.

Colours come from the page (page.css): series by number, in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from wager.bench.summary import PARTS, Line, Summary

N_COLOURS = 8
_ROW = 18  # pixels
_EDGE = 2.0  # per cent left free on both sides, for marks that stand at the ends
_MOST_TICKS = 5
_FEWEST = 8  # drafts that a point of acceptance needs
_LINES = (210, 6)  # height of the plot of lines, and room above it


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to per cent of the width; ``ticks`` with their labels."""

    low: float
    high: float
    ticks: dict[float, str]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return _EDGE + (100 - 2 * _EDGE) * (at - low) / (high - low)


def linear(values: ListLike[float]) -> Scale:
    """From 0 past the largest, about five ticks."""
    high = max(values, default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(high / 4))
    step *= next(f for f in (1, 2, 2.5, 5, 10) if f * step * 5 >= high)
    n = math.ceil(high / step - 1e-9)
    return Scale(0.0, n * step, {i * step: f"{i * step:g}" for i in range(n + 1)})


def logarithmic(values: ListLike[float]) -> Scale:
    """From below the smallest past the largest: ticks at 1, 2, 5, 10, …, fewer where these are many."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [round(f * 10.0**d, 12) for d in decades for f in (1, 2, 5)]
    first = max(step for step in steps if step <= low)
    last = next(step for step in [*steps, 10 * steps[-1]] if step >= high and step > first)
    ticks = [step for step in steps if first <= step <= last]
    shown = ticks if len(ticks) <= _MOST_TICKS else [t for t in ticks if _is_decade(t)]
    return Scale(first, last, {tick: f"{tick:g}" for tick in shown}, True)


def _is_decade(value: float) -> bool:
    return abs(math.log10(value) - round(math.log10(value))) < 1e-9


# -- the plots of a measurement ----------------------------------------------------------------------------------


def speed_ups(summary: Summary) -> str:
    """Per task and method a dot with its interval; the line is plain decoding."""
    overall = {line.method: line.speed_up for line in summary.lines if line.speed_up}
    groups = {"all prompts": overall, **summary.tasks}
    if not overall:
        return ""
    scale = linear([1.0, *(interval.high for by in groups.values() for interval in by.values())])
    colours = _colours(summary)
    rows = []
    for task, by in groups.items():
        rows.append(_heading(task))
        for name, v in by.items():
            marks = _line(scale(v.low), scale(v.high), colours[name]) + _dot(scale(v.value), colours[name])
            rows.append(_row(name, marks, scale, f"{v.value:.2f}", said=f"{name}: {v}", at=1.0))
    label = "Speed-up over plain decoding with 95 % intervals, by task and method; the values are in the tables."
    return _chart(label, rows, scale, "times plain decoding")


def splits(summary: Summary) -> str:
    """Milliseconds a token, stacked; a dashed line where the roofline of plain decoding is."""
    shown = [line for line in summary.lines if line.ms_per_token]
    totals = [sum(line.split_ms.values()) if line.split_ms else line.ms_per_token for line in shown]
    rooflines = [line.roofline_ms for line in shown if line.roofline_ms]
    if not shown:
        return ""
    scale = linear([*totals, *rooflines])
    rows = [_stack(line, total, scale) for line, total in zip(shown, totals, strict=True)]
    names = [(part, f"c{i}") for i, part in enumerate(PARTS)]
    label = "Milliseconds a token by method, split into draft, target and host; the values are in the tables."
    return _legend([*names, ("not told", "rest")]) + _chart(label, rows, scale, "ms a token; dashed: roofline")


def latencies(summary: Summary) -> str:
    """Three plots: a dot at the median, ticks at the 90th and 99th percentile."""
    shown = (
        ("first token, ms", [(line.method, line.first_token_ms) for line in summary.lines]),
        ("between arrivals, ms", [(line.method, line.gap_ms) for line in summary.lines]),
        ("whole answer, s", [(line.method, line.total_s) for line in summary.lines]),
    )
    parts = []
    for unit, lines in shown:
        known = [(i, name, p) for i, (name, p) in enumerate(lines) if p is not None and p.p50 > 0]
        if not known:
            continue
        scale = logarithmic([value for _, _, p in known for value in (p.p50, p.p99)])
        rows = [
            _row(
                name,
                _line(scale(p.p50), scale(p.p99), i)
                + _dot(scale(p.p50), i)
                + _tick(scale(p.p90), i)
                + _tick(scale(p.p99), i),
                scale,
                _short(p.p50),
                said=f"{name}: {_short(p.p50)}, {_short(p.p90)}, {_short(p.p99)}",
            )
            for i, name, p in known
        ]
        label = f"Median, 90th and 99th percentile by method: {unit}; the values are in the table."
        parts.append(_chart(label, rows, scale, f"{unit}: median, p90, p99 (logarithmic)"))
    return "".join(parts)


def depths(summary: Summary) -> str:
    """Acceptance against depth, a line per method; points that stand for few drafts are left out."""
    drafting = [line for line in summary.lines if line.accepted_by_depth]
    n = max((sum(b >= _FEWEST for _, b in line.accepted_by_depth or ()) for line in drafting), default=0)
    if not n:
        return ""
    height, top = _LINES
    scale = Scale(1, max(2, n), {d: str(d) for d in range(1, n + 1) if n <= 12 or d % 4 == 1})
    marks = [
        f'<line class="grid" x1="0%" x2="100%" y1="{_y(v)}" y2="{_y(v)}"/><text x="0" y="{_y(v) - 3}">{v:g}</text>'
        for v in (0, 0.25, 0.5, 0.75, 1)
    ]
    colours = _colours(summary)
    for line in drafting:
        i = colours[line.method]
        known = enumerate(line.accepted_by_depth or (), start=1)
        points = [(scale(d), _y(a / b)) for d, (a, b) in known if b >= _FEWEST]
        for (x1, y1), (x2, y2) in pairwise(points):
            marks.append(
                f'<line class="s{i % N_COLOURS} d{i % 4}" x1="{x1:.2f}%" y1="{y1:.1f}" x2="{x2:.2f}%" y2="{y2:.1f}"/>'
            )
        marks += [f'<circle class="s{i % N_COLOURS}" cx="{x:.2f}%" cy="{y:.1f}" r="3"/>' for x, y in points]
    label = "Share of drafts accepted as deep as a depth that they reached, by method; the values are in the table."
    figure = f'<svg width="100%" height="{height + 2 * top}">{"".join(marks)}</svg>'
    legend = _legend([(line.method, f"c{colours[line.method] % N_COLOURS}") for line in drafting])
    axis = _axis(scale, "depth of the draft")
    return f'{legend}<div class="chart plain" role="img" aria-label="{escape(label)}">{figure}{axis}</div>'


PLOTS: dict[str, Callable[[Summary], str]] = {
    "overall": speed_ups,
    "split": splits,
    "latency": latencies,
    "depths": depths,
}


# -- parts -------------------------------------------------------------------------------------------------------


def _colours(summary: Summary) -> dict[str, int]:
    """A method has one colour on the whole page."""
    return {line.method: i for i, line in enumerate(summary.lines)}


def _chart(label: str, rows: ListLike[str], scale: Scale, unit: str) -> str:
    axis = _axis(scale, unit)
    return f'<div class="chart" role="img" aria-label="{escape(label)}">{"".join(rows)}{axis}</div>'


def _heading(text: str) -> str:
    return f'<b class="group">{escape(text)}</b>'


def _row(name: str, marks: str, scale: Scale, value: str, *, said: str, at: float | None = None) -> str:
    """Label, value and track: three cells of the chart's grid; the page says where they stand."""
    grid = "".join(_rule(scale(tick), "grid") for tick in scale.ticks)
    line = "" if at is None else _rule(scale(at), "at")
    track = f'<svg width="100%" height="{_ROW}"><title>{escape(said)}</title>{grid}{line}{marks}</svg>'
    return f'<span class="label">{escape(name)}</span><span class="value">{escape(value)}</span>{track}'


def _stack(line: Line, total: float, scale: Scale) -> str:
    marks, start = "", 0.0
    parts = line.split_ms.items() if line.split_ms else [("rest", total)]
    for i, (part, value) in enumerate(parts):
        colour = "rest" if part == "rest" else f"c{i}"
        width = scale(start + value) - scale(start)
        marks += f'<rect class="{colour}" x="{scale(start):.2f}%" width="{width:.2f}%" y="3" height="{_ROW - 6}"/>'
        start += value
    if line.roofline_ms:
        marks += _rule(scale(line.roofline_ms), "roof")
    said = ", ".join(f"{part} {value:.2f} ms" for part, value in parts)
    return _row(line.method, marks, scale, f"{total:.1f}", said=f"{line.method}: {said}")


def _axis(scale: Scale, unit: str) -> str:
    labels = []
    for tick, text in scale.ticks.items():
        anchor = "start" if scale(tick) < 5 else "end" if scale(tick) > 95 else "middle"
        labels.append(f'<text x="{scale(tick):.2f}%" y="12" text-anchor="{anchor}">{text}</text>')
    axis = f'<svg class="axis" width="100%" height="16">{"".join(labels)}</svg>'
    return f'{axis}<span class="unit">{escape(unit)}</span>'


def _legend(entries: ListLike[tuple[str, str]]) -> str:
    items = "".join(f'<li><i class="{colour}"></i>{escape(name)}</li>' for name, colour in entries)
    return f'<ul class="legend">{items}</ul>'


def _rule(x: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{_ROW}"/>'


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _line(x1: float, x2: float, i: int) -> str:
    return f'<line class="s{i % N_COLOURS}" x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{_ROW // 2}" y2="{_ROW // 2}"/>'


def _dot(x: float, i: int) -> str:
    return f'<circle class="s{i % N_COLOURS}" cx="{x:.2f}%" cy="{_ROW // 2}" r="4"/>'


def _tick(x: float, i: int) -> str:
    return f'<line class="s{i % N_COLOURS}" x1="{x:.2f}%" x2="{x:.2f}%" y1="4" y2="{_ROW - 4}"/>'


def _y(share: float) -> float:
    height, top = _LINES
    return round(top + height * (1 - share), 1)
