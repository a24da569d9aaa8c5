"""Rows to answers: every row of the data is asked once, and is in the journal before the next ones are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from wager.decide.answered import Answered, Part
from wager.decide.table import Row, Table
from wager.decide.words import counted
from wager.errors import OptionError, WagerError

if TYPE_CHECKING:
    from wager.decide.estimate import Estimate, Estimator
    from wager.decide.template import Template
    from wager.journal import Journal
    from wager.llm import LLM

Parse = Callable[[str], Any]
TOGETHER = 8  # prompts in one call: they share the beginning that the template gives them
_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows of one ``part``: all, or the first ``most``; ``target`` is the column to learn from or to compare with."""

    part: Part
    table: Table
    template: Template
    target: str | None
    read_target: Parse
    most: int | None = None

    def rows(self) -> Iterator[Answered | tuple[Answered, str]]:
        """Every row in order: with its prompt, or, where it has none, with an error."""
        for row in islice(self.table, self.most):
            error = self.table.usable(row, self.template.fields)
            value, error = (None, error) if error else self._target_of(row)
            answered = Answered(part=self.part, number=row.number, line=row.line, target=value, error=error)
            yield answered if error else (answered, self.template.fill(row.values))

    def _target_of(self, row: Row) -> tuple[Any, str]:
        """The target (None where the cell is empty), and what is wrong with it."""
        given = None if self.target is None else row.values.get(self.target)
        if given is None or (isinstance(given, str) and not given.strip()):
            return None, ""
        value = self.read_target(given if isinstance(given, str) else str(given))
        return value, "" if value is not None else f"its {self.target} `{given}` is no answer of this kind"


@dataclass(frozen=True, slots=True)
class Survey:
    """``n`` rows, of which ``n_bad`` cannot be used; ``first``: where the first of these stand, and why.

    ``targets``: those of calibration rows, to learn from.
    """

    n: int
    n_bad: int
    first: str
    targets: tuple[Any, ...]


def survey(source: Source, *, skip_errors: bool) -> Survey:
    """Read all rows once, before a model is loaded for them.

    Raises ``OptionError`` where there are none, unless ``skip_errors`` where some cannot be used, and where none of
    those to learn from has a target.
    """
    n, bad = 0, 0
    first: list[str] = []
    targets: list[Any] = []
    for found in source.rows():
        n += 1
        if not isinstance(found, Answered):
            targets += [found[0].target] if source.part == "calibration" and found[0].target is not None else []
        else:
            bad += 1
            first += [f"line {found.line}: {found.error}"] if len(first) < _TOLD else []
    path, more = source.table.path, f", and {bad - len(first)} more" if bad > len(first) else ""
    result = Survey(n, bad, "; ".join(first) + more, tuple(targets))
    if n == bad:
        raise OptionError(f"`{path}` has no rows to decide on ({result.first or 'only a header'}): give some")
    if bad and not skip_errors:
        found_bad, them = counted(bad, "row"), "it" if bad == 1 else "them"
        why = f"{found_bad} that cannot be used ({result.first})"
        raise OptionError(f"`{path}` has {why}: mend {them}, or --skip-errors")
    if source.part == "calibration" and not targets:
        raise OptionError(f"`{path}` has no row with a {source.target} to learn from: give some, or no --calibration")
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks the model. ``estimators`` give the laws; ``greedy`` and ``sampled`` (None: not wanted) what is compared."""

    llm: LLM
    estimators: Mapping[str, Estimator]
    greedy: Estimator | None
    sampled: Estimator | None
    seed: int

    def ask(self, rows: ListLike[tuple[Answered, str]]) -> list[Answered]:
        """All prompts together, of one part. Raises WagerError kinds where one of them cannot be run.

        Calibration rows are asked only for what is learnt from: the deciding law, the first one, and the greedy answer.
        """
        from wager.decide.estimate import mixed

        prompts = [prompt for _, prompt in rows]
        seeds = [mixed(self.seed, f"{row.part} {row.number}") for row, _ in rows]
        estimators = dict(islice(self.estimators.items(), 1 if rows[0][0].part == "calibration" else None))
        found = {name: each.estimate(self.llm, prompts, seeds) for name, each in estimators.items()}
        greedy = self.greedy.estimate(self.llm, prompts, seeds) if self.greedy is not None else None
        sampled = self._sampled(rows[0][0].part, found, prompts, seeds)
        return [
            replace(
                row,
                laws={name: estimates[i].law for name, estimates in found.items()},
                greedy=next(iter(greedy[i].values), None) if greedy else None,
                samples=sampled[i].values if sampled else (),
                n_tokens=sum(estimates[i].law.n_tokens for estimates in found.values()),
            )
            for i, (row, _) in enumerate(rows)
        ]

    def _sampled(
        self, part: Part, found: Mapping[str, list[Estimate]], prompts: ListLike[str], seeds: ListLike[int]
    ) -> list[Estimate] | None:
        """Draws to compare with, those of an estimator where it is the same."""
        if self.sampled is None or part == "calibration":
            return None
        same = next((name for name in found if self.estimators[name] is self.sampled), None)
        return found[same] if same else self.sampled.estimate(self.llm, prompts, seeds)


def work(
    sources: ListLike[Source],
    surveys: ListLike[Survey],
    journal: Journal,
    asker: Callable[[], Asker],
    *,
    skip_errors: bool,
    progress: Callable[[str, int, int], None],
) -> None:
    """Answer the rows that the journal does not hold yet. ``asker`` loads the model: only if there are any."""
    done = dict.fromkeys(("calibration", "data"), 0)
    for row in journal:
        done[row["part"]] += 1
    n_left = sum(max(0, found.n - done[source.part]) for source, found in zip(sources, surveys, strict=True))
    if n_left == 0:
        return
    asks, n_done = asker(), 0
    progress("deciding", n_done, n_left)  # of what is left, so that the time to go is not that of earlier runs
    for source in sources:
        for rows in _batches(islice(source.rows(), done[source.part], None)):
            journal.add(*(row.to_json() for row in _answers(asks, rows, source, skip_errors=skip_errors)))
            n_done += len(rows)
            progress("deciding", n_done, n_left)


def _batches(rows: Iterator[Answered | tuple[Answered, str]]) -> Iterator[list[Answered | tuple[Answered, str]]]:
    while batch := list(islice(rows, TOGETHER)):
        yield batch


def _answers(
    asker: Asker, rows: ListLike[Answered | tuple[Answered, str]], source: Source, *, skip_errors: bool
) -> list[Answered]:
    """In order. Where a prompt cannot be run, each is tried alone, to tell which."""
    usable = [row for row in rows if not isinstance(row, Answered)]
    try:
        answers = asker.ask(usable) if usable else []
    except WagerError as error:
        if len(usable) > 1:
            return [answer for row in rows for answer in _answers(asker, [row], source, skip_errors=skip_errors)]
        [(row, _)] = usable
        if not skip_errors:
            raise type(error)(f"`{source.table.path}` line {row.line}: {error} (or --skip-errors)") from error
        answers = [replace(row, error=str(error))]
    left = iter(answers)
    return [row if isinstance(row, Answered) else next(left) for row in rows]
