"""How long something takes of late, for those who decide by it."""

from __future__ import annotations

import time
from collections.abc import Callable

_MEMORY = 16.0  # laps that the running mean looks back
_MOST = 2.0  # a lap counts as at most so many of the present mean: one that was interrupted tells nothing


class Stopwatch:
    """``seconds`` that one of the things done in a lap takes: a running mean, ``guess_s`` before the first lap."""

    def __init__(self, guess_s: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        assert guess_s > 0, guess_s
        self.seconds = guess_s
        self._clock = clock
        self._start = self._spent = 0.0

    def start(self) -> None:
        self._start = self._clock()

    def stop(self) -> None:
        """The time since ``start`` belongs to this lap."""
        self._spent += self._clock() - self._start

    def lap(self, n: int) -> None:
        """The lap ends, in which ``n`` things were done; where it was none it is forgotten."""
        if n > 0:
            self.seconds += (min(self._spent / n, _MOST * self.seconds) - self.seconds) / _MEMORY
        self._spent = 0.0
