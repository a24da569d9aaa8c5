"""The replay that scores sets of modules says what drafting with them really gets right."""

from __future__ import annotations

import numpy as np
import pytest

from deep_tools import batch_of, make_deep, opened
from engine_tools import run
from wager.drafters.drawing import Drawing
from wager.drafters.scratch import ScratchDrafter
from wager.errors import CapacityError, OptionError
from wager.models import skipping
from wager.replay import SPAN, Replay, Written
from wager.tune_skip import Costs, measure_costs, search, tune
from wager.types import Limits, Sampling, Sequence

PROMPTS = [[5, 9, 12, 40, 41, 5, 9, 12], list(range(60, 130)), [100, 101] * 20]
COSTS = Costs((10.0, 11.0, 12.0, 13.0, 14.0), draft_s=9.0, attention_s=0.3, mlp_s=0.3)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return opened(make_deep(tmp_path_factory.mktemp("deep")), "reference")


@pytest.fixture(scope="module")
def texts(model):
    done = run(model, Sampling(max_tokens=33, ignore_eos=True), batch=PROMPTS)
    return [Written(seq.tokens, seq.n_prompt) for seq in done.seqs]


def drafted(model, variant, text, start):
    """What a drafter with a ``variant`` of the model drafts where the target has read ``start`` tokens of a text."""
    table = list(range(40, 40 + len(text.tokens) // 32 + 2))
    model.forward(batch_of(text.tokens[:start], 0, table))

    class Lender:
        def scratch(self, seq, n_rows):
            return table

    drafter = ScratchDrafter(variant, n_valid_ids=model.vocab_size, drawing=Drawing(), name="skip")
    drafter.attach(Lender())
    seq = Sequence(0, text.tokens[: start + 1], text.n_prompt, Sampling(), 0, n_cached=start)
    return drafter.propose([seq], [Limits(SPAN, SPAN)])[0].tokens.tolist()


@pytest.mark.parametrize("modules", [(), (2, 3), (2, 4, 6, 8), (3, 5, 8)])
def test_replay_is_what_drafting_gets_right(model, texts, modules):
    replay = Replay(model, texts)
    accepted = replay.accepted(frozenset(modules))
    assert len(accepted) == len(texts) * 8
    want = []
    variant = model.variant(lambda graph: skipping.skip(graph, modules))
    for text in texts:
        for start in range(text.n_prompt - 1, len(text.tokens) - SPAN, SPAN):
            draft = drafted(model, variant, text, start)
            right = np.array(draft) == np.array(text.tokens[start + 1 : start + 1 + SPAN])
            want.append(int(np.cumprod(right).sum()))
    assert accepted.tolist() == want
    assert (accepted == SPAN).all() == (not modules)
    assert np.array_equal(Replay(model, texts).accepted(frozenset(modules)), accepted)
    assert (replay.matchness(frozenset(modules)) == 1) == (not modules)


def test_measures_are_those_of_the_modules(model, texts):
    """Numpy on the outputs of one text; a module whose result is large turns the stream more."""
    confidences, cosines = Replay(model, texts).measures()
    assert confidences.shape == (model.n_modules,)
    assert cosines.shape == (model.n_modules // 2,)
    assert ((confidences > 0) & (confidences < 1)).all()
    assert ((cosines > -1) & (cosines < 1)).all()
    assert cosines[1:-1].min() > cosines[[0, -1]].max() - 0.2


def test_the_same_seed_finds_the_same_set(model, texts):
    found = [search(Replay(model, texts), COSTS, method="swift", budget_s=60, seed=7)[0] for _ in range(2)]
    assert found[0].key >= (True, 0.0)
    alternating = search(Replay(model, texts), COSTS, method="swift", budget_s=0)[0]
    assert all(each.key >= alternating.key for each in found)
    assert found[0].modules == found[1].modules


def test_costs_fall_with_what_is_left_out_and_tune_says_what_it_found(model, texts):
    costs = measure_costs(model)
    assert len(costs.target_s) == SPAN + 1
    assert 0 < costs.draft(frozenset(range(2, 10))) <= costs.draft(frozenset({2}))
    found = tune(model, texts, method="conf", budget_s=20)
    assert found["n_modules"] == 12
    assert found["skip"]
    assert 0 <= found["n_accepted"] <= found["n_draft"] <= SPAN
    assert found["cost_ratio"] > 0
    with pytest.raises(OptionError, match="`method` is 'bayes'"):
        tune(model, texts, method="bayes", budget_s=1)


def test_too_little_memory_is_said(tmp_path, texts):
    small = opened(make_deep(tmp_path), kv_cache_bytes=24 * 6 * 2 * 2 * 32 * 32 * 2)
    assert small.n_blocks == 24
    with pytest.raises(CapacityError, match="fewer prompts or more memory"):
        Replay(small, texts)
