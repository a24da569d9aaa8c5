"""Policies change how much is drafted, never the text: each by its name, and one fed with arbitrary step times."""

from __future__ import annotations

import random

import pytest

from engine_tools import EOS, RandomTrees, V, prompts, run, toy
from wager.cost import StepCost
from wager.drafters.drawing import Drawing
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.policies import POLICIES, CostDriven, Tree, policy_named
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


NAMED = [*POLICIES, "threshold:0.1", "adaedl:0.5", "heterospec:2", "delayed:2", "fixed:0", "heuristic:9"]
TREES = [Tree(), Tree(3, 1, 2)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("name", "tree"), [(n, t) for n in NAMED for t in TREES if t.width == 1 or policy_named(n).takes_tree]
)
def test_every_policy_leaves_the_text_of_plain_decoding(name: str, tree: Tree, temperature: float) -> None:
    """Six prompts together and one alone, from a draft model that is often right."""
    info, sampling = policy_named(name), Sampling(max_tokens=30, temperature=temperature)
    plain = run(toy(), sampling).tokens
    drawing = Drawing("coupled", trunk=tree.trunk, levels=tree.levels)
    drafter = ModelDrafter(toy(scale=6.0), n_valid_ids=V, eos_ids=frozenset((EOS,)), drawing=drawing)
    for batch in (None, prompts()[:1]):
        policy = info.policy(n_tokens=None, tree=tree, cost=StepCost([2, 4, 8, 16, 32, 64]))
        outcome = run(toy(), sampling, batch=batch, drafter=drafter, policy=policy)
        drafter.check()
        assert outcome.tokens == plain[: len(outcome.tokens)]
        n_accepted = sum(stats.n_accepted for stats in outcome.stats)
        assert n_accepted > (-1 if name == "fixed:0" else 0)
