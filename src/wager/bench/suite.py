"""Prompts to measure on: our own suite, or any JSON-lines file with ``prompt`` or ``turns``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from pathlib import Path

from wager.errors import OptionError

SHIPPED = Path(__file__).parent / "suites"


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    task: str
    text: str


def suite_path(name: str) -> Path:
    """The file of a shipped suite by name, or the path given."""
    shipped = SHIPPED / f"{name}.jsonl"
    if shipped.is_file():
        return shipped
    path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.jsonl")))
        raise OptionError(f"`--suite` is `{name}`: give a JSON-lines file or one of {known}")
    return path


def load_suite(path: Path) -> list[Prompt]:
    """Every line's ``prompt``, or the first of its ``turns``; its task is ``task``, else ``category``, else "all".

    Ids are ``id``, else ``question_id``, else the line number. Raises OptionError for a line without a prompt.
    """
    prompts: list[Prompt] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            prompts.append(_prompt(line, f"{path.name}:{number}", number))
    ids = [p.id for p in prompts]
    twice = next((i for i in ids if ids.count(i) > 1), None)
    if twice is not None:
        raise OptionError(f"`{path}` has the id `{twice}` twice: give every prompt its own")
    if not prompts:
        raise OptionError(f"`{path}` has no prompts: give one JSON object a line")
    return prompts


def _prompt(line: str, where: str, number: int) -> Prompt:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise OptionError(f"`{where}` is not JSON ({error}): give one object a line") from error
    if not isinstance(row, dict):
        raise OptionError(f"`{where}` is not an object: give `prompt` or `turns`")
    turns = row.get("turns")
    text = row.get("prompt") or (turns[0] if isinstance(turns, list) and turns else None)
    if not isinstance(text, str) or not text:
        raise OptionError(f"`{where}` has no `prompt` and no `turns`: give one of them as text")
    task = row.get("task") or row.get("category") or "all"
    return Prompt(str(row.get("id", row.get("question_id", number))), str(task), text)


def choose(prompts: Iterable[Prompt], *, per_task: int | None, tasks: ListLike[str]) -> list[Prompt]:
    """The first ``per_task`` prompts of every task (of ``tasks``, where given), in the order of the file."""
    prompts = list(prompts)
    known = {p.task for p in prompts}
    for task in tasks:
        if task not in known:
            raise OptionError(f"`--tasks` has `{task}`: this suite has {', '.join(sorted(known))}")
    if per_task is not None and per_task < 1:
        raise OptionError(f"`--per-task` is `{per_task}`: give at least 1")
    chosen: list[Prompt] = []
    counts: dict[str, int] = {}
    for prompt in prompts:
        n = counts.get(prompt.task, 0)
        if (not tasks or prompt.task in tasks) and (per_task is None or n < per_task):
            counts[prompt.task] = n + 1
            chosen.append(prompt)
    return chosen


def listed(names: str) -> list[str]:
    """The names in a comma-separated option."""
    return [name.strip() for name in names.split(",") if name.strip()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
