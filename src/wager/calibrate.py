"""Time the forwards that the cost model asks about, once per machine, model and settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from wager.cost import StepCost
from wager.pack import Feed, Slots, pack
from wager.types import Batch, Model, Sampling, Sequence, chain


def calibrate(
    model: Model, cost: StepCost, *, budget_s: float = 6.0, progress: Callable[[str, int, int], None] | None = None
) -> None:
    """Fill ``cost`` from timed forwards. Overwrites the model's first blocks: call it before any engine does."""
    contexts = [c for c in (16, 1024) if c + max(cost.widths) < min(model.context_length, _room(model))] or [16]
    plan = cost.calibration_plan(contexts=contexts, n_repeats=5)
    timings: list[tuple[int, int, float]] = []
    start = time.perf_counter()
    for i, (width, context) in enumerate(plan):
        if progress is not None:
            progress("measuring this machine", i, len(plan))
        if i >= len(cost.widths) * len(contexts) and time.perf_counter() - start > budget_s:
            break
        forward_seconds(model, width, context)  # prepares the width: switching is priced on its own
        timings.append((width, context, min(forward_seconds(model, width, context) for _ in range(2))))
    cost.calibrate(timings, switch_s=switch_seconds(model, cost.widths))
    if progress is not None:
        progress("measuring this machine", len(plan), len(plan))


def switch_seconds(model: Model, widths: tuple[int, ...]) -> float:
    """What a forward of another width than the last costs on top (fact 11)."""
    a, b = widths[0], widths[min(2, len(widths) - 1)]
    steady_s = 0.0
    for width in (a, b):
        forward_seconds(model, width, 16)  # the change itself is not steady
        steady_s += median(forward_seconds(model, width, 16) for _ in range(3))
    pairs = [forward_seconds(model, a, 16) + forward_seconds(model, b, 16) for _ in range(4)]
    return max(0.0, (median(pairs) - steady_s) / 2)


def forward_seconds(
    model: Model, n_rows: int, context: int, *, n_seqs: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one forward of ``n_rows`` rows of each sequence, in the model's first blocks, whoever owns them."""
    batch = _batch(model, n_rows, context, n_seqs)
    start = clock()
    model.forward(batch)
    return clock() - start


def _batch(model: Model, n_rows: int, context: int, n_seqs: int = 1) -> Batch:
    """Sequences of ``context`` tokens feed ``n_rows`` more each; what their K/V holds does not change the time."""
    seqs = [Sequence(i, [1] * (context + 1), context, Sampling(), 0, n_cached=context) for i in range(n_seqs)]
    feeds = [Feed(seq, context + 1, chain([1] * (n_rows - 1)), model.rows_rule) for seq in seqs]
    per_seq = -(-(context + n_rows) // model.block_size)
    slots = [Slots(range(i * per_seq, (i + 1) * per_seq)) for i in range(n_seqs)]
    blocks = range(n_seqs * per_seq, n_seqs * per_seq + 1)  # for padding, which there is none of
    packed = pack(feeds, slots, width_for=lambda n: n, pad_blocks=blocks, block_size=model.block_size)
    assert len(packed.batch.tokens) == n_rows * n_seqs, (n_rows, n_seqs, len(packed.batch.tokens))
    return packed.batch


def _room(model: Model) -> int:
    return model.n_blocks * model.block_size
