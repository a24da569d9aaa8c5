"""What all commands share: reading a prompt, talking on stderr, progress bars."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wager.errors import PromptError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_QUIET_S = 1.0
_TELL_EVERY_S = 20.0


def say(line: str) -> None:
    """One line on stderr: everything that is not the answer."""
    print(line, file=sys.stderr, flush=True)


def write(piece: str) -> None:
    """A piece of the answer on stdout, at once."""
    sys.stdout.write(piece)
    sys.stdout.flush()


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def read_prompt(prompt: str | None) -> str:
    """The prompt given, or stdin for ``-`` or none. Raises ``PromptError`` when there is none or it is not UTF-8."""
    closed = sys.stdin is None  # as `<&-` leaves it
    if (closed and prompt in (None, "-")) or (prompt is None and sys.stdin.isatty()):
        raise PromptError("there is no prompt: give it as an argument or on stdin (wager run 'Hello')")
    if prompt is None or prompt == "-":
        return decode_utf8(sys.stdin.buffer.read()).removesuffix("\n").removesuffix("\r")
    return prompt


def decode_utf8(data: bytes) -> str:
    """stdin's bytes as text, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"stdin is not UTF-8 (byte `0x{data[error.start]:02x}` at {error.start}): convert it, e.g. with iconv"
        ) from error


def megabytes(n_bytes: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.0f} kB"


class Bars:
    """Progress by label, as ``(label, done, total)``, total 0 if unknown: bars on a terminal, else plain lines.

    Work first heard of when it is under way already (a prompt after its first chunk) is shown only if it takes long.
    Used as a context manager; ``close`` takes the bars away before the answer starts.
    """

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        self._said: set[str] = set()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if label not in self._started:
            self._started[label] = now
            self._quiet[label] = _QUIET_S if done > 0 else 0.0
        took = now - self._started[label]
        if took < self._quiet[label]:
            return
        ended = 0 < total <= done
        if self.is_live:
            self._draw(label, done, total)
        elif label not in self._said:
            self._said.add(label)
            say(f"{label} …")
        if ended:
            if not self.is_live:
                say(f"{label}: done in {took:.1f} s")
            del self._started[label]
            self._said.discard(label)
            if not self._started:
                self.close()

    def _draw(self, label: str, done: int, total: int) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label, total=total or None)
        self._progress.update(self._tasks[label], completed=done, total=total or None)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._tasks, self._started, self._said = None, {}, {}, set()


class Ticker:
    """Progress bars, and where there is no terminal a line with the time left every now and then."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._started = self._told = time.monotonic()

    def say(self, line: str) -> None:
        self._bars.close()
        say(line)

    def __call__(self, label: str, done: int, total: int) -> None:
        self._bars(label, done, total)
        now = time.monotonic()
        if done == 0:
            self._started = self._told = now
        elif not sys.stderr.isatty() and done < total and now - self._told > _TELL_EVERY_S:
            self._told = now
            left = (now - self._started) / done * (total - done)
            say(f"{label}: {done} of {total}, about {left / 60:.0f} min left")
