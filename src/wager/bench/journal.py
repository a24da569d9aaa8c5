"""The file of a measurement: ``runs.jsonl``, provenance first, then one line per request; resumable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from wager.errors import OptionError
from wager.types import JSON

FILE = "runs.jsonl"


class Journal:
    """Appends rows to ``folder``/runs.jsonl, each on disk before the next request starts.

    A folder that holds a measurement with the same settings is continued: its rows are ``rows``. Raises OptionError
    where the settings differ.
    """

    def __init__(self, folder: Path, provenance: JSON) -> None:
        self.path = folder / FILE
        self.rows: list[JSON] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"`{folder}` cannot be made ({error.strerror}): give another --out") from error
        known = read_rows(self.path) if self.path.is_file() else []
        if known:
            _check_same(known[0].get("settings", {}), provenance["settings"], folder)
            _cut_unfinished_line(self.path)
            self.rows = known[1:]
        self.resumed = bool(known)
        self._file = self.path.open("a" if known else "w", encoding="utf-8")
        first = {"kind": "resumed", **{k: provenance[k] for k in ("started", "load", "command")}}
        self._write(first if known else {"kind": "provenance", **provenance})

    def add(self, row: JSON) -> None:
        self.rows.append(row)
        self._write(row)

    def close(self) -> None:
        self._file.close()

    def _write(self, row: JSON) -> None:
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_rows(path: Path) -> list[JSON]:
    """All rows, provenance first. The last line may be unfinished (a crash): it is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows: list[JSON] = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise OptionError(f"`{path}` line {number} is not JSON ({error}): give another --out") from error
    if rows and rows[0].get("kind") != "provenance":
        raise OptionError(f"`{path}` is no measurement (its first line has no provenance): give another --out")
    return rows


def rows_of(folder: Path) -> list[JSON]:
    """The rows of a finished or interrupted measurement. Raises OptionError where there is none."""
    path = folder / FILE if folder.is_dir() else folder
    rows = read_rows(path) if path.is_file() else []
    if not rows:
        raise OptionError(f"`{folder}` holds no measurement: run wager bench --out {folder} first")
    return rows


def runs(rows: Iterable[JSON]) -> list[JSON]:
    """The measured requests among the rows."""
    return [row for row in rows if row["kind"] == "run"]


def _check_same(old: JSON, new: JSON, folder: Path) -> None:
    for name in sorted(set(old) | set(new)):
        if old.get(name) != new.get(name):
            raise OptionError(
                f"`{folder}` holds a measurement with {name} `{old.get(name)}`, not `{new.get(name)}`: "
                "give another --out, or the same options to continue it"
            )


def _cut_unfinished_line(path: Path) -> None:
    with path.open("rb+") as file:
        data = file.read()
        if not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)
