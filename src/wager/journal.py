"""JSON lines that outlive a crash: the settings first, then a row at a time, each on disk before the next is made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from wager.errors import OptionError
from wager.types import JSON

_TAIL_BYTES = 2**16


class Journal:
    """Appends rows to ``path``, whose first line is ``first`` with its ``settings``; ``resumed`` where it was there.

    Iterating reads the rows after the first line from the disk. Raises ``OptionError`` where the file has other
    settings, named with both values, or is no journal; ``holds`` and ``remedy`` are the words for it.
    """

    def __init__(self, path: Path, first: JSON, *, holds: str, remedy: str) -> None:
        self.path = path
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise OptionError(f"`{path}` cannot be written ({error.strerror}): give another --out") from error
        try:
            _lock(self._file, path)
            known = next(read(path), None)
            self.resumed = known is not None
            if known is not None:
                _check_same(known.get("settings", {}), first["settings"], f"`{path}` holds {holds}", remedy)
            _cut_unfinished_line(path)
        except BaseException:
            self._file.close()
            raise
        if not self.resumed:
            self.add({"kind": "provenance", **first})

    def __iter__(self) -> Iterator[JSON]:
        rows = read(self.path)
        next(rows)
        return rows

    def add(self, *rows: JSON) -> None:
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[JSON]:
    """All rows, provenance first. The last line may be unfinished (a crash): it is left out."""
    with path.open(encoding="utf-8", errors="replace") as file:  # a crash may leave half a character
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise OptionError(f"`{path}` line {number} is not JSON ({error}): give another --out") from error
            if number == 1 and row.get("kind") != "provenance":
                raise OptionError(f"`{path}` is no measurement (its first line has no provenance): give another --out")
            yield row


def _check_same(old: JSON, new: JSON, holds: str, remedy: str) -> None:
    for name in sorted(set(old) | set(new)):
        if old.get(name) != new.get(name):
            raise OptionError(f"{holds} with {name} `{old.get(name)}`, not `{new.get(name)}`: {remedy}")


def _lock(file: TextIO, path: Path) -> None:
    """For as long as the file is open, where the system has such locks: what another process writes must not be cut."""
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OptionError(f"`{path}` is in use by another process: wait for it, or give another --out") from error


def _cut_unfinished_line(path: Path) -> None:
    """The file ends with a whole line, or is empty."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            last = file.read(end - start).rfind(b"\n")
            if last >= 0:
                file.truncate(start + last + 1)
                return
            end = start
        file.truncate(0)
