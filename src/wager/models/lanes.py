"""Compiled graphs of one model, by the number of rows they are fixed to, and when it pays to compile another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import openvino as ov


class Lane:
    """One compiled graph's request, and its input tensors: values of the same shape are written in place."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self._inputs: dict[str, npt.NDArray[Any]] = {}

    def put(self, name: str, values: npt.NDArray[Any]) -> None:
        held = self._inputs.get(name)
        if held is not None and held.shape == values.shape:
            held[...] = values
            return
        tensor = ov.Tensor(values)  # a copy
        self.request.set_tensor(name, tensor)
        self._inputs[name] = tensor.data

    def output(self, index: int) -> npt.NDArray[Any]:
        """An output (R, …) f32 of the last forward; the next overwrites it."""
        data = self.request.get_output_tensor(index).data
        rows: npt.NDArray[Any] = data.reshape(-1, data.shape[-1])
        return rows


@dataclass(frozen=True, slots=True)
class Prices:
    """In units of about a millisecond on a small model: what a fixed width saves a step, what a change of width takes
    without one, and what compiling takes.
    """

    saves: float
    switch: float
    compiling: float


PLUGIN = Prices(saves=1, switch=6, compiling=1500)  # every node is prepared again where the width changes (fact 11)
OWN = Prices(saves=3, switch=2, compiling=500)  # our operations have their shapes inferred in every step


class Lanes:
    """The graph that takes any number of rows, and those of fixed ``widths`` that were compiled so far.

    A width gets its own graph once doing without has cost about as much as compiling takes (the ski-rental rule: never
    more than twice the best).
    """

    def __init__(self, make: Callable[[int | None], Lane], wide: Lane, widths: Iterable[int], prices: Prices) -> None:
        self.wide = wide
        self._make, self._prices = make, prices
        self._lost = dict.fromkeys(widths, 0.0)
        self._fixed: dict[int, Lane] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Lane]:
        return iter((self.wide, *self._fixed.values()))

    def __contains__(self, width: int) -> bool:
        return width in self._fixed

    def of(self, n_rows: int) -> Lane:
        """The graph for a forward of that many rows."""
        if n_rows in self._lost and n_rows not in self._fixed:
            self._lost[n_rows] += self._prices.saves + self._prices.switch * (n_rows != self._last)
            if self._lost[n_rows] > self._prices.compiling:
                self.add(n_rows)
        if n_rows in self._fixed:
            return self._fixed[n_rows]
        self._last = n_rows
        return self.wide

    def add(self, *widths: int) -> None:
        """Compile the graphs of these widths now, of those that may have one."""
        for width in widths:
            if width in self._lost and width not in self._fixed:
                self._fixed[width] = self._make(width)

    def complete(self, widths: Iterable[int]) -> bool:
        """Whether each of these that may have a graph of its own has one."""
        return all(width in self._fixed for width in widths if width in self._lost)
