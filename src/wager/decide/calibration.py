"""What calibration rows taught, kept in a JSON file: a line, sets, intervals, and when to withhold."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence as ListLike
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wager.decide.conformal import INTERVAL_METHODS, SET_METHODS, Intervals, LabelSets, Release
from wager.errors import OptionError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Line:
    """y = a + b x, from a score to the target's scale."""

    a: float
    b: float

    def of(self, x: float) -> float:
        """The line's value."""
        return self.a + self.b * x


def fit_line(scores: npt.ArrayLike, targets: npt.ArrayLike) -> Line:
    """Least squares of ``targets`` (n,) on ``scores`` (n,), n >= 1; where all scores are the same, the mean target."""
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or not len(x) or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise OptionError(f"{len(x)} scores and {len(y)} targets: a line needs at least one of each, finite, per row")
    gap = x - x.mean()
    # A constant minus its own mean may leave rounding behind: that is no slope.
    flat = np.abs(gap).max() <= 1e-12 * np.abs(x).max()
    slope = 0.0 if flat else float(gap @ (y - y.mean()) / (gap @ gap))
    return Line(float(y.mean() - slope * x.mean()), slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The parts that were asked for. ``metric`` says which predictions they belong to."""

    metric: str
    line: Line | None = None
    sets: LabelSets | None = None
    intervals: Intervals | None = None
    release: Release | None = None

    def write(self, path: Path) -> None:
        """As JSON; infinite numbers are written as text."""
        body = {"format": _FORMAT, **asdict(self)}
        path.write_text(json.dumps(_finite(body), indent=1, allow_nan=False) + "\n", encoding="utf-8")


_PARTS: dict[str, Any] = {"line": Line, "sets": LabelSets, "intervals": Intervals, "release": Release}


def read_calibration(path: Path) -> Calibration:
    """Raises ``OptionError`` for a file that is missing, or is no calibration."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the calibration file {path} cannot be read ({error}): write one anew") from error
    if not isinstance(body, dict) or body.get("format") != _FORMAT or not isinstance(body.get("metric"), str):
        raise OptionError(f"{path} is no calibration file of format {_FORMAT}: write one anew")
    return Calibration(metric=body["metric"], **{name: _part(path, name, body.get(name)) for name in _PARTS})


def _part(path: Path, name: str, body: Any) -> Any:
    if body is None:
        return None
    known = fields(_PARTS[name])
    types = {"labels": list, "method": str, "randomised": bool, "n": int, "n_wrong": int}
    right = isinstance(body, dict) and {field.name for field in known} == set(body)
    values = {key: _number(value) for key, value in body.items()} if right else {}
    if not right or not all(isinstance(values[f.name], types.get(f.name, float | int)) for f in known):
        wanted = ", ".join(field.name for field in known)
        raise OptionError(f"the part {name!r} of {path} is damaged: it needs {wanted}; write the file anew")
    if values.get("method", "aps") not in (*SET_METHODS, *INTERVAL_METHODS):
        raise OptionError(f"{path} names the method {values['method']!r}, which is not known: write the file anew")
    return _PARTS[name](**{key: tuple(value) if key == "labels" else value for key, value in values.items()})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value


def on_line(line: Line | None, predictions: ListLike[Any]) -> list[Any]:
    """The predictions, moved by the line where there is one; None stays None."""
    if line is None:
        return list(predictions)
    return [None if x is None else line.of(float(x)) for x in predictions]
