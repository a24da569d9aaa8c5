"""What the measuring commands share: progress while it runs, and what to do when it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wager.cli.console import Bars, Ticker, say


class Measurement(Protocol):
    def run(self) -> None: ...


M = TypeVar("M", bound=Measurement)


def measure(opened: Callable[..., AbstractContextManager[M]], options: Any, out: Path) -> M:
    """Open a measurement, run it to the end, close it."""
    with Bars() as bars:
        progress = Ticker(bars)
        with opened(options, say=progress.say, progress=progress) as measurement:
            try:
                measurement.run()
            except KeyboardInterrupt:
                bars.close()
                say(f"stopped: what was measured is in {out}, the same command continues")
                raise
    return measurement
