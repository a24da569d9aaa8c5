"""Tokens per forward against the number of children, a line per rule: temperatures from above, depths from left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wager.bench.rules_plan import PLAIN
from wager.bench.rules_summary import Line, Summary

_MARKERS = "osD^v<>PX*h8pd"
_PANEL_INCHES = (5.6, 4.4)
_LEGEND_INCHES = 2.2
_SPREAD = 0.28  # of the distance to the next k: so that intervals of different rules lie side by side


def plot(summary: Summary, path: Path) -> bool:
    """Write the picture; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    drafting = [line for line in summary.lines if line.rule != PLAIN]
    depths = sorted({line.depth for line in drafting})
    temperatures = sorted({line.temperature for line in drafting})
    rules = list(dict.fromkeys(line.rule for line in drafting))
    if not drafting:  # interrupted before the first one
        return True
    size = (_PANEL_INCHES[0] * len(depths) + _LEGEND_INCHES, _PANEL_INCHES[1] * len(temperatures))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(temperatures), len(depths), squeeze=False, sharey=True)
    for row, temperature in zip(axes, temperatures, strict=True):
        row[0].set_ylabel("tokens per forward (95 % interval)")
        for axis, depth in zip(row, depths, strict=True):
            _draw(axis, [x for x in drafting if (x.temperature, x.depth) == (temperature, depth)], rules)
            axis.set_title(f"temperature {temperature:g}, depth {depth}")
            axis.set_xlabel("children k")
    known = [axis.get_legend_handles_labels() for axis in axes.flat]
    handles = {label: handle for pair in known for handle, label in zip(*pair, strict=True)}
    settings = summary.provenance["settings"]
    figure.suptitle(f"{settings['draft']} drafts for {settings['target']}")
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
    return True


def _draw(axis: Any, lines: list[Line], rules: list[str]) -> None:
    from matplotlib import colormaps

    colours = colormaps["tab20"]
    ks = sorted({line.k for line in lines})
    for i, rule in enumerate(rules):
        some = sorted((line for line in lines if line.rule == rule), key=lambda line: line.k)
        if not some:
            continue
        shift = _SPREAD * (2 * i / max(1, len(rules) - 1) - 1)
        value = [line.tokens_per_forward for line in some]
        errors = [[v.value - v.low for v in value], [v.high - v.value for v in value]]
        axis.errorbar(
            [ks.index(line.k) + shift for line in some],
            [v.value for v in value],
            yerr=errors,
            label=rule,
            color=colours(i % colours.N),
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=5,
            linewidth=1,
            elinewidth=0.8,
            linestyle="--" if rule.startswith("lossy") else "-",
        )
    axis.axhline(1.0, color="grey", linewidth=1, linestyle=":", label=PLAIN)
    axis.set_xticks(range(len(ks)), [str(k) for k in ks])
    axis.set_xlim(-0.5, len(ks) - 0.5)
    axis.grid(axis="y", alpha=0.3)
