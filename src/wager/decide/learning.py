"""What rows with known targets teach: the best constant, priors and ranks, straight lines, intervals and sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from typing import Any

from wager.decide.answered import Answered
from wager.decide.calibration import Line, fit_line, on_line
from wager.decide.conformal import (
    INTERVAL_METHODS,
    SET_METHODS,
    Intervals,
    LabelSets,
    Release,
    calibrate_intervals,
    calibrate_release,
    calibrate_sets,
    confidence,
)
from wager.decide.job import Job
from wager.decide.law import Law
from wager.decide.metrics import MetricInfo
from wager.decide.options import Entry, Options
from wager.decide.rules import decide, mean, rule_for

_FEWEST = 3  # rows for a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """``targets`` (n,) that were seen; ``lines`` by name of a prediction, from it to the target.

    ``intervals`` around ``centre`` of the law's mean, or ``sets`` of labels, hold a target as often as was asked for.
    ``releases`` by metric: when its prediction is given out.
    """

    targets: tuple[Any, ...]
    lines: Mapping[str, Line]
    centre: Line | None = None
    intervals: Intervals | None = None
    sets: LabelSets | None = None
    releases: Mapping[str, Release] = field(default_factory=dict)

    def constant(self, metric: MetricInfo, options: Options) -> Any:
        """The best prediction for ``metric`` that is the same for every row; None without targets."""
        rule = rule_for(metric)
        told = told_of(options, self.targets, rule)
        return decide(Law.of(self.targets), rule, options=told).value if self.targets else None

    def interval(self, law: Law) -> tuple[float, float] | None:
        """Where the target is, with the coverage asked for."""
        if self.intervals is None:
            return None
        return self.intervals.of(law, on_line(self.centre, [mean_of(law)])[0])


def told_of(options: Options, targets: ListLike[Any], entry: Entry) -> Options:
    """What a rule or a metric is told: of what it takes, that which was given, and that which ``targets`` tell."""
    return (options.learnt(targets, entry.takes) if targets else options).only(entry.takes)


def learn(rows: Iterable[Answered], job: Job) -> Learnt:
    """From the rows that have a target and an answer, what ``job`` asks for, on the laws of its main estimator."""
    known = [row for row in rows if row.target is not None and not row.error]
    targets, laws = [row.target for row in known], [row.laws[job.main] for row in known]
    means = [mean_of(law) for law in laws]
    fitted = {"greedy": _line([row.greedy for row in known], targets), "mean": _line(means, targets)}
    lines = {name: line for name, line in fitted.items() if line is not None}
    found = Learnt(targets=tuple(targets), lines=lines, releases=_releases(laws, targets, job))
    if job.reading.kind == "labels" and job.options.labels:
        by = next((name for name in SET_METHODS if name == job.conformal), SET_METHODS[0])
        sets = calibrate_sets(laws, targets, labels=job.options.labels, level=job.level, method=by)
        return replace(found, sets=sets)
    if not all(isinstance(target, float) for target in targets):
        return found
    # What the intervals stand on must have been fitted on other rows than those that size them.
    centre = _line(means[::2], targets[::2])
    centres = on_line(centre, means[1::2])
    method = next((name for name in INTERVAL_METHODS if name == job.conformal), INTERVAL_METHODS[0])
    intervals = calibrate_intervals(laws[1::2], centres, targets[1::2], level=job.level, method=method)
    return replace(found, centre=centre, intervals=intervals)


def _releases(laws: ListLike[Law], targets: ListLike[Any], job: Job) -> dict[str, Release]:
    """For each metric whose predictions may be withheld; nothing is learnt that they rest on."""
    found, confidences = {}, [confidence(law) for law in laws]
    for metric in job.withheld:
        rule = rule_for(metric)
        told = told_of(job.options, (), rule)
        wrong = [decide(law, rule, options=told).value != y for law, y in zip(laws, targets, strict=True)]
        assert job.abstain is not None
        found[metric.spec] = calibrate_release(confidences, wrong, alpha=job.abstain)
    return found


def mean_of(law: Law) -> float | None:
    """The mean of a law of numbers; None of others, and of an empty one."""
    if not len(law) or not all(isinstance(value, float) for value in law.values):
        return None
    return mean(law.values, law.weights)


def _line(predictions: ListLike[Any], targets: ListLike[Any]) -> Line | None:
    """Over the rows where both are numbers; None where these are too few."""
    both = [(x, y) for x, y in zip(predictions, targets, strict=True) if isinstance(x, float) and isinstance(y, float)]
    return fit_line([x for x, _ in both], [y for _, y in both]) if len(both) >= _FEWEST else None
