"""Acceptance rules: what a draft and the target's rows make of a round. Pure functions of arrays and noise."""

from __future__ import annotations

from wager.verify.base import Rows, Rule, RuleInfo
from wager.verify.dice import Dice
from wager.verify.registry import LOSSY, RULES, check_rule_takes, check_width, rule_named
from wager.verify.walk import walk

__all__ = [
    "LOSSY",
    "RULES",
    "Dice",
    "Rows",
    "Rule",
    "RuleInfo",
    "check_rule_takes",
    "check_width",
    "rule_named",
    "walk",
]
