"""What the tests of policies share: a draft model, drafts that tell probabilities, the lengths a policy comes to."""

from __future__ import annotations

import numpy as np

from engine_tools import EOS, V, run, toy
from wager.drafters.model import ModelDrafter
from wager.types import Draft, Sampling, Sequence


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
