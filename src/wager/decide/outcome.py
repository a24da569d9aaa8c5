"""From the journal to what a person wants: the file of predictions, and the table of methods on metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wager.decide.answered import Answered, Part, law_json
from wager.decide.conformal import Release, confidence, spread
from wager.decide.job import Job
from wager.decide.law import Law
from wager.decide.learning import Learnt, learn, mean_of, told_of
from wager.decide.metrics import MetricInfo
from wager.decide.plot import Picture, check_plot, rows_to_show
from wager.decide.rules import Decision, decide, median, mode, rule_for
from wager.decide.scoreboard import Score, Scoreboard, methods
from wager.decide.words import counted
from wager.decide.work import Survey, survey, work
from wager.decide.writing import Column, writer
from wager.errors import OptionError
from wager.journal import Journal

if TYPE_CHECKING:
    from wager.llm import LLM

Progress = Callable[[str, int, int], None]
_REMEDY = "give another --out, the same options to continue it, or delete it to start over"
_GIVES: Mapping[str, Column] = {"number": "number", "label": "text", "text": "text"}


@dataclass(slots=True)
class Held:
    """How many of ``n`` targets their interval or set held, and ``size``, the sum of widths or of numbers of labels."""

    n: int = 0
    n_inside: int = 0
    size: float = 0.0

    def add(self, row: Answered, cells: Mapping[str, Any]) -> None:
        """A row with a target and an interval counts."""
        labels, low, high = cells.get("interval_labels"), cells.get("interval_low"), cells.get("interval_high")
        if row.target is None:
            return
        if labels is not None:
            self.n, self.n_inside = self.n + 1, self.n_inside + (row.target in labels)
            self.size += len(labels)
        elif low is not None and high is not None:
            self.n, self.n_inside = self.n + 1, self.n_inside + (low <= row.target <= high)
            self.size += high - low


@dataclass(slots=True)
class Released:
    """Of ``n`` answers, and of the ``n_wrong`` that a target shows to be wrong, how many were released by ``rule``."""

    rule: Release
    n: int = 0
    n_out: int = 0
    n_wrong: int = 0
    n_wrong_out: int = 0

    def add(self, row: Answered, prediction: Any, released: bool) -> None:
        """A row with a prediction counts."""
        if prediction is None:
            return
        wrong = row.target is not None and prediction != row.target
        self.n, self.n_out = self.n + 1, self.n_out + released
        self.n_wrong, self.n_wrong_out = self.n_wrong + wrong, self.n_wrong_out + (wrong and released)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``scores`` and ``held`` where a target was given. ``n_errors``: rows without an answer (the file says why).
    ``covered``: mean over the others of the probability, or the share of draws, that their laws stand for.
    ``released``: by metric, what was withheld. ``warnings``: what a rule or a metric could not do, in sentences.
    """

    n_rows: int
    n_errors: int
    n_tokens: int
    n_targets: int
    scores: list[Score]
    held: Held
    covered: float
    released: dict[str, Released]
    warnings: list[str]


def journal_of(out: Path) -> Path:
    """Where the answers behind ``out`` are kept."""
    return out.with_name(out.name + ".journal")


def run(
    job: Job, load: Callable[[], LLM], *, say: Callable[[str], None], progress: Progress, plot: Path | None = None
) -> Outcome:
    """Answer what the journal does not hold yet, then write predictions, score and ``plot`` them. ``load``: the model.

    Raises WagerError kinds.
    """
    if plot is not None:
        check_plot(plot)
    surveys = [survey(source, skip_errors=job.skip_errors) for source in job.sources]
    _tell_skipped(job, surveys, say)
    _check_rules(job, surveys[0].targets)
    journal = Journal(journal_of(job.out), {"settings": job.settings}, holds="answers", remedy=_REMEDY)
    try:
        work(
            job.sources,
            surveys,
            journal,
            lambda: job.asker(load()),
            skip_errors=job.skip_errors,
            progress=progress,
        )
        picture = None if plot is None else Picture(rows_to_show(surveys[-1].n))
        outcome = finish(job, journal, picture)
        if picture is not None and plot is not None:
            picture.draw(plot)
        return outcome
    finally:
        journal.close()


def _tell_skipped(job: Job, surveys: list[Survey], say: Callable[[str], None]) -> None:
    for source, found in zip(job.sources, surveys, strict=True):
        if found.n_bad:
            say(f"`{source.table.path}`: {found.n_bad} of {counted(found.n, 'row')} cannot be used ({found.first})")


def _check_rules(job: Job, targets: tuple[Any, ...]) -> None:
    """Raises ``OptionError`` for a rule that would fail on every row: that is known without the model.

    ``targets``: what can be learnt from.
    """
    values = job.answers.values if job.answers is not None and job.main == "enumerate" else ()
    if job.reading.kind == "texts":
        values = ("a", "b")  # tells whether the metric's library is there
    for metric in job.metrics:
        try:
            decide(Law.of(values), rule_for(metric), options=told_of(job.options, targets, rule_for(metric)))
        except OptionError as error:
            raise OptionError(f"--metric `{metric.spec}` cannot be decided for: {error}") from error


def finish(job: Job, journal: Journal, picture: Picture | None) -> Outcome:
    """All that follows from the answers, without the model."""
    learnt = _learnt(job, journal)
    ways = methods(job.metrics, job.options, learnt, main=job.main, others=job.others, n=job.n)
    board = Scoreboard(job.metrics, ways, job.options, learnt) if job.target is not None else None
    n_rows = n_errors = n_tokens = 0
    covered = 0.0
    decided, held = Decided(job, learnt), Held()
    released = {spec: Released(rule) for spec, rule in (learnt.releases if learnt else {}).items()}
    drawn = _drawn(job.metrics)
    with writer(job.out, decided.columns) as write:
        for row in _rows(journal, "data", job.rows):
            cells = decided.cells(row)
            write(cells)
            answered = not row.error and len(row.laws[job.main])
            n_rows, n_errors, n_tokens = n_rows + 1, n_errors + (not answered), n_tokens + row.n_tokens
            covered += cells["covered"] or 0.0
            if picture is not None and not row.error:
                picture.add(row, row.laws[job.main], {name: cells[f"prediction_{m.spec}"] for name, m in drawn.items()})
            for spec, counts in released.items():
                counts.add(row, cells[f"prediction_{spec}"], bool(cells[f"released_{spec}"]))
            if board is not None:
                board.add(row)
                held.add(row, cells)
    n_targets = len(board.targets) if board is not None else 0
    scores = board.scores() if board is not None and n_targets else []
    warnings = decided.warnings + ([] if board is None else board.warnings)
    covered /= max(1, n_rows - n_errors)
    return Outcome(n_rows, n_errors, n_tokens, n_targets, scores, held, covered, released, warnings)


def _drawn(metrics: tuple[MetricInfo, ...]) -> dict[str, MetricInfo]:
    """Predictions to draw, by rule: each once, and no scores for a whole data set where there are others."""
    rows = [metric for metric in metrics if metric.rows is not None] or metrics
    return {metric.spec.replace(metric.name, metric.rule, 1): metric for metric in rows}


def _learnt(job: Job, journal: Journal) -> Learnt | None:
    if job.calibration is None:
        return None
    return learn(_rows(journal, "calibration", None), job)


def _rows(journal: Journal, part: Part, most: int | None) -> Iterator[Answered]:
    for row in journal:
        if row["part"] == part and (most is None or row["row"] <= most):
            yield Answered.from_json(row)


class Decided:
    """Decides on rows: for each metric the prediction of its rule, and what the law looks like."""

    def __init__(self, job: Job, learnt: Learnt | None) -> None:
        self.job, self.learnt = job, learnt
        self.is_numbers = job.reading.kind == "numbers"
        seen = learnt.targets if learnt is not None else ()
        self._told = {metric.spec: told_of(job.options, seen, rule_for(metric)) for metric in job.metrics}
        self._failed: dict[str, tuple[int, str]] = {}  # by metric, rows on which its rule failed, and why the first

    @property
    def warnings(self) -> list[str]:
        """A sentence for each metric whose rule failed on rows that have an answer."""
        return [
            f"prediction_{spec} is empty in {counted(n, 'row')} with an answer (see the column error): {why}"
            for spec, (n, why) in self._failed.items()
        ]

    @property
    def columns(self) -> dict[str, Column]:
        """Names and kinds of the columns of the file, in order."""
        value: Column = "number" if self.is_numbers else "text"
        found: dict[str, Column] = {"row": "count", "line": "count"}
        if self.job.target is not None:
            found["target"] = value
        found |= {f"prediction_{metric.spec}": self._kind(metric) for metric in self.job.metrics}
        if self.learnt is not None:
            found |= dict.fromkeys((f"released_{spec}" for spec in self.learnt.releases), "count")
        found["law_mode"] = value
        if self.is_numbers:
            found |= {"law_mean": "number", "law_median": "number", "law_spread": "number"}
        if self.learnt is not None and self.learnt.intervals is not None:
            found |= {"interval_low": "number", "interval_high": "number"}
        if self.learnt is not None and self.learnt.sets is not None:
            found["interval_labels"] = "text"
        return found | {"law_entropy": "number", "covered": "number", "n_tokens": "count", "error": "text"}

    def _kind(self, metric: MetricInfo) -> Column:
        own: Column = "number" if self.is_numbers and metric.gives == "label" else "text"
        return own if metric.gives == "label" else _GIVES.get(metric.gives, "text")

    def cells(self, row: Answered) -> dict[str, Any]:
        """One row of the file."""
        found: dict[str, Any] = dict.fromkeys(self.columns)
        found |= {"row": row.number, "line": row.line, "n_tokens": row.n_tokens, "error": row.error}
        if self.job.target is not None:
            found["target"] = _written(row.target)
        if row.error:
            return found
        law = row.laws[self.job.main]
        decisions = {metric.spec: self._decision(law, metric) for metric in self.job.metrics}
        found |= {f"prediction_{spec}": _written(decision.value) for spec, decision in decisions.items()}
        found["error"] = "; ".join(dict.fromkeys(decision.reason for decision in decisions.values() if decision.reason))
        for spec, release in (self.learnt.releases if self.learnt is not None else {}).items():
            found[f"released_{spec}"] = decisions[spec].value is not None and release.of(confidence(law))
        return found | {"covered": law.covered} | self._interval(law) | (self._law(law) if len(law) else {})

    def _interval(self, law: Law) -> dict[str, Any]:
        ends = self.learnt.interval(law) if self.learnt is not None else None
        if ends is not None:
            return {"interval_low": ends[0], "interval_high": ends[1]}
        if self.learnt is not None and self.learnt.sets is not None:
            return {"interval_labels": list(self.learnt.sets.of(law))}
        return {}

    def _decision(self, law: Law, metric: MetricInfo) -> Decision:
        try:
            return decide(law, rule_for(metric), options=self._told[metric.spec])
        except OptionError as error:  # of this law alone: other rows, and other metrics, have their predictions
            n, first = self._failed.get(metric.spec, (0, str(error)))
            self._failed[metric.spec] = n + 1, first
            return Decision(value=None, reason=f"{metric.spec}: {error}")

    def _law(self, law: Law) -> dict[str, Any]:
        found: dict[str, Any] = {"law_mode": _written(mode(law.values, law.weights)), "law_entropy": entropy(law)}
        centre = mean_of(law)
        if self.is_numbers and centre is not None:
            found |= {"law_mean": centre, "law_median": median(law.values, law.weights), "law_spread": spread(law)}
        return found


def entropy(law: Law) -> float:
    """In bits: 0 where the answer is certain."""
    some = law.weights[law.weights > 0]
    return float(-(some @ np.log2(some))) + 0.0


def _written(value: Any) -> Any:
    """A prediction as a cell: laws as weights by value, sets and rankings as lists."""
    if isinstance(value, Law):
        return law_json(value)
    if isinstance(value, frozenset):
        return sorted(value, key=str)
    return list(value) if isinstance(value, tuple) else value
