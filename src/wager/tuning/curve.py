"""v(n), what verifying n tokens takes: by rows, context and sequences; its slopes, and what cheap drafters take."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.bench.stats import bootstrap_median
from wager.calibrate import forward_seconds
from wager.intervals import Interval
from wager.models.openvino import OpenVINOModel
from wager.pack import least_rows
from wager.tuning.sps import paired_levels, slope
from wager.types import F64, JSON

Progress = Callable[[str, int, int], None]
CONTEXTS = (64, 1024, 4096)
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_ROWS_FAR = (1, 2, 4, 8, 16, 32, 64)  # at the longer contexts
_SEQS = (2, 4, 8)
_ROWS_OF_SEQS = (1, 2, 4, 8)
_REPEATS = 9
_LEAST_REPEATS = 3
_PAIRS = (12, 40)  # at least, at most
_SLOPE_ROWS = (2, 4, 8, 16)
_SLOPE_CONTEXTS = (64, 512, 1024, 2048)
_SLOPE_WIDTH = 8  # rows of the forwards whose context varies
_LABEL = "measuring forwards"


@dataclass(frozen=True, slots=True)
class Point:
    """Forwards of ``n_rows`` rows for each of ``n_seqs`` sequences after ``context`` tokens: seconds of the repeats."""

    n_rows: int
    n_seqs: int
    context: int
    seconds: tuple[float, ...]

    def to_json(self) -> JSON:
        found = bootstrap_median(np.array(self.seconds))
        return {
            "n_rows": self.n_rows,
            "n_seqs": self.n_seqs,
            "context": self.context,
            "ms": 1e3 * found.value,
            "low_ms": 1e3 * found.low,
            "high_ms": 1e3 * found.high,
            "n": found.n,
        }


def grid(model: OpenVINOModel) -> list[tuple[int, int, int]]:
    """(rows a sequence, sequences, context) that the model has room for, in the layout that it runs with."""
    least, room = least_rows(model.rows_rule), model.n_blocks * model.block_size
    most = min(model.max_rows, max(_ROWS))

    def fits(n_rows: int, n_seqs: int, context: int) -> bool:
        each = -(-(context + n_rows) // model.block_size) * model.block_size
        return context + n_rows <= model.context_length and n_seqs * each + model.block_size <= room

    cells = [(rows, 1, context) for context in CONTEXTS for rows in (_ROWS if context == CONTEXTS[0] else _ROWS_FAR)]
    cells += [(rows, n, CONTEXTS[0]) for n in _SEQS for rows in _ROWS_OF_SEQS]
    return [cell for cell in cells if cell[0] >= least and cell[0] * cell[1] <= most and fits(*cell)]


def curve(
    model: OpenVINOModel, *, rng: np.random.Generator, deadline: float, progress: Progress | None = None
) -> list[Point]:
    """Medians need several rounds over the grid, each in an order of its own; few where the time is up."""
    cells = grid(model)
    found: list[list[float]] = [[] for _ in cells]
    for n in range(_REPEATS):
        if n >= _LEAST_REPEATS and time.monotonic() > deadline:
            break
        for done, i in enumerate(rng.permutation(len(cells))):
            if progress is not None:
                progress(_LABEL, n * len(cells) + done, _REPEATS * len(cells))
            found[i].append(_seconds(model, *cells[i]))
    if progress is not None:
        progress(_LABEL, 1, 1)
    return [Point(*cell, tuple(seconds)) for cell, seconds in zip(cells, found, strict=True)]


def affordable_pairs(points: ListLike[Point], seconds: float) -> int:
    """Pairs for each of the two slopes in so much time: a pair is four forwards, and the number is fixed before any."""
    typical = float(np.median([second for p in points if p.n_seqs == 1 for second in p.seconds]))
    return int(np.clip(seconds / (2 * 4 * typical), *_PAIRS))


def slopes(
    model: OpenVINOModel, *, n_pairs: int, rng: np.random.Generator, progress: Progress | None = None
) -> dict[str, Interval]:
    """Milliseconds a verified token more, and 1000 context tokens more, of runs that were paired before."""
    rows = [w for w in _SLOPE_ROWS if w in model.widths]
    most = min(model.context_length, model.n_blocks * model.block_size) - 2 * max(_SLOPE_ROWS) - model.block_size
    contexts = [c for c in _SLOPE_CONTEXTS if c <= most]
    width = max(w for w in rows if w <= _SLOPE_WIDTH)
    asked: dict[str, tuple[ListLike[float], Callable[[float], float]]] = {
        "ms_per_token": (rows, lambda n: _seconds(model, int(n), 1, CONTEXTS[0])),
        "ms_per_1000_context": (contexts, lambda c: _seconds(model, width, 1, int(c))),
    }
    found = {}
    for done, (name, (levels, measure)) in enumerate(asked.items()):
        if progress is not None:
            progress("measuring slopes", done, len(asked))
        if len(levels) > 1:
            x = paired_levels(levels, n_pairs, rng)
            y = np.array([[1e3 * measure(level) for level in pair] for pair in x.tolist()])
            found[name] = slope(x if name == "ms_per_token" else x / 1000, y, rng=rng)
    if progress is not None:
        progress("measuring slopes", 1, 1)
    return found


def useful_widths(points: ListLike[Point], widths: ListLike[int]) -> tuple[int, ...]:
    """Held widths that a wider one does not beat: padding to that one is faster, and there is less to switch between.

    A width is dropped where it was clearly slower in nearly all rounds, whichever the context.
    """
    times = {(p.n_rows, p.context): np.array(p.seconds) for p in points if p.n_seqs == 1}
    contexts = {context for _, context in times if context < max(CONTEXTS)}

    def beaten(narrow: int, wide: int) -> bool:
        pairs = [(times.get((narrow, c)), times.get((wide, c))) for c in contexts]
        return bool(pairs) and all(a is not None and b is not None and _clearly_slower(a, b) for a, b in pairs)

    return tuple(w for i, w in enumerate(widths) if not any(beaten(w, wide) for wide in widths[i + 1 :]))


def _clearly_slower(a: F64, b: F64) -> bool:
    return bool(len(a) >= _LEAST_REPEATS and np.median(a / b) > 1.02 and (a > b).sum() >= len(a) - len(a) // 5)


def _seconds(model: OpenVINOModel, n_rows: int, n_seqs: int, context: int) -> float:
    """Of one forward, its width being prepared before."""
    forward_seconds(model, n_rows, context, n_seqs=n_seqs)
    return forward_seconds(model, n_rows, context, n_seqs=n_seqs)


def drafting(*, seed: int, n_history: int = 1000, n_steps: int = 50) -> dict[str, float]:
    """Milliseconds of CPU that a step of each drafter from text takes, after so much text (bench/drafting.py)."""
    from wager.bench.drafting import MIXTURE, measure, mixture

    n_ids = 49152
    texts = {MIXTURE: mixture(n_history + n_steps, n_ids, seed)}
    points = measure(texts, n_ids, longest=n_history, n_steps=n_steps, seed=seed, progress=lambda *_: None)
    return {point.drafter: 1e3 * point.step_s for point in points if point.n_history == n_history}
