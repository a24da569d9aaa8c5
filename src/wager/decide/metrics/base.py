"""What a metric is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from wager.decide.options import Asked, Entry
from wager.types import F64

# (n,) one number per row from n targets and n predictions; NaN where the metric is not defined on a row.
PerRow = Callable[[Any, Any, Asked], F64]
Whole = Callable[[Any, Any, Asked], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo(Entry):
    """A metric: ``finish`` of the mean of its ``rows``, or, where rows do not stand alone, a number of the ``whole``.

    ``kind`` is what targets are, ``gives`` what predictions are, ``rule`` the name of the rule that is best for it
    (``surrogate``: none is exactly, this is the usual one).
    """

    says: str
    better: Literal["lower", "higher"]
    rule: str
    rows: PerRow | None = None
    finish: Callable[[float], float] = float
    whole: Whole | None = None
    surrogate: bool = False

    @property
    def spec(self) -> str:
        """The name as it is asked for, knob included."""
        limited = self.knob is not None and self.asked < float("inf")
        return f"{self.name}:{self.asked:g}" if limited else self.name
