"""The promise on the real default model: every drafter, greedy and sampled, alone and in a batch, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_tools import RandomTrees
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.models import catalog
from wager.models.openvino import load_model
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.text import Text
from wager.types import Sampling

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

QUESTIONS = [
    "Write the word serving ten times.",
    "What is the capital of France?",
    "Repeat this list three times: red, green, blue.",
    "Einstein's theory of relativity states",
    "Explain in two sentences why the sky is blue.",
    "Count from one to twenty in words.",
    "\nTranslate to German: good morning\n",
    "Write a short poem about rain and repeat its first line at the end.",
]
SAMPLINGS = {"greedy": Sampling(max_tokens=24)} | {
    f"seed {seed}": Sampling(temperature=0.8, top_p=0.95, max_tokens=24, seed=seed) for seed in (1, 2, 3)
}


@pytest.fixture(scope="module")
def loaded():
    ir_dir = catalog.resolve("smollm2-135m")
    model = load_model(ir_dir, profile="fast", threads=None, kv_cache_bytes=1 << 29)
    exactness = check_exact(model, model.vocab_size)
    assert exactness.reason is None, exactness.reason
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    text = Text(ir_dir)
    return model, text, [text.chat([{"role": "user", "content": q}]) for q in QUESTIONS]


@pytest.fixture(scope="module")
def draft_model():
    return load_model(catalog.resolve("smollm2-135m"), profile="max", threads=None, kv_cache_bytes=1 << 29)


def generate(loaded, sampling, *, together, **options):
    """Tokens and the 20 largest raw log-probabilities at every position, as exact floats."""
    model, text, prompts = loaded
    engine = Engine(model, eos_ids=sorted(text.eos_ids), n_valid_ids=text.vocab_size, **options)
    sampling = replace(sampling, logprobs=20)
    seqs = []
    for group in [prompts] if together else [[prompt] for prompt in prompts]:
        seqs += [engine.submit(prompt, sampling, seed=sampling.seed or 0) for prompt in group]
        while engine.has_work:
            engine.step()
        engine.cache.check()
    return [(seq.output, seq.logprobs) for seq in seqs]


@pytest.fixture(scope="module")
def plain(loaded):
    return {name: generate(loaded, sampling, together=False) for name, sampling in SAMPLINGS.items()}


def drafting(name, loaded, draft_model):
    n = loaded[0].vocab_size
    if name == "lookup":
        return {"drafter": Lookup(), "policy": Fixed(7)}
    if name == "random":
        return {"drafter": RandomTrees(vocab_size=n), "policy": Fixed(3)}
    width = 2 if name == "model tree" else 1
    drafter = ModelDrafter(draft_model, n_valid_ids=n, eos_ids=loaded[1].eos_ids)
    return {"drafter": drafter, "policy": Fixed(3 * width, depth=3, width=width)}


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", ["none", "lookup", "random", "model", "model tree"])
def test_batch_of_eight(loaded, draft_model, plain, drafter, sampling):
    options = {} if drafter == "none" else drafting(drafter, loaded, draft_model)
    assert generate(loaded, SAMPLINGS[sampling], together=True, **options) == plain[sampling]


@pytest.mark.parametrize("drafter", ["lookup", "model tree"])
@pytest.mark.parametrize("sampling", ["greedy", "seed 1"])
def test_alone(loaded, draft_model, plain, drafter, sampling):
    options = drafting(drafter, loaded, draft_model)
    assert generate(loaded, SAMPLINGS[sampling], together=False, **options) == plain[sampling]
