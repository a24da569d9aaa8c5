"""Rules: what to predict, given the law of the answer and the metric. Functions of (values, weights), and a table."""

from __future__ import annotations

from wager.decide.mbr import every_pair, from_mbrs, mbr
from wager.decide.rules.labels import balanced, least_cost, mode, ordinal_mean, ordinal_median, probability
from wager.decide.rules.numbers import (
    expected_rank,
    huber_point,
    log_mean,
    mean,
    median,
    on_grid,
    percentage_median,
    quantile,
    window_centre,
)
from wager.decide.rules.rankings import auc_order, dcg_order, ndcg_order
from wager.decide.rules.registry import RULES, Decision, RuleInfo, decide, rule_for, rule_named
from wager.decide.rules.sets import f1_set, likely_set, recall_top_k, top_k

__all__ = [
    "RULES",
    "Decision",
    "RuleInfo",
    "auc_order",
    "balanced",
    "dcg_order",
    "decide",
    "every_pair",
    "expected_rank",
    "f1_set",
    "from_mbrs",
    "huber_point",
    "least_cost",
    "likely_set",
    "log_mean",
    "mbr",
    "mean",
    "median",
    "mode",
    "ndcg_order",
    "on_grid",
    "ordinal_mean",
    "ordinal_median",
    "percentage_median",
    "probability",
    "quantile",
    "recall_top_k",
    "rule_for",
    "rule_named",
    "top_k",
    "window_centre",
]
