"""Decision rules by name. A new rule is one function and one entry here; docs/decide.md is made from this table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wager.decide import mbr
from wager.decide.law import Law, as_numbers
from wager.decide.metrics import MetricInfo, metric_named
from wager.decide.metrics.registry import METRICS, positive_label
from wager.decide.options import Asked, Entry, Gives, Options, check_given, entry_named
from wager.decide.rules import labels, numbers, rankings, sets
from wager.errors import OptionError
from wager.types import F64

Choose = Callable[[Law, Asked], Any]
_NONE = Options()
_IDEA = "Lukasik et al. 2403.04182"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo(Entry):
    """A rule: ``choose`` the prediction from a law that is not empty.

    ``kind`` is what the law's values must be. ``ties`` says which of equally good predictions is given.
    """

    choose: Choose
    predicts: str
    ties: str
    source: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that this rule is for."""
        return tuple(info.name for info in METRICS.values() if info.rule == self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a rule predicts for a row; ``value`` None, and why in ``reason``, where it has nothing to go by."""

    value: Any
    reason: str = ""


def decide(law: Law, rule: RuleInfo, *, options: Options = _NONE) -> Decision:
    """The rule's prediction for one law. An empty law gives ``options.fallback``, with the reason.

    Raises ``OptionError`` for an option that the rule does not take or lacks, and for values it cannot compare.
    """
    check_given(f"the rule {rule.name}", options, takes=rule.takes, must=rule.must)
    if not len(law):
        return Decision(value=options.fallback, reason="no answer could be parsed")
    return Decision(value=rule.choose(law, Asked(knob=rule.asked, options=options)))


def rule_named(spec: str) -> RuleInfo:
    """The rule ``NAME`` or ``NAME:VALUE``. Raises ``OptionError`` for an unknown one or a bad value."""
    return entry_named("rule", spec, RULES)


def rule_for(metric: MetricInfo | str) -> RuleInfo:
    """The rule that is best for a metric, with the metric's own knob."""
    info = metric_named(metric) if isinstance(metric, str) else metric
    return replace(RULES[info.rule], asked=info.asked)


def _numbers(name: str, best: Callable[[Any, Any, float], float], predicts: str, **facts: Any) -> RuleInfo:
    """A rule on numbers; where its metric has a loss per row it takes ``grid``."""
    metric = next(info for info in METRICS.values() if info.rule == name)
    facts.setdefault("takes", frozenset(("grid",)) if metric.rows is not None else frozenset())
    facts.setdefault("ties", "the lowest")
    facts.setdefault("source", _IDEA)

    def choose(law: Law, asked: Asked) -> float:
        values, grid = as_numbers(law), asked.options.grid
        if grid is None:
            return best(values, law.weights, asked.knob)
        return numbers.on_grid(values, law.weights, grid=grid, loss=_loss(metric, asked))

    return RuleInfo(
        name=name, choose=choose, kind="numbers", gives="number", predicts=predicts, knob=metric.knob, **facts
    )


def _loss(metric: MetricInfo, asked: Asked) -> Callable[[F64, F64], F64]:
    sign = 1.0 if metric.better == "lower" else -1.0
    rows = metric.rows
    assert rows is not None, metric.name
    return lambda y, x: np.asarray(sign * rows(y, x, asked), dtype=np.float64)


def _labels(name: str, choose: Choose, predicts: str, **facts: Any) -> RuleInfo:
    facts.setdefault("gives", "label")
    facts.setdefault("source", _IDEA)
    return RuleInfo(name=name, choose=choose, kind="labels", predicts=predicts, **facts)


def columns(law: Law, options: Options) -> tuple[tuple[Any, ...], F64]:
    """Names of the M items and (n, M) what each outcome holds of them.

    Of tuples the names are the indices. Of frozensets they are ``labels``, or all labels that occur, in the order of
    their text; an outcome holds 1 for each label in it. Raises ``OptionError`` for anything else.
    """
    if all(isinstance(value, tuple) for value in law.values):
        if len({len(value) for value in law.values}) != 1:
            raise OptionError(
                f"the law has vectors of different lengths, as {law.values[0]!r}: give one entry per item"
            )
        return tuple(range(len(law.values[0]))), np.array(law.values, dtype=np.float64)
    if not all(isinstance(value, frozenset) for value in law.values):
        raise OptionError(
            f"the law has the value {law.values[0]!r}: this metric needs frozensets, or tuples of numbers"
        )
    found = frozenset[Any]().union(*law.values)
    names = options.labels if options.labels is not None else tuple(sorted(found, key=lambda x: (str(x), repr(x))))
    if not found <= set(names):
        raise OptionError(f"{sorted(found - set(names), key=str)[0]!r} is not among the labels {list(names)!r}: add it")
    return names, np.array([[float(name in value) for name in names] for value in law.values]).reshape(len(law), -1)


def _set(best: Callable[[F64, F64], Any]) -> Choose:
    """Labels chosen by a mask: a frozenset for frozensets, a tuple of 0 and 1 for tuples."""

    def choose(law: Law, asked: Asked) -> Any:
        names, outcomes = columns(law, asked.options)
        mask = best(outcomes, law.weights)
        if isinstance(law.values[0], tuple):
            return tuple(int(chosen) for chosen in mask)
        return frozenset(name for name, chosen in zip(names, mask, strict=True) if chosen)

    return choose


def _ranking(best: Callable[[F64, F64, float], tuple[int, ...]]) -> Choose:
    def choose(law: Law, asked: Asked) -> tuple[Any, ...]:
        names, outcomes = columns(law, asked.options)
        return tuple(names[i] for i in best(outcomes, law.weights, asked.knob))

    return choose


def _sets(name: str, choose: Choose, gives: Gives, predicts: str, **facts: Any) -> RuleInfo:
    metric = next(info for info in METRICS.values() if info.rule == name)
    facts.setdefault("ties", "the lower index")
    facts.setdefault("source", _IDEA)
    return RuleInfo(
        name=name,
        choose=choose,
        kind="sets",
        gives=gives,
        predicts=predicts,
        knob=metric.knob,
        takes=frozenset(("labels",)),
        **facts,
    )


def _texts(metric: str) -> RuleInfo:
    def choose(law: Law, asked: Asked) -> str:
        utility = mbr.every_pair(mbr.pair_named(metric))
        return mbr.mbr(law.values, law.weights, utility=utility, candidates=asked.options.candidates)

    return RuleInfo(
        name=f"mbr-{metric}",
        choose=choose,
        kind="texts",
        gives="text",
        predicts=f"the text of the law, or of `candidates`, with the largest expected {metric}",
        ties="the first",
        source="minimum Bayes risk; 2403.04182",
        takes=frozenset(("candidates",)),
    )


def _rank(law: Law, asked: Asked) -> float:
    reference = asked.options.reference
    values = as_numbers(law)
    if reference is None:
        return numbers.mean(values, law.weights)
    return numbers.expected_rank(values, law.weights, reference=reference)


def _needed(value: Any) -> Any:
    assert value is not None, "checked by `must`"
    return value


_LABELS = frozenset(("labels",))
_FIRST = "the value that came first"

RULES: dict[str, RuleInfo] = {
    info.name: info
    for info in (
        _numbers("mean", lambda y, w, _: numbers.mean(y, w), "the mean"),
        _numbers("median", lambda y, w, _: numbers.median(y, w), "the smallest value with cumulative weight >= 1/2"),
        _numbers(
            "quantile",
            lambda y, w, tau: numbers.quantile(y, w, tau=tau),
            "the smallest value with cumulative weight >= TAU",
        ),
        _numbers(
            "percentage-median",
            lambda y, w, _: numbers.percentage_median(y, w),
            "the median under weights w / abs(y); 0 if all outcomes are 0",
        ),
        _numbers("log-mean", lambda y, w, _: numbers.log_mean(y, w), "exp(mean log(1 + y)) - 1"),
        _numbers(
            "huber",
            lambda y, w, delta: numbers.huber_point(y, w, delta=delta),
            "the root of sum w clip(y - x, -DELTA, DELTA)",
        ),
        _numbers(
            "window",
            lambda y, w, eps: numbers.window_centre(y, w, eps=eps),
            "the middle of the window of width 2 EPS with most weight",
        ),
        RuleInfo(
            name="expected-rank",
            choose=_rank,
            kind="numbers",
            gives="number",
            predicts="the expected rank among the `reference` targets; the mean where none are given",
            ties="none",
            source=_IDEA,
            takes=frozenset(("reference",)),
        ),
        RuleInfo(
            name="law-of-numbers",
            choose=lambda law, _: law if len(as_numbers(law)) else None,
            kind="numbers",
            gives="law",
            predicts="the law itself",
            ties="none",
            source="Gneiting, Raftery 2007",
        ),
        _labels(
            "mode",
            lambda law, _: labels.mode(law.values, law.weights),
            "the heaviest value; on parsed draws the vote of self-consistency",
            ties=_FIRST,
            source="Wang et al. 2203.11171",
        ),
        _labels(
            "balanced",
            lambda law, asked: labels.balanced(law.values, law.weights, priors=_needed(asked.options.priors)),
            "the largest w / prior",
            ties=_FIRST,
            takes=frozenset(("priors",)),
            must=frozenset(("priors",)),
        ),
        _labels(
            "least-cost",
            lambda law, asked: labels.least_cost(
                law.values, law.weights, labels=_needed(asked.options.labels), costs=_needed(asked.options.costs)
            ),
            "the least expected cost",
            ties="the first of `labels`",
            takes=frozenset(("labels", "costs")),
            must=frozenset(("labels", "costs")),
        ),
        _labels(
            "ordinal-median",
            lambda law, asked: labels.ordinal_median(law.values, law.weights, labels=_needed(asked.options.labels)),
            "the median place among `labels`",
            ties="the lower label",
            takes=_LABELS,
            must=_LABELS,
        ),
        _labels(
            "ordinal-mean",
            lambda law, asked: labels.ordinal_mean(law.values, law.weights, labels=_needed(asked.options.labels)),
            "the label nearest to the mean place",
            ties="the lower label",
            takes=_LABELS,
            must=_LABELS,
        ),
        _labels(
            "probability",
            lambda law, asked: labels.probability(
                law.values, law.weights, label=positive_label(asked.options), labels=asked.options.labels
            ),
            "P(y = `positive`): the second of two `labels`, or 1, where it is not given",
            gives="number",
            ties="none",
            takes=frozenset(("labels", "positive")),
        ),
        _labels("law", lambda law, _: law, "the law itself", gives="law", ties="none", source="proper scoring rules"),
        _sets(
            "likely-set", _set(sets.likely_set), "set", "the labels with probability above 1/2", ties="the smaller set"
        ),
        _sets(
            "top-k",
            _ranking(lambda y, w, k: sets.top_k(y, w, k=int(k))),
            "ranking",
            "the K likeliest labels",
        ),
        _sets(
            "recall-top-k",
            _ranking(lambda y, w, k: sets.recall_top_k(y, w, k=int(k))),
            "ranking",
            "the K labels with the largest E[y / size of y]",
        ),
        _sets(
            "f1-set",
            _set(sets.f1_set),
            "set",
            "for each size the labels with most expected F1, then the best size",
            ties="the smaller set, then the lower index",
            source="GFM, Dembczynski et al. 2011",
        ),
        _sets(
            "auc-order",
            _ranking(lambda y, w, _: rankings.auc_order(y, w)),
            "ranking",
            "all items by E[y / (positives x others)]",
        ),
        _sets("dcg-order", _ranking(lambda y, w, _: rankings.dcg_order(y, w)), "ranking", "all items by E[gain]"),
        _sets(
            "ndcg-order",
            _ranking(lambda y, w, k: rankings.ndcg_order(y, w, k=int(k) if math.isfinite(k) else None)),
            "ranking",
            "all items by E[gain / ideal DCG]",
        ),
        *(_texts(name) for name in mbr.PAIRS if name != "exact"),
    )
}
