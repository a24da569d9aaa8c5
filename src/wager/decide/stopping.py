"""When to stop drawing: another batch must be expected to lower the loss by more than its draws cost.

What n draws leave open is which law they came from. The Bayesian bootstrap (Rubin 1981) gives laws that are as likely:
Dirichlet weights with the counts of the distinct answers as parameters. Under each of them the prediction made now has
some regret against the best one; its mean is what knowing the law would be worth. For the squared error it is s^2 / n,
and m draws more leave s^2 / (n + m): of what knowing the law is worth they bring the share m / (n + m). That share is
taken for every metric. Blind spot: answers that were never drawn have no weight, so ``least`` draws come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wager.decide.law import Law
from wager.decide.metrics import metric_named
from wager.decide.options import Asked, Options
from wager.decide.rules import RuleInfo, decide, rule_for
from wager.errors import OptionError
from wager.types import F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """An ``estimate.Enough``: stop where the next draws are expected to gain less than ``price`` each.

    ``price`` is in units of the metric's loss on one row (rmse: squared error). Raises OptionError for a price that is
    not positive, and for metrics that have no loss on one row.
    """

    metric: str
    price: float
    options: Options = field(default_factory=Options)
    least: int = 8
    n_laws: int = 64

    def __post_init__(self) -> None:
        if not self.price > 0:
            raise OptionError(f"`price` is {self.price}: give a positive number, what a draw may cost in loss")
        if metric_named(self.metric).rows is None:
            raise OptionError(f"`price` cannot be weighed for {self.metric}, which has no loss on one row: give `n`")

    def __call__(self, law: Law, n_drawn: int, n_more: int) -> bool:
        return n_drawn >= self.least and self.gain(law, n_drawn, n_more) < self.price * n_more

    def gain(self, law: Law, n_drawn: int, n_more: int) -> float:
        """Loss that ``n_more`` draws beyond ``n_drawn`` are expected to take off; infinite where none has a value."""
        n_read = n_drawn * law.covered
        if not len(law) or n_read == 0:
            return float("inf")
        rule = rule_for(self.metric)
        weights = np.random.default_rng(0).dirichlet(np.maximum(law.weights * n_read, 1e-9), self.n_laws)
        regrets = [self._regret(law, w / w.sum(), rule) for w in weights]
        return float(np.mean(regrets)) * n_more / (n_drawn + n_more)

    def _regret(self, law: Law, weights: F64, rule: RuleInfo) -> float:
        """What the prediction for ``law`` loses against the best one, were these the weights."""
        options = self.options.only(rule.takes)
        other = Law(values=law.values, weights=weights)
        made, best = (decide(each, rule, options=options).value for each in (law, other))
        return self._loss(other, made) - self._loss(other, best)

    def _loss(self, law: Law, prediction: object) -> float:
        metric = metric_named(self.metric)
        assert metric.rows is not None, "checked when it was made"
        rows = metric.rows(law.values, [prediction] * len(law), Asked(knob=metric.asked, options=self.options))
        return float(law.weights @ rows) * (1 if metric.better == "lower" else -1)
