"""What the tests of policies share: a draft model, drafts that tell probabilities, the lengths a policy comes to, and
a world that accepts drafts by coin flips and takes the time of a curve.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine_tools import EOS, V, run, toy
from wager.cost import StepCost
from wager.drafters.model import ModelDrafter
from wager.policies.cost_driven import CostDriven
from wager.types import Draft, Sampling, Sequence, Verdict, chain

AVX2 = {2: 0.013, 4: 0.018, 8: 0.031, 16: 0.046, 32: 0.084}
AMX = {2: 0.015, 4: 0.016, 8: 0.018, 16: 0.023, 32: 0.036}
N_WARM, N_STEPS = 50, 550

Chance = Callable[[int, int], float]  # (sequence, depth from 0) -> conditional acceptance


class Simulated:
    """A drafter that takes ``asking_s`` for a sequence, and ``token_s`` a token."""

    def __init__(self, token_s: float, asking_s: float = 0.0) -> None:
        self.name = "simulated"
        self.kind = "deterministic"
        self.has_laws = False
        self.asking_s = asking_s
        self.token_s = token_s

    def seconds(self, n_tokens: int) -> float:
        return self.asking_s + self.token_s * n_tokens if n_tokens else 0.0


def seconds_of(curve: dict[int, float], n_rows: int) -> float:
    return curve[min(w for w in curve if w >= n_rows)]


class World:
    """Chains drafted to the limit, accepted by coin flips; step times with 10 % noise and 5 % of steps disturbed."""

    def __init__(
        self,
        curve: dict[int, float],
        chance: Chance,
        *,
        n_seqs: int = 1,
        drafter_s: float = 1e-6,
        asking_s: float = 0.0,
        min_rows: int = 2,
        seed: int = 0,
    ) -> None:
        self.curve, self.chance, self.drafter = curve, chance, Simulated(drafter_s, asking_s)
        self.min_rows = min_rows
        self.rng = np.random.default_rng(seed)
        self.cost = StepCost(curve)
        self.cost.calibrate([(w, c, curve[w]) for w, c in self.cost.calibration_plan()])
        self.policy = CostDriven(self.cost, min_rows=min_rows, clock=lambda: 0.0)
        self.seqs = [Sequence(i, [1] * 20, 20, Sampling(), 0) for i in range(n_seqs)]
        self.widths: list[int] = []

    def expected(self, s: int, n: int) -> float:
        return 1 + float(sum(np.cumprod([self.chance(s, d) for d in range(n)])))

    def step(self, support: int = 5) -> tuple[float, float, list[int]]:
        """Expected tokens, seconds, and draft lengths of one step."""
        limits = self.policy.limits(self.seqs, self.drafter)
        drafts = [chain([0] * limit.n_nodes, support=support) for limit in limits]
        drafting_s = sum(self.drafter.seconds(len(draft)) for draft in drafts)
        drafts = self.policy.cut(self.seqs, drafts)
        lengths = [len(draft) for draft in drafts]
        n_rows = sum(max(self.min_rows, 1 + n) for n in lengths)
        seconds = seconds_of(self.curve, n_rows)
        width = self.cost.width_for(n_rows)
        self.widths.append(width)
        noise = 1 + 0.1 * self.rng.normal() + (self.rng.random() < 0.05)
        self.cost.observe(width, len(self.seqs), 20, seconds * noise)
        verdicts = []
        for s, n in enumerate(lengths):
            n_hits = next((d for d in range(n) if self.rng.random() >= self.chance(s, d)), n)
            verdicts.append(Verdict(tuple(range(n_hits)), 0))
        self.policy.observe(self.seqs, drafts, verdicts)
        tokens = sum(self.expected(s, n) for s, n in enumerate(lengths))
        return tokens, seconds + drafting_s, lengths

    def rate(self) -> float:
        steps = [self.step() for _ in range(N_STEPS)][N_WARM:]
        return sum(t for t, _, _ in steps) / sum(s for _, s, _ in steps)

    def fixed_rate(self, n: int) -> float:
        n_seqs = len(self.seqs)
        seconds = seconds_of(self.curve, n_seqs * max(self.min_rows, 1 + n)) + self.drafter.seconds(n) * n_seqs
        return sum(self.expected(s, n) for s in range(n_seqs)) / seconds

    def best_fixed_rate(self) -> float:
        most = max(self.curve) // len(self.seqs) - 1
        assert most >= 1, "the curve ends too early"
        return max(self.fixed_rate(n) for n in range(most + 1))


def sequence(seq_id: int = 0) -> Sequence:
    return Sequence(seq_id, [1], 1, Sampling(), 0)


def told(probs: list[float], parents: list[int] | None = None) -> Draft:
    """A draft, a chain unless ``parents`` say otherwise, whose model gave its nodes ``probs``."""
    n = len(probs)
    parents = list(range(-1, n - 1)) if parents is None else parents
    return Draft(
        np.arange(n, dtype=np.int32), np.array(parents, np.int32), confidence=np.array(probs, np.float32).reshape(n)
    )


def drafter(**options) -> ModelDrafter:
    return ModelDrafter(toy(seed=1, scale=6.0), n_valid_ids=V, eos_ids=frozenset((EOS,)), **options)


class Watched:
    """A policy, and the limits and lengths it came to."""

    def __init__(self, policy) -> None:
        self._policy, self.limits_seen, self.lengths = policy, [], []

    def limits(self, seqs, drafter):
        found = self._policy.limits(seqs, drafter)
        self.limits_seen += found
        return found

    def cut(self, seqs, drafts):
        found = self._policy.cut(seqs, drafts)
        self.lengths += [len(draft) for draft in found]
        return found

    def observe(self, seqs, drafts, verdicts):
        self._policy.observe(seqs, drafts, verdicts)

    def forget(self, seq_id):
        self._policy.forget(seq_id)


def lengths(policy, *, temperature: float = 0.8, **options) -> list[int]:
    watched = Watched(policy)
    run(toy(), Sampling(max_tokens=30, temperature=temperature), drafter=drafter(**options), policy=watched)
    return watched.lengths
