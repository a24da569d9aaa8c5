"""The same promise on OpenVINO itself: tiny models, profiles fast and reference, logits compared bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from engine_tools import RandomTrees, kv_views
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.models.openvino import OpenVINOModel
from wager.models.profiles import PROFILES
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.types import Sampling

PROMPTS = [
    [5, 9, 12, 40, 41, 5, 9, 12],
    [7],
    [100, 101] * 20,
    list(range(60, 130)),
    [9, 8, 7],
    [33] * 31,
    [44] * 32,
    [55, 1, 2] * 11,
]
SAMPLINGS = {"greedy": Sampling(max_tokens=24, ignore_eos=True)} | {
    f"seed {seed}": Sampling(temperature=0.8, max_tokens=24, ignore_eos=True, seed=seed, presence_penalty=0.5)
    for seed in (1, 2)
}


@pytest.fixture(scope="module", params=["fast", "reference"])
def model(request, tiny_llama):
    loaded = OpenVINOModel(tiny_llama, profile=request.param, kv_cache_bytes=1 << 24, context_length=512)
    exactness = check_exact(loaded, loaded.vocab_size, budget_s=60)
    assert exactness.reason is None, exactness.reason
    loaded.max_rows, loaded.rows_rule = exactness.max_rows, exactness.rule
    return loaded


@pytest.fixture(scope="module")
def draft_model(tiny_llama):
    path = tiny_llama.parent / "tiny-llama-b"
    return OpenVINOModel(path, profile="fast", kv_cache_bytes=1 << 24, context_length=512)


class Recorder:
    """Wraps a model; remembers the logits that every (sequence, position) was decided from."""

    def __init__(self, model):
        self._model, self.rows = model, []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def forward(self, batch):
        forward = self._model.forward(batch)
        self.rows.append(forward.logits.copy())
        return forward


def generate(model, prompts, sampling, *, together=True, after_step=None, **options):
    """Output tokens and raw logprobs (as a stand-in for all logits: 20 alternatives, exact floats)."""
    from dataclasses import replace

    sampling = replace(sampling, logprobs=20)
    engine = Engine(model, **options)
    groups = [prompts] if together else [[p] for p in prompts]
    seqs = []
    for group in groups:
        new = [engine.submit(p, sampling, seed=sampling.seed or 0) for p in group]
        seqs += new
        while engine.has_work:
            engine.step()
            engine.cache.check()
            if after_step is not None:
                after_step(engine, new)
    return [(seq.output, seq.logprobs) for seq in seqs]


@pytest.fixture(scope="module")
def plain(model):
    return {name: generate(model, PROMPTS, sampling, together=False) for name, sampling in SAMPLINGS.items()}


def drafting(name, model, draft_model):
    n = model.vocab_size
    return {
        "lookup": lambda: {"drafter": Lookup(min_match=1), "policy": Fixed(5)},
        "random": lambda: {"drafter": RandomTrees(vocab_size=n), "policy": Fixed(3)},
        "random tree": lambda: {"drafter": RandomTrees(vocab_size=n), "policy": Fixed(6, depth=3, width=3)},
        "model": lambda: {"drafter": ModelDrafter(draft_model, n_valid_ids=n), "policy": Fixed(4)},
        "model tree": lambda: {
            "drafter": ModelDrafter(draft_model, n_valid_ids=n),
            "policy": Fixed(6, depth=3, width=2),
        },
    }[name]()


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", ["lookup", "random", "random tree", "model", "model tree"])
@pytest.mark.parametrize("together", [True, False], ids=["batch of 8", "alone"])
def test_drafters(model, draft_model, plain, drafter, sampling, together):
    got = generate(model, PROMPTS, SAMPLINGS[sampling], together=together, **drafting(drafter, model, draft_model))
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in plain[sampling]]
    assert got == plain[sampling]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("options", [{}, {"n_new": 1}, {"n_new": 40}, {"max_seqs": 3}], ids=str)
def test_batches_and_budgets(model, plain, sampling, options):
    assert generate(model, PROMPTS, SAMPLINGS[sampling], **options) == plain[sampling]


def test_eviction_at_every_step(model, draft_model, plain):
    def evict(engine, seqs):
        for seq in seqs:
            if seq.finish is None:
                engine.evict(seq.id)

    options = drafting("model tree", model, draft_model)
    assert generate(model, PROMPTS, SAMPLINGS["seed 1"], after_step=evict, **options) == plain["seed 1"]
    without_prefixes = {"prefix_caching": False}
    got = generate(model, PROMPTS, SAMPLINGS["seed 1"], after_step=evict, **without_prefixes)
    assert got == plain["seed 1"]


def test_the_self_check_finds_a_model_that_depends_on_grouping(model):
    class Drifting(Recorder):
        def forward(self, batch):
            forward = self._model.forward(batch)
            n_rows = len(batch.tokens)
            return type(forward)(forward.logits + np.float32(1e-6 * (n_rows > 8)))

    exactness = check_exact(Drifting(model), model.vocab_size)
    assert exactness.reason is not None
    assert "new tokens" in exactness.reason
    assert exactness.rule == "any"


def test_the_self_check_reads_across_the_end_of_a_prompt(model):
    """With f32 K/V, reading a prompt zeroes V rows behind its end, where split has just put output tokens."""

    class Zeroing(Recorder):
        def forward(self, batch):
            forward = self._model.forward(batch)
            for b, past in enumerate(batch.past):
                n_rows = int(batch.starts[b + 1] - batch.starts[b])
                last = batch.blocks[batch.block_starts[b + 1] - 1]
                if n_rows > 1:
                    for values in list(kv_views(self._model))[1::2]:
                        values[last, (past + n_rows - 1) % 32 + 1 :] = 0
            return forward

    assert check_exact(Zeroing(model), model.vocab_size).rule == "pair"


def test_masked_trees_give_the_chain_law_up_to_numerics(tiny_llama, draft_model):
    """Profile max feeds trees under a mask: same numerics settings as reference here, so text must agree."""
    from dataclasses import replace

    masked = OpenVINOModel(tiny_llama, profile="reference", kv_cache_bytes=1 << 24, context_length=512)
    plain_runs = generate(masked, PROMPTS, SAMPLINGS["greedy"])
    masked = OpenVINOModel(
        tiny_llama,
        profile=replace(PROFILES["reference"], masks=True, rules=()),
        kv_cache_bytes=1 << 24,
        context_length=512,
    )
    for name in ("random tree", "model tree"):
        got = generate(masked, PROMPTS, SAMPLINGS["greedy"], **drafting(name, masked, draft_model))
        for (tokens, logprobs), (plain_tokens, plain_logprobs) in zip(got, plain_runs, strict=True):
            assert tokens == plain_tokens
            for a, b in zip(logprobs, plain_logprobs, strict=True):
                assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
