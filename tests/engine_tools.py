"""What the engine tests share: drafters that know nothing, a driver that checks the cache after every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from wager.engine import Engine
from wager.models.toy import ToyModel
from wager.policies import Fixed
from wager.record import RunStats
from wager.types import EMPTY, Draft, Sampling, Sequence

V = 17
EOS = 3
PROMPT_LENGTHS = (1, 2, 3, 9, 30)


def kv_views(model):
    """K and V of every layer in turns, as (blocks, positions, heads, size) that can be written.

    Our kernels keep f16 as bytes, keys with the positions last.
    """
    for i, cache in enumerate(model._caches):
        data = cache.data
        if data.dtype != np.uint8:
            yield data.transpose(0, 2, 1, 3)
            continue
        half = data.view(np.float16)
        n_blocks, heads, positions, size = half.shape
        if i % 2 == 0:
            yield half.reshape(n_blocks, heads, size, positions).transpose(0, 3, 1, 2)
        else:
            yield half.transpose(0, 2, 1, 3)


class RandomTrees:
    """A deliberately bad drafter: random trees; with a model, the right token now and then."""

    name = "random"
    kind = "deterministic"
    has_laws = False

    def __init__(self, *, seed: int = 1, vocab_size: int = V, model: ToyModel | None = None) -> None:
        self._random, self._vocab_size, self._model = random.Random(seed), vocab_size, model

    def propose(self, seqs, limits):
        return [self._tree(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _tree(self, seq, limit):
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        for _ in range(self._random.randint(0, limit.n_nodes) if limit.depth else 0):
            parent = self._random.choice([-1, *(i for i, d in enumerate(depths) if d < limit.depth)])
            siblings = {tokens[i] for i, p in enumerate(parents) if p == parent}
            token = self._token(seq, tokens, parents, parent)
            if token not in siblings and len(siblings) < limit.width:
                tokens.append(token)
                parents.append(parent)
                depths.append(1 if parent < 0 else depths[parent] + 1)
        return Draft(np.array(tokens, np.int32), np.array(parents, np.int32)) if tokens else EMPTY

    def _token(self, seq, tokens, parents, parent):
        if self._model is None or self._random.random() < 0.4:
            return self._random.randrange(self._vocab_size)
        path = []
        while parent >= 0:
            path.append(tokens[parent])
            parent = parents[parent]
        return int(np.argmax(self._model.law([*seq.tokens, *reversed(path)])))

    def observe(self, seqs, drafts, verdicts, seen):
        pass

    def forget(self, seq_id):
        pass

    def seconds(self, n_tokens):
        return 0.0


@dataclass
class Outcome:
    seqs: list[Sequence]
    stats: list[RunStats]
    n_steps: int = 0
    texts: dict[int, str] = field(default_factory=dict)

    @property
    def tokens(self) -> list[list[int]]:
        return [seq.tokens for seq in self.seqs]


def toy(**options) -> ToyModel:
    return ToyModel(V, **{"n_blocks": 200, "rows_rule": "pair", **options})


def prompts(n: int = 6, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(V) for _ in range(rng.choice(PROMPT_LENGTHS))] for _ in range(n)]


def trees(n_nodes: int = 9, depth: int = 4, width: int = 3) -> Fixed:
    return Fixed(n_nodes, depth=depth, width=width)


def run(
    model: ToyModel,
    sampling: Sampling,
    *,
    batch: list[list[int]] | None = None,
    after_step: Callable[[Engine, list[Sequence]], None] | None = None,
    **engine_options,
) -> Outcome:
    """Run all prompts together to the end; the cache is checked after every step, and empty at the end."""
    engine = Engine(model, **{"eos_ids": (EOS,), **engine_options})
    batch = prompts() if batch is None else batch
    seqs = [engine.submit(prompt, sampling, seed=i) for i, prompt in enumerate(batch)]
    outcome = Outcome(seqs, [engine.stats(seq.id) for seq in seqs])
    while engine.has_work:
        engine.step()
        engine.cache.check()
        outcome.n_steps += 1
        assert outcome.n_steps < 5000, "no progress"
        if after_step is not None:
            after_step(engine, seqs)
    assert engine.cache.n_free == engine.cache.n_blocks
    return outcome
