"""Metrics on data sets, each with its direction and the rule that is best for it."""

from __future__ import annotations

from wager.decide.metrics.base import MetricInfo
from wager.decide.metrics.measure import difference, expected, interval, measure
from wager.decide.metrics.registry import METRICS, metric_named

__all__ = ["METRICS", "MetricInfo", "difference", "expected", "interval", "measure", "metric_named"]
