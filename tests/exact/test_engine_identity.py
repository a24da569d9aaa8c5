"""Text does not depend on the drafter, the batch, the budget, eviction or memory: token by token, on the toy model."""

from __future__ import annotations

import random

import pytest

from engine_tools import RandomTrees, V, prompts, run, toy, trees
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.policies import Fixed
from wager.types import Sampling

SAMPLINGS = {
    "greedy": Sampling(max_tokens=40),
    "sampled": Sampling(temperature=0.8, max_tokens=40),
    "everything": Sampling(
        temperature=1.2, top_p=0.9, top_k=12, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.3,
        frequency_penalty=0.2, logit_bias={5: -2.0}, min_tokens=7, max_tokens=40, stop_token_ids=(9,), logprobs=2,
    ),
}  # fmt: skip


def drafter_named(name, model):
    if name == "lookup":
        return {"drafter": Lookup(min_match=1), "policy": Fixed(6)}
    if name == "random":
        return {"drafter": RandomTrees(), "policy": Fixed(4)}
    if name == "random trees":
        return {"drafter": RandomTrees(model=model), "policy": trees()}
    seed, width = {"model": (0, 1), "other model": (1, 1), "model tree": (0, 3), "other model tree": (1, 3)}[name]
    draft_model = toy(seed=seed, scale=3.0 if seed == 0 else 2.0)
    drafter = ModelDrafter(draft_model, n_valid_ids=V, eos_ids=frozenset((3,)))
    return {"drafter": drafter, "policy": Fixed(4 * width, depth=4, width=width)}


def evict_some(seed):
    rng = random.Random(seed)

    def after_step(engine, seqs):
        for seq in seqs:
            if seq.finish is None and rng.random() < 0.3:
                engine.evict(seq.id)

    return after_step


def evict_all(engine, seqs):
    for seq in seqs:
        if seq.finish is None:
            engine.evict(seq.id)


@pytest.fixture(scope="module", params=["split", "pair"])
def rule(request):
    return request.param


@pytest.fixture(scope="module")
def plain(rule):
    """Solo runs: the seed of a sequence is its place in the batch."""
    texts = {}
    for name, sampling in SAMPLINGS.items():
        texts[name] = [run_one(toy(rows_rule=rule), prompt, sampling, seed=i) for i, prompt in enumerate(prompts())]
    return texts


def run_one(model, prompt, sampling, *, seed):
    engine = Engine(model, eos_ids=(3,))
    seq = engine.submit(prompt, sampling, seed=seed)
    while engine.has_work:
        engine.step()
    return seq.tokens


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "drafter", ["lookup", "random", "random trees", "model", "other model", "model tree", "other model tree"]
)
def test_every_drafter_gives_the_plain_text(plain, rule, sampling, drafter):
    model = toy(rows_rule=rule)
    outcome = run(model, SAMPLINGS[sampling], **drafter_named(drafter, model))
    assert outcome.tokens == plain[sampling]
    assert sum(stats.n_drafted for stats in outcome.stats) > 20


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "options",
    [
        {"n_new": 1},
        {"n_new": 3},
        {"after_step": evict_some(0)},
        {"after_step": evict_all},
        {"max_seqs": 2},
        {"prefix_caching": False},
    ],
    ids=["one_new", "three_new", "evict_some", "evict_all", "two_seqs", "no_prefix_caching"],
)
def test_plain_text_does_not_depend_on_scheduling(plain, rule, sampling, options):
    assert run(toy(rows_rule=rule), SAMPLINGS[sampling], **options).tokens == plain[sampling]


@pytest.mark.parametrize("model_options", [{"max_rows": 6}, {"n_blocks": 40}, {"block_size": 8}], ids=str)
def test_trees_with_little_room(plain, rule, model_options):
    model = toy(rows_rule=rule, **model_options)
    for after_step in (None, evict_some(1), evict_all):
        options = drafter_named("random trees", model)
        assert run(model, SAMPLINGS["sampled"], after_step=after_step, **options).tokens == plain["sampled"]


def test_memory_that_is_too_small_for_all_evicts_and_finishes(rule, monkeypatch):
    evicted = []
    evict = Engine.evict
    monkeypatch.setattr(Engine, "evict", lambda engine, seq_id: (evicted.append(seq_id), evict(engine, seq_id)))
    sampling = Sampling(temperature=0.8, max_tokens=40, ignore_eos=True)
    expected = run(toy(rows_rule=rule), sampling).tokens
    assert not evicted
    small = toy(rows_rule=rule, n_blocks=42)
    assert run(small, sampling).tokens == expected
    assert evicted
    assert run(small, sampling, **drafter_named("random trees", small)).tokens == expected


def test_logprobs_do_not_depend_on_the_drafter():
    sampling = SAMPLINGS["everything"]
    plain_run = run(toy(), sampling)
    model = toy()
    drafted = run(model, sampling, **drafter_named("random trees", model))
    for a, b in zip(plain_run.seqs, drafted.seqs, strict=True):
        assert a.logprobs == b.logprobs
        assert [entry.token for entry in a.logprobs] == a.output
