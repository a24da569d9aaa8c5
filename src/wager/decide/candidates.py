"""What may be answered: grids, labels and files of candidates, each a value with the texts that mean it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from wager.errors import OptionError

_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """``pairs`` of (value, text): a number or a label, and a text that means it; several texts may mean one value."""

    pairs: tuple[tuple[float | str, str], ...]

    @property
    def values(self) -> tuple[float | str, ...]:
        """The distinct values, in order."""
        return tuple(dict.fromkeys(value for value, _ in self.pairs))

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values, if all are numbers; else nothing."""
        found = tuple(value for value in self.values if isinstance(value, float))
        return found if len(found) == len(self.values) else ()

    def spaced(self) -> Candidates:
        """The same texts after a space, for prompts that end in a word."""
        return Candidates(tuple((value, " " + text) for value, text in self.pairs))


def parse_labels(spec: str) -> Candidates:
    """``LOW..HIGH``, ``LOW..HIGH:STEP``, ``a,b,c``, or ``bad=1,good=5`` (texts that stand for numbers).

    Raises ``OptionError`` for what is none of these, or names a text twice.
    """
    if ".." in spec:
        return _grid(spec)
    return _listed((part.strip() for part in spec.split(",")), "=", f"the labels `{spec}`")


def named_labels(texts: Iterable[str]) -> Candidates:
    """Labels given one by one, each as it is; numbers if all are. Raises ``OptionError`` as ``parse_labels`` does."""
    return _listed(texts, None, "the list of labels")


def read_candidates(path: Path) -> Candidates:
    """One candidate a line, in UTF-8: a text, or a text, a tab and the number that it stands for."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except OSError as error:
        raise OptionError(f"the candidates `{path}` cannot be read ({error.strerror}): give a file") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the candidates `{path}` are not UTF-8 (byte {error.start}): convert the file") from error
    return _listed((line for line in lines if line.strip()), "\t", f"the file of candidates `{path}`")


def _grid(spec: str) -> Candidates:
    body, _, step_text = spec.partition(":")
    low_text, _, high_text = body.partition("..")
    try:
        low, high, step = Decimal(low_text), Decimal(high_text), Decimal(step_text or "1")
        steps = (high - low) / step
        whole = steps.is_finite() and not steps % 1  # too many steps are an InvalidOperation
    except (InvalidOperation, ZeroDivisionError) as error:
        raise OptionError(f"the labels `{spec}` is no grid: give LOW..HIGH:STEP, e.g. 0..5:0.25") from error
    if not whole or steps < 0 or step <= 0:
        raise OptionError(f"the labels `{spec}` does not go from low to high in whole steps: give e.g. 0..5:0.25")
    if steps >= _MOST:
        raise OptionError(f"the labels `{spec}` has {int(steps) + 1} values: give at most {_MOST}")
    decimals = max(1, *(-int(x.as_tuple().exponent) for x in (low, step)))
    values = [low + i * step for i in range(int(steps) + 1)]
    return Candidates(tuple((float(value), form) for value in values for form in _forms(value, decimals)))


def _forms(value: Decimal, decimals: int) -> list[str]:
    """How a number may be written: 3 as 3 and 3.00 where the grid has two decimals."""
    long = f"{value:.{decimals}f}"
    short = long.rstrip("0").rstrip(".")
    return list(dict.fromkeys(["0" if short == "-0" else short, long.removeprefix("-") if not value else long]))


def _listed(entries: Iterable[str], mark: str | None, name: str) -> Candidates:
    """Values as they are written: numbers if all are, or if ``mark`` gives each one; labels otherwise."""
    texts, numbers = [], []
    for entry in entries:
        text, marked, number = entry.rpartition(mark) if mark and mark in entry else (entry, "", entry)
        texts.append(text)
        numbers.append(_number(number))
        if marked and numbers[-1] is None:
            raise OptionError(f"{name} gives `{text}` the value `{number}`, which is no number: give one")
        if not text.strip():
            raise OptionError(f"{name} has an empty candidate: take it out")
    if not texts:
        raise OptionError(f"{name} has no candidates: give at least two")
    twice = sorted({text for text in texts if texts.count(text) > 1}) if len(set(texts)) < len(texts) else []
    if twice:
        raise OptionError(f"{name} has `{twice[0]}` twice: take one out")
    if len(texts) > _MOST:
        raise OptionError(f"{name} has {len(texts)} candidates: give at most {_MOST}")
    known = [number for number in numbers if number is not None]
    if len(known) == len(texts):
        return Candidates(tuple(zip(known, texts, strict=True)))
    return Candidates(tuple((text, text) for text in texts))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
