"""The table of docs/policies.md, from the registry: ``python -m wager.bench.policies_doc docs/policies.md``."""

from __future__ import annotations

import sys

from wager.bench.made import begin, markdown_table, rewrite, with_made
from wager.policies import POLICIES, PolicyInfo

BEGIN = begin("wager.bench.policies_doc", "docs/policies.md")
_COLUMNS = ["policy", "how much is drafted", "VALUE", "`num_draft_tokens`", "drafters", "trees", "for", "source"]


def policies_table() -> str:
    """Markdown: a row per policy."""
    return markdown_table(_COLUMNS, [_row(info) for info in POLICIES.values()])


def _row(info: PolicyInfo) -> list[str]:
    drafters = "that run a model" if info.needs_model else "any"
    return [f"`{info.name}`", info.decides, _value(info), _length(info), drafters, _trees(info), info.use, info.source]


def _value(info: PolicyInfo) -> str:
    if info.knob is not None:
        return f"{info.knob.what}, {info.knob.low:g} to {info.knob.high:g}: {info.knob.default:g}"
    return "draft tokens, as beside" if info.length is not None else "none"


def _length(info: PolicyInfo) -> str:
    if info.length is None:
        return "refused"
    return f"{info.length} if not given"


def _trees(info: PolicyInfo) -> str:
    if info.draws_tree:
        return "its own"
    if not info.takes_tree:
        return "no"
    if info.cuts:
        return "as asked for; undrawn or coupled drafts only"
    return "as asked for; of drawn drafts one path only" if info.stops else "as asked for"


def with_table(text: str) -> str:
    """The document with its table as it should be. Raises ValueError where the markers are missing."""
    return with_made(text, BEGIN, policies_table())


if __name__ == "__main__":
    rewrite(sys.argv[1], with_table)
