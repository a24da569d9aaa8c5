"""Answers that are best for the metric they will be judged by: laws of answers, and rules that decide on them."""

from __future__ import annotations

from wager.decide import metrics, rules
from wager.decide.law import Law
from wager.decide.options import Options
from wager.decide.predictor import MetricAwarePredictor

__all__ = ["Law", "MetricAwarePredictor", "Options", "metrics", "rules"]
