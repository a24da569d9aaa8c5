"""Compiled graphs of one model, by the number of rows they are fixed to, and when it pays to compile another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov


class Lane:
    """One compiled graph's request, and its input tensors: values of the same shape are written in place.

    ``width``: the number of rows its graph is fixed to, None for any.
    """

    def __init__(self, request: Any, width: int | None = None) -> None:
        self.request = request
        self.width = width
        self._inputs: dict[str, npt.NDArray[Any]] = {}

    def put(self, name: str, values: npt.NDArray[Any]) -> None:
        held = self._inputs.get(name)
        if held is not None and held.shape == values.shape:
            held[...] = values
            return
        tensor = ov.Tensor(values)  # a copy
        self.request.set_tensor(name, tensor)
        self._inputs[name] = tensor.data

    def put_rows(self, name: str, values: npt.NDArray[Any]) -> None:
        """One number (n,) for each of the first rows; the others of a fixed width keep some number from before."""
        if self.width is None or len(values) == self.width:
            self.put(name, values)
            return
        if name not in self._inputs:
            self.put(name, np.zeros(self.width, values.dtype))
        self._inputs[name][: len(values)] = values

    def output(self, index: int) -> npt.NDArray[Any]:
        """An output (R, …) f32 of the last forward; the next overwrites it."""
        data = self.request.get_output_tensor(index).data
        rows: npt.NDArray[Any] = data.reshape(-1, data.shape[-1])
        return rows


@dataclass(frozen=True, slots=True)
class Prices:
    """In units of about a millisecond on a small model: what the graph of its width saves a forward over the one that
    takes any, what a change of width takes there on top, and what compiling takes. ``borrowing``: what a forward loses
    in the graph of a larger width; None where that cannot be.
    """

    saves: float
    switch: float
    compiling: float
    borrowing: float | None = None


PLUGIN = Prices(saves=1, switch=6, compiling=1500)  # every node is prepared again where the width changes (fact 11)
OWN = Prices(saves=3, switch=2, compiling=500, borrowing=0.5)  # there, shapes are inferred in every step


class Lanes:
    """The graph that takes any number of rows, and those of fixed ``widths`` that were compiled so far.

    ``widths``: the one to compile first comes first. A width gets its own graph once doing without has cost about as
    much as compiling takes (the ski-rental rule: never more than twice the best).
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
        own = self._width(n_rows, sorted(self._lost))
        if own is not None and own not in self._fixed:
            self._count_loss(own, n_rows)
        found = self._width(n_rows, sorted(self._fixed))
        if found is not None:
            return self._fixed[found]
        self._last = n_rows
        return self.wide

    def add(self, *widths: int) -> None:
        """Compile the graphs of these widths now, of those that may have one."""
        for width in widths:
            if width in self._lost and width not in self._fixed:
                self._fixed[width] = self._make(width)

    def add_all(self) -> None:
        """Compile what is missing."""
        self.add(*self._lost)

    def add_one(self, n_rows: int | None = None) -> bool:
        """Compile the graph for so many rows, or the first that is missing. Returns whether one was."""
        asked = self._lost if n_rows is None else [self._width(n_rows, sorted(self._lost))]
        missing = [width for width in asked if width is not None and width not in self._fixed]
        self.add(*missing[:1])
        return bool(missing)

    @property
    def complete(self) -> bool:
        """Whether every width that may have a graph of its own has one."""
        return len(self._fixed) == len(self._lost)

    def _width(self, n_rows: int, widths: Iterable[int]) -> int | None:
        """The one of these rising widths whose graph takes so many rows."""
        if self._prices.borrowing is None:
            return n_rows if n_rows in widths else None
        return next((width for width in widths if width >= n_rows), None)

    def _count_loss(self, own: int, n_rows: int) -> None:
        """Of doing without the graph of that width once more; compiles it when that has become too much."""
        prices, borrowed = self._prices, self._width(n_rows, sorted(self._fixed))
        if borrowed is not None and prices.borrowing is not None:
            self._lost[own] += prices.borrowing
        else:
            self._lost[own] += prices.saves + prices.switch * (n_rows != self._last)
        if self._lost[own] > prices.compiling:
            self.add(own)
