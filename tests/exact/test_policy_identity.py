"""A policy fed with arbitrary step times changes how much is drafted, never the text."""

from __future__ import annotations

import random

import pytest

from engine_tools import RandomTrees, run, toy
from wager.cost import StepCost
from wager.drafters.lookup import Lookup
from wager.policies import CostDriven
from wager.types import Sampling

SAMPLINGS = {
    "greedy": Sampling(max_tokens=40),
    "sampled": Sampling(max_tokens=40, temperature=0.7, top_p=0.9, repetition_penalty=1.1),
}


class _Moody(CostDriven):
    """Measures nonsense: every step another time for a random width. Remembers how much it let through."""

    def __init__(self, seed: int, **options) -> None:
        cost = StepCost([2, 4, 8, 16, 32, 64], switch_s=0.003)
        super().__init__(cost, **options)
        self._random = random.Random(seed)
        self.fed: set[int] = set()

    def cut(self, seqs, drafts):
        cut = super().cut(seqs, drafts)
        assert all(len(short) <= len(draft) for short, draft in zip(cut, drafts, strict=True))
        self.fed.update(map(len, cut))
        return cut

    def observe(self, seqs, drafts, verdicts):
        super().observe(seqs, drafts, verdicts)
        self.cost.observe(self._random.choice(self.cost.widths), len(seqs), 50, self._random.uniform(0.001, 0.05))


class _TimedTrees(RandomTrees):
    def seconds(self, n_tokens):
        return 1e-4 * n_tokens


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["lookup", "trees"])
def test_the_text_does_not_depend_on_the_policy(kind: str, seed: int, sampling: str) -> None:
    plain = run(toy(), SAMPLINGS[sampling]).tokens
    model = toy()
    policy = _Moody(seed) if kind == "lookup" else _Moody(seed, width=3, max_nodes=12)
    drafter = Lookup() if kind == "lookup" else _TimedTrees(model=model)
    assert run(model, SAMPLINGS[sampling], drafter=drafter, policy=policy).tokens == plain
    assert len(policy.fed) > 1, "the policy never changed its mind: the test says nothing"
