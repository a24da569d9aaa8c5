"""Prompts made of a template with {column} fields and the values of one row."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from wager.errors import OptionError

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Template:
    """Text with {column} fields; ``{{`` and ``}}`` stand for braces. ``fields``: the columns asked for, in order.

    Raises ``OptionError`` for a brace that is neither a field nor doubled, and for a text without fields.
    """

    def __init__(self, text: str, *, name: str = "the template") -> None:
        self.text, self.name = text, name
        self.fields: tuple[str, ...] = tuple(dict.fromkeys(_fields(text, name)))
        if not self.fields:
            raise OptionError(f"`{name}` has no {{column}} field, so every row would get one prompt: name a column")

    def check(self, columns: Collection[str]) -> None:
        """Raise ``OptionError`` where a field is none of ``columns``."""
        for field in self.fields:
            if field not in columns:
                raise OptionError(
                    f"`{self.name}` asks for the column {{{field}}}, and the data has {', '.join(columns)}: "
                    "name one of those (a brace of the text itself is written twice)"
                )

    def fill(self, row: Mapping[str, Any]) -> str:
        """The prompt of ``row``, which has all fields. What is not text is written as JSON."""
        return _PARTS.sub(lambda part: _written(part, row), self.text)


def read_template(path: Path) -> Template:
    """The template in a UTF-8 file, without the line end that editors put after the last line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise OptionError(f"the template `{path}` cannot be read ({error.strerror}): give --prompt FILE") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the template `{path}` is not UTF-8 (byte {error.start}): convert it") from error
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise OptionError(f"the template `{path}` is empty: write a prompt with {{column}} fields into it")
    return Template(text, name=path.name)


def _fields(text: str, name: str) -> list[str]:
    found = []
    for part in _PARTS.finditer(text):
        if part.group() in ("{{", "}}"):
            continue
        if not part.group(1):
            line = text.count("\n", 0, part.start()) + 1
            raise OptionError(
                f"`{name}` line {line} has the brace `{part.group()}`, which names no column: "
                "write {column}, or {{ and }} for braces of the text"
            )
        found.append(part.group(1))
    return found


def _written(part: re.Match[str], row: Mapping[str, Any]) -> str:
    if part.group() in ("{{", "}}"):
        return part.group()[0]
    value = row[part.group(1)]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
