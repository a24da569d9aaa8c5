"""A picture of what was decided: the laws of some rows, and predictions against targets."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wager.decide.answered import Answered
from wager.decide.law import Law
from wager.errors import OptionError

_ROWS, _POINTS = 8, 3000
_LONGEST = 24  # characters beside an axis
_JITTER = 0.012  # of the range: so that equal predictions can be told apart
_COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2")
_TARGET = "#222222"
_KINDS = (".png", ".svg", ".pdf")


@dataclass(slots=True)
class Picture:
    """Collects what is drawn: laws of the rows numbered ``shown``, and targets with predictions by name."""

    shown: frozenset[int]
    laws: list[tuple[Answered, Law, Mapping[str, Any]]] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    points: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, row: Answered, law: Law, predictions: Mapping[str, Any]) -> None:
        """A row that was answered; ``predictions`` by rule."""
        if row.number in self.shown and len(law):
            self.laws.append((row, law, predictions))
        if row.target is not None and len(self.targets) < _POINTS:
            self.targets.append(row.target)
            for name, value in {"greedy": row.greedy, **predictions}.items():
                self.points.setdefault(name, []).append(value)

    def draw(self, path: Path) -> None:
        """Write the picture. Raises ``OptionError`` where matplotlib is not installed, or nothing can be drawn."""
        canvas, figure_of = _matplotlib()
        if not self.laws:
            raise OptionError("--plot has no row with an answer to show: leave it out")
        names = list(self.laws[0][2])
        scatter = self._is_scatter(names)
        figure = figure_of(figsize=(14 if scatter else 8, 7), layout="constrained")
        canvas(figure)
        panels = figure.subplots(1, 2 if scatter else 1, squeeze=False)[0]
        self._laws(panels[0], names)
        if scatter:
            self._scatter(panels[1], names[0])
        try:
            figure.savefig(path, dpi=120)
        except OSError as error:
            raise OptionError(f"--plot `{path}` cannot be written ({error.strerror}): give another file") from error

    def _is_scatter(self, names: ListLike[str]) -> bool:
        return len(self.targets) > 1 and all(
            isinstance(y, float) and isinstance(x, float | None) and isinstance(g, float | None)
            for y, x, g in zip(self.targets, self.points[names[0]], self.points["greedy"], strict=True)
        )

    def _laws(self, axis: Any, names: ListLike[str]) -> None:
        """One line of bars a row, first row on top; marks show the target and the predictions."""
        values = sorted({value for _, law, _ in self.laws for value in law.values}, key=_order)
        numbers = all(isinstance(value, float) for value in values)
        at = {value: float(value) if numbers else float(i) for i, value in enumerate(values)}
        gaps = np.diff(sorted(at.values()))
        width = 0.8 * float(gaps.min()) if len(gaps) else 0.8
        for i, (row, law, predictions) in enumerate(self.laws):
            base = len(self.laws) - 1 - i
            heights = 0.8 * law.weights / law.weights.max()
            axis.bar([at[v] for v in law.values], heights, width, bottom=base, color="#c9d6e6", zorder=1)
            axis.axhline(base, color="#999999", linewidth=0.6, zorder=2)
            marks = [(name, predictions.get(name), _COLOURS[k % len(_COLOURS)], "v") for k, name in enumerate(names)]
            marks += [("greedy", row.greedy, "#888888", "x"), ("target", row.target, _TARGET, "|")]
            for name, value, colour, marker in marks:
                x = at.get(value, value if numbers else None) if isinstance(value, float | str) else None
                if isinstance(x, float):
                    high = base + (0.4 if marker == "|" else 0.87)
                    size = 420 if marker == "|" else 42
                    label = name if i == 0 else None
                    axis.scatter([x], [high], s=size, c=colour, marker=marker, label=label, zorder=3, alpha=0.9)
        axis.set_yticks(
            [len(self.laws) - 0.6 - i for i in range(len(self.laws))], [f"row {r.number}" for r, _, _ in self.laws]
        )
        if not numbers:
            axis.set_xticks(list(at.values()), [_short(value) for value in values], rotation=30, ha="right")
        axis.set_title("laws of the answer (bars scaled to the likeliest)")
        axis.set_xlabel("answer")
        if axis.get_legend_handles_labels()[0]:  # sets are no points to mark
            axis.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=6, handletextpad=0.2, frameon=False, fontsize=9
            )

    def _scatter(self, axis: Any, name: str) -> None:
        """Greedy and the first metric's prediction against the target."""
        y = np.array(self.targets, dtype=np.float64)
        rng = np.random.default_rng(0)
        low, high = float(y.min()), float(y.max())
        for method, colour in (("greedy", "#bbbbbb"), (name, _COLOURS[0])):
            x = np.array([np.nan if v is None else v for v in self.points[method]], dtype=np.float64)
            known = ~np.isnan(x)
            noise = rng.normal(0, _JITTER * max(high - low, 1e-9), (2, int(known.sum())))
            axis.scatter(
                y[known] + noise[0], x[known] + noise[1], s=14, alpha=0.5, c=colour, label=method, linewidths=0
            )
        axis.plot([low, high], [low, high], color=_TARGET, linewidth=0.8, linestyle=":")
        axis.set_xlabel("target")
        axis.set_ylabel("prediction")
        axis.set_title("predictions against targets (points moved a little apart)")
        axis.legend(frameon=False, fontsize=9)


def rows_to_show(n: int) -> frozenset[int]:
    """Numbers of up to eight rows, evenly over n."""
    return frozenset(1 + i * n // min(n, _ROWS) for i in range(min(n, _ROWS)))


def check_plot(path: Path) -> None:
    """Raise ``OptionError`` where no picture can be drawn, before a model is asked for one."""
    _matplotlib()
    if path.suffix.lower() not in _KINDS:
        raise OptionError(f"--plot `{path}` is of an unknown kind: name it with one of {', '.join(_KINDS)}")


def _order(value: Any) -> tuple[bool, Any]:
    return (False, value) if isinstance(value, float) else (True, str(value))


def _short(value: Any) -> str:
    """A value beside an axis: one line, and no mathematics, whatever a model writes."""
    text = ", ".join(sorted(map(str, value))) if isinstance(value, frozenset) else str(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").replace("$", r"\$")


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("--plot needs matplotlib: pip install 'wager[decide]', or leave it out") from error
    return FigureCanvasAgg, Figure
