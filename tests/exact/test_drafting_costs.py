"""A policy that goes by time learns what its drafter costs, from drafts of one token too, and stops where that is more.

Times are those of a clock that the models advance.
"""

from __future__ import annotations

import pytest

from engine_tools import V, run, toy
from wager.cost import StepCost
from wager.drafters import model as module
from wager.drafters.model import ModelDrafter
from wager.models.toy import ToyModel
from wager.policies import CostDriven
from wager.policies.delayed import Delayed
from wager.types import Sampling

SAMPLING = Sampling(max_tokens=60, ignore_eos=True)


class _Slow(ToyModel):
    """Every forward takes ``seconds`` of a clock of its own."""

    now = 0.0

    def __init__(self, seconds: float) -> None:
        super().__init__(V, n_blocks=200)
        self._seconds = seconds

    def forward(self, batch):
        self.now += self._seconds
        return super().forward(batch)


def _cost() -> StepCost:
    cost = StepCost([2, 4, 8])
    cost.calibrate([(w, c, 0.010 + 0.0005 * w) for w, c in cost.calibration_plan()])
    return cost


@pytest.mark.parametrize("policy", [CostDriven, lambda cost: Delayed(cost, width=1)], ids=["cost", "delayed"])
@pytest.mark.parametrize(("draft_s", "drafts"), [(1e-5, True), (1.0, False)])
def test_a_drafter_that_costs_more_than_it_gains_is_let_be(monkeypatch, policy, draft_s: float, drafts: bool) -> None:
    model = _Slow(draft_s)
    monkeypatch.setattr(module.time, "perf_counter", lambda: model.now)
    drafter = ModelDrafter(model, n_valid_ids=V)
    outcome = run(toy(), SAMPLING, batch=[[1, 2, 3]], drafter=drafter, policy=policy(_cost()))
    assert drafter.seconds(1) == pytest.approx(draft_s, rel=1e-3)
    stats = outcome.stats[0]
    assert (stats.n_drafted > stats.n_forwards) == drafts, (stats.n_drafted, stats.n_forwards)
    assert drafts or stats.n_drafted < 5
    assert outcome.tokens == run(toy(), SAMPLING, batch=[[1, 2, 3]]).tokens
