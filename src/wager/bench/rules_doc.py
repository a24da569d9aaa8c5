"""The table of docs/rules.md, from the registry: ``python -m wager.bench.rules_doc docs/rules.md`` writes it anew."""

from __future__ import annotations

import sys

from wager.bench.made import begin, markdown_table, rewrite, with_made
from wager.types import DraftKind
from wager.verify import LOSSY, RULES, RuleInfo, rule_named
from wager.verify.base import ANY_KIND

BEGIN = begin("wager.bench.rules_doc", "docs/rules.md")
_COLUMNS = ["rule", "needs", "a model drafts", "lossless", "acceptance", "when to use it", "source"]
_KINDS: dict[DraftKind, str] = {
    "coupled": "draws with the walk's noise",
    "iid": "i.i.d. draws",
    "without_replacement": "draws without replacement",
    "deterministic": "undrawn tokens",
}


def rules_table() -> str:
    """Markdown: a row per rule, lossless ones first."""
    rows = [
        [f"`{info.name}`", _needs(info), _KINDS[info.draws], _lossless(info), info.acceptance, info.use, info.source]
        for info in RULES.values()
    ]
    for name, family in LOSSY.items():
        info = rule_named(name)
        knob = f"X is {family.knob}: default {family.default:g}, exact at {family.neutral:g}"
        about = [_needs(info), _KINDS[info.draws], _lossless(info), knob, family.use, family.source]
        rows.append([f"`{name}:X`", *about])
    return markdown_table(_COLUMNS, rows)


def _needs(info: RuleInfo) -> str:
    parts = [] if info.trees else ["one path"]
    if info.kinds == ANY_KIND:
        parts.append("any draft")
    else:
        drawn = [_KINDS[kind] for kind in _KINDS if kind in info.kinds and kind != "deterministic"]
        choices = [" or ".join(drawn) + " with their law"] if drawn else []
        choices += [_KINDS["deterministic"]] if "deterministic" in info.kinds else []
        parts.append(", or ".join(choices))
    if info.max_children:
        parts.append(f"at most {info.max_children} children")
    return "; ".join(parts)


def _lossless(info: RuleInfo) -> str:
    if info.coupled:
        return "same text"
    return "same law" if info.lossless else "no"


def with_table(text: str) -> str:
    """A document with its table as it should be. Raises ValueError where the markers are missing."""
    return with_made(text, BEGIN, rules_table())


if __name__ == "__main__":
    rewrite(sys.argv[1], with_table)
