"""Bootstrap intervals in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from wager.types import F64, I64


@dataclass(frozen=True, slots=True)
class Interval:
    """A number made of ``n`` values, with a two-sided interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]" if self.n > 1 else f"{self.value:.2f}"


def percentile_interval(value: float, resampled: F64, n: int, *, level: float = 0.95) -> Interval:
    """The percentile interval (Efron 1979) of ``value`` from its resamples (R,); NaNs among these are left out."""
    known = resampled[~np.isnan(resampled)]
    if not len(known):
        return Interval(value, float("nan"), float("nan"), n)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), n)


def resamples(n: int, *, n_resamples: int, seed: int) -> Iterator[I64]:
    """(m, n) row indices drawn with replacement, ``n_resamples`` rows in all, a few at a time; the same for a seed."""
    rng = np.random.default_rng(seed)
    step = max(1, 2**20 // max(1, n))
    for start in range(0, n_resamples, step):
        yield rng.integers(0, n, (min(step, n_resamples - start), n))


def bootstrap(n: int, statistic: Callable[[I64], F64], *, n_resamples: int, seed: int) -> F64:
    """(n_resamples,) ``statistic`` of resampled rows: it takes (m, n) indices and gives (m,) numbers."""
    return np.concatenate([statistic(index) for index in resamples(n, n_resamples=n_resamples, seed=seed)])
