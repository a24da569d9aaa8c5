"""The tables of docs/decide.md, from the registries: ``python -m wager.bench.decide_doc docs/decide.md``."""

from __future__ import annotations

import sys

from wager.bench.made import begin, markdown_table, rewrite, with_made
from wager.decide.metrics import METRICS, MetricInfo
from wager.decide.options import Knob
from wager.decide.rules import RULES, RuleInfo

BEGIN = begin("wager.bench.decide_doc", "docs/decide.md")
_METRICS = ["metric", "what it is", "best is", "targets are", "the rule", "it is told"]
_RULES = ["rule", "predicts", "of equally good ones", "it may be told", "for the metrics", "source"]


def metrics_table() -> str:
    """Markdown: a row per metric."""
    return markdown_table(_METRICS, [_metric(info) for info in METRICS.values()])


def rules_table() -> str:
    """Markdown: a row per rule."""
    return markdown_table(_RULES, [_rule(info) for info in RULES.values()])


def _metric(info: MetricInfo) -> list[str]:
    rule = f"`{info.rule}`" + (" (a surrogate)" if info.surrogate else "")
    best = "high" if info.better == "higher" else "low"
    return [_named(info.name, info.knob), info.says, best, info.kind, rule, _options(info.takes, info.must)]


def _rule(info: RuleInfo) -> list[str]:
    metrics = ", ".join(f"`{name}`" for name in info.metrics)
    options = _options(info.takes, info.must)
    return [_named(info.name, info.knob), info.predicts, info.ties, options, metrics, info.source]


def _named(name: str, knob: Knob | None) -> str:
    if knob is None:
        return f"`{name}`"
    default = f"{knob.default:g}" if knob.default < float("inf") else "none"
    return f"`{name}:{knob.name}` (default {default})"


def _options(takes: frozenset[str], must: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" + (" (needed)" if name in must else "") for name in sorted(takes)) or "none"


def with_tables(text: str) -> str:
    """A document with its tables as they should be. Raises ValueError where the markers are missing."""
    return with_made(text, BEGIN, f"{metrics_table()}\n\n{rules_table()}")


if __name__ == "__main__":
    rewrite(sys.argv[1], with_tables)
