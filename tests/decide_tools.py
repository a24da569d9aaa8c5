"""Random laws for the tests of decide, and rules judged by trying everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from wager.decide.law import Law
from wager.decide.metrics import metric_named
from wager.decide.options import Asked, Options
from wager.types import F64

# The same laws on every run, many to an example: drawing them one by one through hypothesis costs more than the tests.
fixed = settings(derandomize=True, max_examples=10, deadline=None, database=None)
N_LAWS = 25

LABELS = ("low", "middle", "high", "top")
ITEMS = ("a", "b", "c", "d")
Rng = np.random.Generator


def _number(rng: Rng) -> float:
    """Whole and half numbers, which tie often, and now and then anything a model may say."""
    return float(rng.integers(0, 11)) / 2 if rng.random() < 0.7 else round(float(rng.uniform(-0.9, 60)), 3)


def _vector(rng: Rng) -> tuple[int, ...]:
    return tuple(int(i) for i in rng.integers(0, 2, 4))


def _gains(rng: Rng) -> tuple[float, ...]:
    return tuple(float(gain) for gain in rng.choice([0.0, 0.0, 0.5, 1.0, 3.0], 4))


def _set(rng: Rng) -> frozenset[str]:
    return frozenset(item for item, chosen in zip(ITEMS, _vector(rng), strict=True) if chosen)


def _laws(value: Callable[[Rng], Any]) -> st.SearchStrategy[list[Law]]:
    """Lists of laws of up to 6 values with small whole weights, so that ties are common."""

    def many(most: int, seed: int) -> list[Law]:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, most + 1, N_LAWS)
        return [Law.of([value(rng) for _ in range(n)], rng.integers(1, 6, n)) for n in sizes]

    return st.builds(many, most=st.integers(1, 6), seed=st.integers(0, 2**16))


NUMBERS = _laws(_number)
LABELLED = _laws(lambda rng: LABELS[rng.integers(len(LABELS))])
VECTORS = _laws(_vector)
GAINS = _laws(_gains)
SETS = _laws(_set)


def risks(metric: str, law: Law, predictions: list[Any], *, options: Options | None = None) -> F64:
    """(m,) what each prediction may expect to lose; of a gain, less the gain. Outcomes without a value lose nothing."""
    info = metric_named(metric)
    assert info.rows is not None
    asked = Asked(knob=info.asked, options=options or Options())
    if info.kind == "numbers":
        rows = info.rows(np.array(law.values)[None, :], np.array(predictions)[:, None], asked)
    else:
        each = [info.rows(law.values, [prediction] * len(law), asked) for prediction in predictions]
        rows = np.array(each)
    sign = 1.0 if info.better == "lower" else -1.0
    return np.asarray(sign * np.nan_to_num(rows) @ law.weights, dtype=np.float64)
