"""Rows into CSV, TSV, JSON lines or Parquet, by the file's suffix; the file appears whole or not at all."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from wager.decide.table import kind_of, pyarrow
from wager.errors import OptionError

Column = Literal["number", "count", "text"]
Write = Callable[[Mapping[str, Any]], None]
_GROUP_ROWS = 4096


@contextmanager
def writer(path: Path, columns: Mapping[str, Column]) -> Iterator[Write]:
    """A function that writes one row, a mapping with all ``columns``; None, NaN and inf are written as nothing (null).

    In columns of text what is not text is written as JSON. Rows go to a file beside ``path``, which takes its place at
    the end. Raises ``OptionError`` where the folder cannot be written.
    """
    suffix = kind_of(path, "--out")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _WRITERS[suffix](temporary, columns, suffix) as write:
            yield lambda row: write({name: _cell(row[name], kind) for name, kind in columns.items()})
        temporary.replace(path)
    except (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise OptionError(f"`{path}` cannot be written ({error.strerror}): give another --out") from error
    finally:
        with suppress(OSError):  # gone already, or never made
            temporary.unlink()


def _cell(value: Any, kind: Column) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if kind == "number":
        return float(value)
    if kind == "count":
        return int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@contextmanager
def _separated(path: Path, columns: Mapping[str, Column], suffix: str) -> Iterator[Write]:
    tabs = suffix == ".tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t" if tabs else ",", lineterminator="\n", quoting=_quoting(tabs))

        def write(row: Mapping[str, Any]) -> None:
            # A tab-separated field has no way to hold a tab or a line end.
            cells = (" ".join(cell.split()) if tabs and isinstance(cell, str) else cell for cell in row.values())
            rows.writerow(["" if cell is None else cell for cell in cells])

        rows.writerow(columns)
        yield write


def _quoting(tabs: bool) -> Literal[0, 3]:
    return csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL


@contextmanager
def _json_lines(path: Path, columns: Mapping[str, Column], suffix: str) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda row: print(json.dumps(row, ensure_ascii=False, allow_nan=False), file=file)


@contextmanager
def _parquet(path: Path, columns: Mapping[str, Column], suffix: str) -> Iterator[Write]:
    arrow, parquet = pyarrow(""), pyarrow("parquet")
    types = {"number": arrow.float64(), "count": arrow.int64(), "text": arrow.string()}
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    waiting: list[Mapping[str, Any]] = []
    with parquet.ParquetWriter(path, schema) as file:

        def flush() -> None:
            if waiting:
                file.write_table(arrow.Table.from_pylist(waiting, schema=schema))
                waiting.clear()

        def write(row: Mapping[str, Any]) -> None:
            waiting.append(row)
            if len(waiting) == _GROUP_ROWS:
                flush()

        yield write
        flush()


_WRITERS = {
    ".csv": _separated,
    ".tsv": _separated,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}
