"""Rows out of CSV, TSV, JSON lines and Parquet, one at a time, each with the line it stands on."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from wager.errors import OptionError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_BATCH_ROWS = 512
_LONGEST_FIELD = 2**24
_UNDECODED = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: ``number`` and ``line`` from 1 (of Parquet the row's number). ``problem``: why it has no values."""

    number: int
    line: int
    values: Mapping[str, Any]
    problem: str = ""


class Table:
    """A file of rows, read anew by every iteration in bounded memory; ``columns`` are the header's, or the first row's.

    In CSV a field may be quoted and hold line ends; in TSV a quote is a character like others. Rows that cannot be read
    come with a ``problem``. Raises ``OptionError`` for a file that is missing, empty or of another kind, and for a
    header that names a column twice.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.suffix = path, kind_of(path, "data")
        if not path.is_file():
            raise OptionError(f"the data `{path}` is not there: give a file ({', '.join(SUFFIXES)})")
        with path.open("rb") as file:
            start = file.read(4)
        if not start.strip():
            raise OptionError(f"the data `{path}` is empty: give a file with a header and rows")
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise OptionError(f"the data `{path}` is UTF-16: convert it to UTF-8, e.g. with iconv")
        self.columns = self._columns()
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise OptionError(f"the data `{path}` has the column `{twice[0]}` twice: rename one of them")

    def __iter__(self) -> Iterator[Row]:
        return numbered(_READERS[self.suffix](self.path, self.columns))

    def usable(self, row: Row, needed: Collection[str]) -> str:
        """Why ``row`` cannot be used: its problem, or the first of the ``needed`` columns that it lacks; else ""."""
        lacks = [name for name in needed if row.values.get(name) is None]
        return row.problem or (f"it lacks `{lacks[0]}`" if lacks else "")

    def require(self, column: str, option: str) -> None:
        """Raise ``OptionError`` where the table lacks a column that an option names."""
        if column not in self.columns:
            raise OptionError(
                f"{option} `{column}` is no column of `{self.path}`, which has {', '.join(self.columns)}: name one"
            )

    def _columns(self) -> list[str]:
        if self.suffix == ".parquet":
            return list(_parquet(self.path).schema_arrow.names)
        if self.suffix in (".csv", ".tsv"):
            first = next(_fields(self.path, self.suffix), (1, [], "it has no header"))
            if first[2]:
                raise OptionError(f"the header of `{self.path}` cannot be read ({first[2]}): mend line {first[0]}")
            return first[1]
        return next((list(values) for _, values, problem in _json_lines(self.path, []) if not problem), [])


def kind_of(path: Path, what: str) -> str:
    """The suffix that says how ``path`` is written. Raises ``OptionError`` for one that is not known."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise OptionError(f"the {what} `{path}` is of an unknown kind: name it with one of {', '.join(SUFFIXES)}")
    return suffix


def pyarrow(part: str) -> Any:
    """A module of pyarrow. Raises ``OptionError`` where it is not installed."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise OptionError("Parquet needs pyarrow: pip install 'wager[decide]', or use .csv or .jsonl") from error


Found = Iterator[tuple[int, Mapping[str, Any], str]]  # line, values, problem


def numbered(found: Found) -> Iterator[Row]:
    for number, (line, values, problem) in enumerate(found, start=1):
        yield Row(number, line, values, problem)


def _decoded(path: Path) -> Iterator[str]:
    """Lines as text; bytes that are not UTF-8 come as lone surrogates, so that their line can be told."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            yield (line[3:] if number == 0 and line.startswith(b"\xef\xbb\xbf") else line).decode(
                "utf-8", "surrogateescape"
            )


def _not_utf8(text: str) -> str:
    bad = _UNDECODED.search(text)
    return f"byte 0x{ord(bad.group()) - 0xDC00:02x} is not UTF-8" if bad else ""


def _fields(path: Path, suffix: str) -> Iterator[tuple[int, list[str], str]]:
    """(line, fields, problem) of every record that is not blank, the header first."""
    csv.field_size_limit(_LONGEST_FIELD)
    plain = suffix == ".tsv"
    reader = csv.reader(
        _decoded(path),
        delimiter="\t" if plain else ",",
        quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
        strict=True,
    )
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, [], str(error)
            continue
        if fields:
            yield line, fields, _not_utf8("".join(fields))


def _separated(path: Path, columns: list[str], suffix: str) -> Found:
    records = _fields(path, suffix)
    next(records, None)
    for line, fields, problem in records:
        if not problem and len(fields) != len(columns):
            problem = f"it has {len(fields)} fields, the header {len(columns)}"
        yield line, {} if problem else dict(zip(columns, fields, strict=True)), problem


def _csv(path: Path, columns: list[str]) -> Found:
    return _separated(path, columns, ".csv")


def _tsv(path: Path, columns: list[str]) -> Found:
    return _separated(path, columns, ".tsv")


def _json_lines(path: Path, columns: list[str]) -> Found:
    for line, text in enumerate(_decoded(path), start=1):
        if not text.strip():
            continue
        values, problem = _json_object(text)
        yield line, values, problem


def _json_object(text: str) -> tuple[dict[str, Any], str]:
    problem = _not_utf8(text)
    if problem:
        return {}, problem
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"it is not JSON: {error}"
    return (values, "") if isinstance(values, dict) else ({}, "it is no JSON object")


def _parquet(path: Path) -> Any:
    parquet = pyarrow("parquet")
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise OptionError(f"`{path}` is no readable Parquet file ({error}): write it again") from error


def _parquet_rows(path: Path, columns: list[str]) -> Found:
    with _parquet(path) as file:
        line = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for values in batch.to_pylist():
                line += 1
                yield line, values, ""


_READERS = {".csv": _csv, ".tsv": _tsv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet_rows}
