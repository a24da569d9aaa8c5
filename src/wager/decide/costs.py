"""What each answer costs where another one is right, read from a table."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from pathlib import Path
from typing import Any

from wager.errors import OptionError


def read_costs(path: Path, labels: ListLike[Any], read: Callable[[str], Any]) -> tuple[tuple[float, ...], ...]:
    """(L, L) costs, row = target, column = prediction, in the order of ``labels``; ``read`` turns a cell into a label.

    The file is CSV in UTF-8, in any order: a header with what may be predicted, after a first cell that is not looked
    at; then for each target its label and the costs. Raises ``OptionError`` for anything else.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file) if any(line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OptionError(f"--costs `{path}` cannot be read ({error}): give a CSV file in UTF-8") from error
    header = lines[0] if lines else []
    for i, line in enumerate(lines):
        if len(line) != len(header):
            raise OptionError(f"--costs `{path}`: row {i + 1} has {len(line)} fields, the header {len(header)}")
    for what, names in (("columns", header[1:]), ("rows", [line[0] for line in lines[1:]])):
        if Counter(map(read, names)) != Counter(labels):
            raise OptionError(f"--costs `{path}` has the {what} {names}: give one for each label of {list(labels)}")
    costs = {(read(line[0]), read(name)): x for line in lines[1:] for name, x in zip(header[1:], line[1:], strict=True)}
    return tuple(tuple(_cost(path, costs[y, x]) for x in labels) for y in labels)


def _cost(path: Path, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise OptionError(f"--costs `{path}` has the cost `{text}`: give finite numbers")
    return value
