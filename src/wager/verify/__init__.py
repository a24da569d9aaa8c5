"""Acceptance rules by name. A new rule is one file and one line here."""

from __future__ import annotations

from wager.errors import OptionError
from wager.verify.base import Rows, Rule, RuleInfo
from wager.verify.walk import walk

RULES: dict[str, RuleInfo] = {
    "walk": RuleInfo(walk, coupled=True),
}


def rule_named(name: str) -> RuleInfo:
    """The rule of that name. Raises ``OptionError`` for an unknown one."""
    if name not in RULES:
        raise OptionError(f"`verify` is {name!r}: give one of {', '.join(sorted(RULES))}")
    return RULES[name]


__all__ = ["RULES", "Rows", "Rule", "RuleInfo", "rule_named", "walk"]
