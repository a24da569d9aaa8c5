"""Paired statistics in numpy: medians of ratios with bootstrap intervals over prompts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.intervals import Interval, percentile_interval
from wager.types import F64


def paired_ratios(base: Mapping[tuple[str, int], float], other: Mapping[tuple[str, int], float]) -> F64:
    """(prompts,) base / other: by (prompt, repeat), then the median over each prompt's repeats.

    Prompts are the unit that varies; repeats of one only take out noise. Pairs that lack a side are left out, and so
    are answers that came whole in the first step: they have no time after it.
    """
    by_prompt: dict[str, list[float]] = {}
    for prompt, repeat in sorted(set(base) & set(other)):
        if base[prompt, repeat] > 0 and other[prompt, repeat] > 0:
            by_prompt.setdefault(prompt, []).append(base[prompt, repeat] / other[prompt, repeat])
    return np.array([float(np.median(ratios)) for ratios in by_prompt.values()])


def bootstrap_median(values: F64, *, level: float = 0.95, n_resamples: int = 4000, seed: int = 0) -> Interval:
    """Median of ``values`` (n,), n >= 1, with the percentile bootstrap interval (Efron 1979)."""
    assert values.ndim == 1, values.shape
    assert len(values) > 0, "no values"
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(values, (n_resamples, len(values))), axis=1)
    return percentile_interval(float(np.median(values)), medians, len(values), level=level)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of ``n`` values, interpolated between neighbours."""

    p50: float
    p90: float
    p99: float
    n: int


def percentiles(values: ListLike[float]) -> Percentiles | None:
    """None where there are no values."""
    if not values:
        return None
    p50, p90, p99 = np.quantile(np.asarray(values, np.float64), (0.5, 0.9, 0.99)).tolist()
    return Percentiles(p50, p90, p99, len(values))


def share(parts: ListLike[float], wholes: ListLike[float]) -> float:
    """Sum of the parts over the sum of the wholes; 0 where there is nothing."""
    whole = sum(wholes)
    return sum(parts) / whole if whole > 0 else 0.0


def first_difference(a: ListLike[Hashable], b: ListLike[Hashable]) -> int | None:
    """Index of the first difference (the end of the shorter one counts); None if equal."""
    if list(a) == list(b):
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
