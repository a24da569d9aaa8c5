"""Grammars on OpenVINO: the same bits with every kind of draft, alone and in a batch of unlike grammars."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine_tools import RandomTrees
from wager.drafters.blend import Blend
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.grammar import Choice, JsonSchema, Regex, Vocabulary
from wager.models.openvino import OpenVINOModel
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.text import Text
from wager.types import Sampling

SIZES = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2}
ROW = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "sizes": SIZES},
    "required": ["name", "sizes"],
}
CONSTRAINTS = [
    JsonSchema({"type": "array", "items": ROW, "minItems": 1, "maxItems": 2}),
    Regex("(the quick (brown|red) fox[.,] ){2,4}"),
    None,
    Choice(("yes, of course", "yes", "no")),
    JsonSchema(ROW, whitespace=True),
]
SAMPLINGS = {
    "greedy": Sampling(max_tokens=50, logprobs=3),
    "sampled": Sampling(temperature=0.9, presence_penalty=0.4, max_tokens=50, logprobs=3),
}
PROMPT = [100, 101, 102, 40, 41, 5, 9, 12]


@pytest.fixture(scope="module")
def text(tiny_llama):
    return Text(tiny_llama)


@pytest.fixture(scope="module")
def model(tiny_llama):
    loaded = OpenVINOModel(tiny_llama, profile="fast", kv_cache_bytes=1 << 24, context_length=512)
    exactness = check_exact(loaded, loaded.vocab_size, budget_s=60)
    assert exactness.reason is None, exactness.reason
    loaded.max_rows, loaded.rows_rule = exactness.max_rows, exactness.rule
    return loaded


@pytest.fixture(scope="module")
def drafters(tiny_llama, text, model):
    path = tiny_llama.parent / "tiny-llama-b"
    draft_model = OpenVINOModel(path, profile="fast", kv_cache_bytes=1 << 24, context_length=512)
    n, ends = model.vocab_size, text.eos_ids
    return {
        "lookup": lambda: (Lookup(min_match=1), Fixed(5)),
        "blend": lambda: (Blend(Lookup(min_match=1)), Fixed(5)),
        "random trees": lambda: (RandomTrees(vocab_size=n), Fixed(9, depth=3, width=3)),
        "model": lambda: (ModelDrafter(draft_model, n_valid_ids=n, eos_ids=ends), Fixed(4)),
        "model tree": lambda: (ModelDrafter(draft_model, n_valid_ids=n, eos_ids=ends), Fixed(8, depth=4, width=2)),
    }


def generate(model, text, sampling, *, together, **options):
    vocabulary = Vocabulary(text, model.vocab_size)
    engine = Engine(model, eos_ids=sorted(text.eos_ids), vocabulary=vocabulary, **options)
    wanted = [replace(sampling, constraint=constraint) for constraint in CONSTRAINTS]
    seqs, stats = [], []
    for group in [wanted] if together else [[one] for one in wanted]:
        seqs += [engine.submit(PROMPT, one, seed=7) for one in group]
        stats += [engine.stats(seq.id) for seq in seqs[-len(group) :]]
        while engine.has_work:
            engine.step()
            engine.cache.check()
    return [(seq.output, seq.finish, seq.logprobs) for seq in seqs], stats


@pytest.fixture(scope="module")
def plain(model, text):
    return {name: generate(model, text, sampling, together=False)[0] for name, sampling in SAMPLINGS.items()}


def test_plain_outputs_are_what_was_asked_for(plain, text):
    n_whole = 0
    for found in plain.values():
        rows, said, free, choice, row = (text.decode(output) for output, _, _ in found)
        ends = [finish for _, finish, _ in found]
        assert choice in CONSTRAINTS[3].choices
        assert "the quick brown fox" in said or "the quick red fox" in said
        assert free != rows
        for value, finish in ((rows, ends[0]), (row, ends[4])):
            n_whole += finish == "stop"
            assert finish != "stop" or json.loads(value)
    assert n_whole > 0


@pytest.mark.parametrize(
    ("drafter", "sampling", "together"),
    [
        (drafter, sampling, True)
        for drafter in ("lookup", "blend", "random trees", "model tree")
        for sampling in SAMPLINGS
    ]
    + [("model", "sampled", False)],
)
def test_text_does_not_depend_on_drafts(model, text, plain, drafters, drafter, sampling, together):
    made, policy = drafters[drafter]()
    found, stats = generate(model, text, SAMPLINGS[sampling], together=together, drafter=made, policy=policy)
    assert found == plain[sampling]
    assert sum(s.n_accepted for s in stats) > 30
