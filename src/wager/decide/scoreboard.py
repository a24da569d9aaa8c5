"""Every way to decide, on every metric asked for: so that it can be seen that each rule wins on its own metric."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from typing import Any

from wager.decide.answered import Answered
from wager.decide.calibration import Line
from wager.decide.law import Law
from wager.decide.learning import Learnt, mean_of, told_of
from wager.decide.metrics import MetricInfo, interval
from wager.decide.metrics.registry import positive_label
from wager.decide.options import Options
from wager.decide.rules import RuleInfo, decide, rule_for
from wager.decide.rules import mode as heaviest
from wager.errors import OptionError
from wager.intervals import Interval

Predict = Callable[[Answered, MetricInfo], Any]  # None: no answer
_MANY_ROWS, _FEW_RESAMPLES, _RESAMPLES = 3000, 200, 1000


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decide. ``best_for``: the metrics whose rule it is. ``fits``: whether a metric can judge it."""

    name: str
    predict: Predict
    best_for: frozenset[str]
    fits: Callable[[MetricInfo], bool]


@dataclass(slots=True)
class Score:
    """One line of the table: a number with its interval for each metric that fits, and rows without an answer."""

    method: Method
    cells: dict[str, Interval]
    n_silent: int


@dataclass(slots=True)
class Scoreboard:
    """Collects predictions row by row, then scores them. ``learnt``: from calibration rows, None without these.

    Rows without an answer get the best constant, for all methods alike; how many is said. ``unjudged``: by metric, why
    it has no number for some methods.
    """

    metrics: ListLike[MetricInfo]
    methods: ListLike[Method]
    options: Options
    learnt: Learnt | None
    targets: list[Any] = field(default_factory=list)
    predictions: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)

    def add(self, row: Answered) -> None:
        """One row; without a target, or with an error, it is not scored."""
        if row.target is None or row.error:
            return
        self.targets.append(row.target)
        for method in self.methods:
            for metric in filter(method.fits, self.metrics):
                self.predictions.setdefault((method.name, metric.spec), []).append(method.predict(row, metric))

    @property
    def warnings(self) -> list[str]:
        """A sentence for each metric that has no number for some methods."""
        return [f"the table lacks numbers for {spec}: {why}" for spec, why in self.unjudged.items()]

    def scores(self) -> list[Score]:
        """In the order of the methods, the best constant last."""
        seen = self.learnt or Learnt(targets=tuple(self.targets), lines={})
        fallback = {metric.spec: self._constant(seen, metric) for metric in self.metrics}
        constants = Score(_constant("constant" if self.learnt else "constant (of these rows)"), {}, 0)
        scores = [Score(method, {}, 0) for method in self.methods] + [constants]
        for metric in self.metrics:
            told = told_of(self.options, seen.targets, metric)
            for score in scores:
                raw = self.predictions.get((score.method.name, metric.spec))
                if raw is None and score is not constants:
                    continue
                filled = [fallback[metric.spec] if x is None else x for x in raw or [None] * len(self.targets)]
                score.n_silent = max(score.n_silent, sum(x is None for x in raw or ()))
                n_resamples = _FEW_RESAMPLES if len(self.targets) > _MANY_ROWS else _RESAMPLES
                try:
                    found = interval(metric, self.targets, filled, options=told, n_resamples=n_resamples)
                except OptionError as error:  # such as msle of a number below -1: other cells have theirs
                    self.unjudged.setdefault(metric.spec, str(error))
                else:
                    score.cells[metric.spec] = found
        return scores

    def _constant(self, seen: Learnt, metric: MetricInfo) -> Any:
        try:
            return seen.constant(metric, self.options)
        except OptionError as error:
            self.unjudged.setdefault(metric.spec, str(error))
            return None


def methods(
    metrics: ListLike[MetricInfo], options: Options, learnt: Learnt | None, *, main: str, others: ListLike[str], n: int
) -> list[Method]:
    """Greedy, one sample, majority votes of up to ``n``, the rule of each metric on the law of the estimator ``main``,
    lines fitted on calibration rows, and the rules on the laws of ``others``.
    """
    found = [_answer("greedy", lambda row: row.greedy, options)]
    found.append(_answer("one sample", lambda row: next(iter(row.samples), None), options))
    found += [_answer(f"majority of {k}", _vote(k), options) for k in _votes(n)]
    seen = learnt.targets if learnt else ()
    for estimator in (main, *others):
        for rule in {rule_for(metric).name: rule_for(metric) for metric in metrics}.values():
            name = rule.name if estimator == main else f"{rule.name}, {estimator}"
            found.append(_by_rule(name, rule, metrics, told_of(options, seen, rule), estimator))
    for name, line in (learnt.lines if learnt else {}).items():
        found.append(_answer(f"affine {name}", _on_line(line, name, main), options))
    return found


def _votes(n: int) -> list[int]:
    """4, 16, … and ``n`` itself."""
    return sorted({4**i for i in range(1, 8) if 4**i < n} | ({n} if n > 1 else set()))


def _vote(k: int) -> Callable[[Answered], Any]:
    def vote(row: Answered) -> Any:
        law = Law.of(row.samples[:k])
        return heaviest(law.values, law.weights) if len(law) else None

    return vote


def _on_line(line: Line, name: str, main: str) -> Callable[[Answered], float | None]:
    def predict(row: Answered) -> float | None:
        x = row.greedy if name == "greedy" else mean_of(row.laws[main])
        return line.of(x) if isinstance(x, float) else None

    return predict


def _answer(name: str, answer: Callable[[Answered], Any], options: Options) -> Method:
    """A method that gives an answer: judged as a law it is certain of it, judged as a score it is all or nothing."""

    def predict(row: Answered, metric: MetricInfo) -> Any:
        value = answer(row)
        if value is None:
            return None
        if metric.gives == "law":
            return Law.of([value])
        if metric.name == "auc":
            return float(value == positive_label(options))
        return value

    return Method(name, predict, frozenset(), _takes_answers)


def _takes_answers(metric: MetricInfo) -> bool:
    return metric.gives != "ranking"


def _constant(name: str) -> Method:
    return Method(name, lambda row, metric: None, frozenset(), lambda metric: True)


def _orders_only(metric: MetricInfo) -> bool:
    """Whether ranks may stand for numbers: in correlations and shares of pairs, not in errors."""
    return metric.kind == "numbers" and metric.whole is not None


def _by_rule(name: str, rule: RuleInfo, metrics: ListLike[MetricInfo], options: Options, estimator: str) -> Method:
    own = frozenset(metric.spec for metric in metrics if rule_for(metric).name == rule.name)

    def predict(row: Answered, metric: MetricInfo) -> Any:
        asked = rule_for(metric) if metric.spec in own else rule  # with the metric's own knob
        try:
            return decide(row.laws[estimator], asked, options=options).value
        except OptionError:  # counted as no answer; the file of predictions comes with the reason
            return None

    def fits(metric: MetricInfo) -> bool:
        if rule.name == "expected-rank" and not _orders_only(metric):
            return False
        numbers = rule.gives == metric.gives == "number" and (rule.name == "probability") == (metric.name == "auc")
        same = rule.gives == metric.gives and rule.gives != "number"
        answer = rule.gives in ("label", "number") and metric.gives in ("label", "number") and not metric.must
        crossed = "probability" in (rule.name, rule_for(metric).name)
        return metric.spec in own or numbers or same or (answer and not crossed)

    return Method(name, predict, own, fits)
