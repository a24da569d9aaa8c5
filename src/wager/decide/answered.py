"""What the model said about one row: kept in the journal, so that every decision can be made again without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wager.decide.law import Law
from wager.types import JSON

Part = Literal["calibration", "data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Row ``number`` of a ``part``. ``laws`` by estimator, ``greedy`` and ``samples`` in the order drawn (None: did not
    parse) where there is a ``target`` to compare with. ``error``: why there are none.
    """

    part: Part
    number: int
    line: int
    target: Any = None
    laws: Mapping[str, Law] = field(default_factory=dict)
    greedy: Any = None
    samples: tuple[Any, ...] = ()
    n_tokens: int = 0
    error: str = ""

    def to_json(self) -> JSON:
        return {
            "kind": "row",
            "part": self.part,
            "row": self.number,
            "line": self.line,
            "target": _plain(self.target),
            "laws": {name: _law_to_json(law) for name, law in self.laws.items()},
            "greedy": _plain(self.greedy),
            "samples": [_plain(value) for value in self.samples],
            "n_tokens": self.n_tokens,
            "error": self.error,
        }

    @staticmethod
    def from_json(row: JSON) -> Answered:
        return Answered(
            part=row["part"],
            number=row["row"],
            line=row["line"],
            target=_value(row["target"]),
            laws={name: _law_from_json(law) for name, law in row["laws"].items()},
            greedy=_value(row["greedy"]),
            samples=tuple(_value(value) for value in row["samples"]),
            n_tokens=row["n_tokens"],
            error=row["error"],
        )


def law_json(law: Law) -> JSON:
    """Weights by value, for people and other programs."""
    return {str(_plain(value)): float(f"{weight:.6g}") for value, weight in zip(law.values, law.weights, strict=True)}


def _plain(value: Any) -> Any:
    """JSON for a value of a law: sets as {"set": […]}, tuples as lists."""
    if isinstance(value, frozenset):
        return {"set": sorted(value, key=str)}
    return list(value) if isinstance(value, tuple) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        return frozenset(plain["set"])
    return tuple(plain) if isinstance(plain, list) else plain


def _law_to_json(law: Law) -> JSON:
    return {
        "values": [_plain(value) for value in law.values],
        "weights": [float(f"{weight:.9g}") for weight in law.weights.tolist()],
        "covered": law.covered,
        "n_tokens": law.n_tokens,
    }


def _law_from_json(law: JSON) -> Law:
    weights = np.array(law["weights"], dtype=np.float64)
    return Law(
        values=tuple(_value(value) for value in law["values"]),
        weights=weights / weights.sum() if len(weights) else weights,
        covered=law["covered"],
        n_tokens=law["n_tokens"],
    )
