"""Seconds a forward takes, from the rows it feeds, the sequences in it and their context: measured, never assumed.

Rows are padded to a few held widths (design fact 11), so the time is a table: per width a base and a slope in the
context, from a calibration when the model is loaded, corrected by the steps themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from statistics import median

from wager.types import JSON

_RECENT = 31  # steps the median looks at: half of them may be disturbed
_STALE = 256  # steps after which a width's own measurements count half against the calibration times the present load
_TRUST = 8.0  # the calibration counts as much as this many measured steps


@dataclass(slots=True)
class _Measured:
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    median_s: float = 0.0
    step: int = 0


class StepCost:
    """Time of one target forward for the held ``widths`` (ascending).

    Before ``calibrate`` the table is a guess with the right shape and ``calibrated`` is False. ``switch_s`` is what
    feeding another width than the last time costs on top.
    """

    def __init__(self, widths: Iterable[int], *, switch_s: float = 0.0) -> None:
        self.widths = tuple(widths)
        assert self.widths, "no widths"
        assert list(self.widths) == sorted(set(self.widths)), self.widths
        self.switch_s = switch_s
        self.calibrated = False
        self._base = {w: 0.01 * (1 + 0.05 * w) for w in self.widths}
        self._slope = dict.fromkeys(self.widths, 0.0)  # seconds a token of context
        self._measured: dict[tuple[int, int], _Measured] = {}
        self._load: dict[int, float] = {}  # measured over calibrated, per number of sequences
        self._n_steps = 0
        self._last_width = 0

    def width_for(self, n_rows: int) -> int:
        """The held width that ``n_rows`` are padded to; more rows than the widest stay as they are."""
        return next((w for w in self.widths if w >= n_rows), n_rows)

    def predict(self, n_rows: int, n_seqs: int, context: int) -> float:
        """Seconds of a forward of ``n_rows`` rows of ``n_seqs`` sequences, the longest ``context`` tokens long."""
        width = self.width_for(n_rows)
        if width in self._base:
            return self._held(width, n_seqs, context)
        widest = self._held(self.widths[-1], n_seqs, context)
        if len(self.widths) == 1:
            return widest * width / self.widths[-1]
        per_row = (widest - self._held(self.widths[-2], n_seqs, context)) / (self.widths[-1] - self.widths[-2])
        return widest + max(per_row, 0.0) * (width - self.widths[-1])

    def observe(self, width: int, n_seqs: int, context: int, seconds: float) -> None:
        """One forward was measured, preparing another width than the last one's included.

        Widths that are not held (prompt reading) tell nothing about the table.
        """
        if width != self._last_width and self._last_width:
            seconds = max(seconds - self.switch_s, 0.5 * seconds)
        self._last_width = width
        if width not in self._base:
            return
        self._n_steps += 1
        group = _group(n_seqs)
        measured = self._measured.setdefault((width, group), _Measured())
        measured.seconds.append(seconds - self._slope[width] * context)
        measured.median_s = median(measured.seconds)
        measured.step = self._n_steps
        ratio = measured.median_s / self._base[width]
        old = self._load.get(group, ratio)
        load = self._load[group] = old + (ratio - old) / 16
        # A calibration on a busy machine has the wrong shape; what the widths in use show about each other outlives it.
        self._base[width] += (measured.median_s / load - self._base[width]) / 64

    def calibration_plan(self, *, contexts: ListLike[int] = (16, 1024), n_repeats: int = 5) -> list[tuple[int, int]]:
        """(width, context) of each forward to time for ``calibrate``, repeats spread over the whole time."""
        return [(w, context) for _ in range(n_repeats) for context in contexts for w in self.widths]

    def calibrate(self, timings: Iterable[tuple[int, int, float]], *, switch_s: float = 0.0) -> None:
        """Take the table from measured (width, context, seconds) of single sequences; medians of the repeats.

        Widths that were not timed lie on the line between those that were; beyond the last of them, times go on as the
        guess does. The time never falls with the context.
        """
        cells: dict[tuple[int, int], list[float]] = {}
        for width, context, seconds in timings:
            assert width in self._base, f"{width} is not a held width"
            cells.setdefault((width, context), []).append(seconds)
        assert cells, "no timings"
        points: dict[int, list[tuple[int, float]]] = {}
        for (width, context), repeats in sorted(cells.items()):
            points.setdefault(width, []).append((context, median(repeats)))
        timed = {width: _line(found) for width, found in points.items()}
        guess = dict(self._base)
        for width in self.widths:
            below = max((w for w in timed if w <= width), default=min(timed))
            above = min((w for w in timed if w >= width), default=max(timed))
            base, slope = _between(width, (below, timed[below]), (above, timed[above]))
            near = min(max(width, min(timed)), max(timed))
            self._base[width], self._slope[width] = base * guess[width] / guess[near], slope
        self.switch_s = switch_s
        self.calibrated = True
        self._measured.clear()
        self._load.clear()

    def to_json(self) -> JSON:
        """The table, as steps have corrected it; the load of the moment is not kept."""
        table = [[w, self._base[w], self._slope[w]] for w in self.widths]
        return {"table": table, "switch_s": self.switch_s, "calibrated": self.calibrated}

    @classmethod
    def from_json(cls, data: JSON) -> StepCost:
        """Inverse of ``to_json``. Raises KeyError, TypeError or ValueError on anything else."""
        cost = cls([int(w) for w, _, _ in data["table"]], switch_s=float(data["switch_s"]))
        cost._base = {int(w): float(base) for w, base, _ in data["table"]}
        cost._slope = {int(w): float(slope) for w, _, slope in data["table"]}
        cost.calibrated = bool(data["calibrated"])
        return cost

    def _held(self, width: int, n_seqs: int, context: int) -> float:
        group = _group(n_seqs)
        expected = self._base[width] * self._load.get(group, 1.0)
        measured = self._measured.get((width, group))
        if measured is not None:
            weight = len(measured.seconds) * 0.5 ** ((self._n_steps - measured.step) / _STALE)
            expected = (weight * measured.median_s + _TRUST * expected) / (weight + _TRUST)
        return expected + self._slope[width] * context


def _group(n_seqs: int) -> int:
    """1, 2, 3–4, 5–8, …: numbers of sequences that are told apart."""
    return (n_seqs - 1).bit_length()


def _between(
    width: int, below: tuple[int, tuple[float, float]], above: tuple[int, tuple[float, float]]
) -> tuple[float, float]:
    """Base and slope of a width from those of its neighbours, (width, (base, slope))."""
    share = min(max((width - below[0]) / max(above[0] - below[0], 1), 0.0), 1.0)
    base, slope = (low + share * (high - low) for low, high in zip(below[1], above[1], strict=True))
    return base, slope


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Base and slope through the first and last (context, seconds); slope at least 0."""
    (near, low), (far, high) = points[0], points[-1]
    slope = max(0.0, (high - low) / (far - near)) if far > near else 0.0
    return max(low - slope * near, 1e-6), slope
