"""The file of a measurement: ``runs.jsonl``, provenance first, then one line per request; resumable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wager import journal
from wager.errors import OptionError
from wager.types import JSON

FILE = "runs.jsonl"
_HOLDS, _REMEDY = "a measurement", "give another --out, or the same options to continue it"


class Journal:
    """Appends rows to ``folder``/runs.jsonl, each on disk before the next request starts.

    A folder that holds a measurement with the same settings is continued: its rows are ``rows``. Raises OptionError
    where the settings differ.
    """

    def __init__(self, folder: Path, provenance: JSON) -> None:
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"`{folder}` cannot be made ({error.strerror}): give another --out") from error
        self._file = journal.Journal(self.path, provenance, holds=_HOLDS, remedy=_REMEDY)
        self.resumed = self._file.resumed
        self.rows: list[JSON] = list(self._file)
        if self.resumed:
            self._file.add({"kind": "resumed", **{k: provenance[k] for k in ("started", "load", "command")}})

    def add(self, row: JSON) -> None:
        self.rows.append(row)
        self._file.add(row)

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path) -> list[JSON]:
    """All rows, provenance first. The last line may be unfinished (a crash): it is left out."""
    return list(journal.read(path))


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
