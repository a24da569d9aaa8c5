"""The step loop on the toy model: terminal conditions, limits, failures, cancelling."""

from __future__ import annotations

import pytest

from engine_tools import EOS, RandomTrees, V, prompts, run, toy, trees
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.errors import CapacityError, OptionError, PromptError, VocabularyError
from wager.models.toy import ToyModel
from wager.policies import Fixed
from wager.types import Sampling


class Oracle(RandomTrees):
    """Drafts the known continuation, ``past`` its end too."""

    def __init__(self, prompt, continuation):
        super().__init__()
        self._known = [*prompt, *continuation]

    def _tree(self, seq, limit):
        from wager.types import chain

        known = self._known[len(seq.tokens) : len(seq.tokens) + limit.n_nodes]
        return chain(known)


def solo(prompt, sampling, **options):
    return run(toy(), sampling, batch=[prompt], **options)


def oracle(prompt, sampling, n=8):
    longer = solo(prompt, Sampling(temperature=sampling.temperature, max_tokens=60, ignore_eos=True)).seqs[0].output
    return {"drafter": Oracle(prompt, longer), "policy": Fixed(n)}


PROMPT = [1, 2, 1, 2, 1]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_max_tokens_is_exact_however_much_is_accepted(n):
    sampling = Sampling(max_tokens=n, ignore_eos=True)
    outcome = solo(PROMPT, sampling, **oracle(PROMPT, sampling))
    assert outcome.seqs[0].n_output == outcome.stats[0].n_tokens == n
    assert outcome.seqs[0].finish == "length"
    assert outcome.n_steps < n or n < 3


@pytest.mark.parametrize("at", [0, 2, 4, 7])
def test_a_stop_id_accepted_inside_the_draft_ends_the_text_there(at):
    free = solo(PROMPT, Sampling(temperature=0.8, max_tokens=20, ignore_eos=True)).seqs[0].output
    stop = free[at]
    sampling = Sampling(temperature=0.8, max_tokens=20, ignore_eos=True, stop_token_ids=(stop,), logprobs=1)
    outcome = solo(PROMPT, sampling, **oracle(PROMPT, sampling, n=12))
    seq = outcome.seqs[0]
    assert seq.output == free[: free.index(stop) + 1]
    assert seq.finish == "stop"
    assert len(seq.logprobs) == seq.n_output == outcome.stats[0].n_tokens


def test_eos_is_ignored_only_when_asked():
    greedy = Sampling(max_tokens=200)
    model = toy(banned=[t for t in range(V) if t != EOS])
    assert run(model, greedy, batch=[[1]]).seqs[0].output == [EOS]
    assert run(model, Sampling(max_tokens=5, ignore_eos=True), batch=[[1]]).seqs[0].output == [EOS] * 5


def test_min_tokens_holds_off_every_end():
    free = solo(PROMPT, Sampling(max_tokens=30)).seqs[0]
    held = solo(PROMPT, Sampling(max_tokens=30, min_tokens=30, stop_token_ids=(1, 2))).seqs[0]
    assert held.n_output == 30
    assert not set(held.output[:29]) & {EOS, 1, 2}
    assert free.output != held.output


def test_context_end_finishes_with_length():
    model = toy(context_length=16)
    sampling = Sampling(max_tokens=100, ignore_eos=True)
    for options in ({}, {"drafter": RandomTrees(model=model), "policy": trees()}):
        seq = run(model, sampling, batch=[PROMPT], **options).seqs[0]
        assert len(seq.tokens) == 16
        assert seq.finish == "length"


@pytest.mark.parametrize(
    ("tokens", "error"), [([], PromptError), ([V], PromptError), ([-1], PromptError), ([1] * 16, PromptError)]
)
def test_prompts_that_cannot_run_are_refused(tokens, error):
    engine = Engine(toy(context_length=16))
    with pytest.raises(error):
        engine.submit(tokens, Sampling(), seed=0)
    assert not engine.has_work


def test_a_request_that_never_fits_is_refused():
    with pytest.raises(CapacityError, match="kv_cache_gb"):
        Engine(toy(n_blocks=20)).submit([1], Sampling(max_tokens=100), seed=0)


@pytest.mark.parametrize("options", [{"logit_bias": {V: 1.0}}, {"stop_token_ids": (V,)}])
def test_ids_outside_the_vocabulary_are_refused(options):
    with pytest.raises(OptionError):
        Engine(toy()).submit([1], Sampling(**options), seed=0)


def test_padded_ids_never_come_out():
    model = toy()
    engine = Engine(model, n_valid_ids=5)
    seq = engine.submit([1, 2], Sampling(temperature=3.0, max_tokens=60), seed=0)
    while engine.has_work:
        engine.step()
    assert max(seq.output) < 5


def test_a_failing_forward_leaves_every_sequence_as_it_was():
    model, sampling = toy(), Sampling(temperature=0.8, max_tokens=20)
    expected = run(toy(), sampling, drafter=RandomTrees(model=model), policy=trees()).tokens
    engine = Engine(model, eos_ids=(EOS,), drafter=RandomTrees(model=model), policy=trees())
    seqs = [engine.submit(prompt, sampling, seed=i) for i, prompt in enumerate(prompts())]
    forward, n = model.forward, 0

    def failing(batch):
        nonlocal n
        n += 1
        if n % 3 == 0:
            raise MemoryError("made up")
        return forward(batch)

    model.forward = failing
    n_failed = 0
    while engine.has_work:
        before = [(list(s.tokens), s.n_cached) for s in seqs]
        try:
            engine.step()
        except MemoryError:
            n_failed += 1
            assert [s.tokens for s in seqs] == [tokens for tokens, _ in before]
            assert all(seq.n_cached >= 0 for seq in seqs)
        engine.cache.check()
    assert n_failed > 3
    assert [s.tokens for s in seqs] == expected


def test_cancelling_frees_everything_and_disturbs_nobody():
    sampling = Sampling(temperature=0.8, max_tokens=30)
    expected = run(toy(), sampling).tokens
    engine = Engine(toy(), eos_ids=(EOS,), drafter=Lookup(min_match=1), policy=Fixed(4))
    n_free = engine.cache.n_free
    seqs = [engine.submit(prompt, sampling, seed=i) for i, prompt in enumerate(prompts())]
    for step in range(1000):
        victim = engine.submit(prompts(1, seed=step)[0], sampling, seed=99)
        if engine.has_work:
            engine.step()
        engine.cancel(victim.id)
        engine.cache.check()
    while engine.has_work:
        engine.step()
    assert [seq.tokens for seq in seqs] == expected
    assert engine.cache.n_free == n_free
    engine.cancel(12345)  # unknown ids are fine


def test_the_second_same_prompt_is_read_from_the_cache():
    model = toy()
    engine = Engine(model)
    sampling = Sampling(max_tokens=3)
    outputs = []
    for _ in range(2):
        seq = engine.submit([1, 2, 3] * 11, sampling, seed=0)
        while engine.has_work:
            engine.step()
        outputs.append(seq.output)
    assert outputs[0] == outputs[1]
    assert engine.cache.n_prefix_hits == 33 - 1


def test_n_samples_differ_by_sample_index_only():
    engine = Engine(toy())
    sampling = Sampling(temperature=1.0, max_tokens=12)
    seqs = [engine.submit([1, 2, 3], sampling, seed=7, sample=i % 3) for i in range(6)]
    while engine.has_work:
        engine.step()
    assert seqs[0].output == seqs[3].output
    assert len({tuple(seq.output) for seq in seqs}) == 3


def test_events_hold_every_token_once():
    model = toy()
    engine = Engine(model, eos_ids=(EOS,), drafter=RandomTrees(model=model), policy=trees())
    seqs = [engine.submit(p, Sampling(temperature=0.8, max_tokens=25), seed=i) for i, p in enumerate(prompts())]
    got = {seq.id: [] for seq in seqs}
    finishes = {}
    while engine.has_work:
        for event in engine.step():
            got[event.seq_id] += event.tokens
            assert 0 <= event.n_drafted <= len(event.tokens)
            assert event.seq_id not in finishes
            if event.finish:
                finishes[event.seq_id] = event.finish
    assert [got[seq.id] for seq in seqs] == [seq.output for seq in seqs]
    assert finishes == {seq.id: seq.finish for seq in seqs}


def test_an_idle_step_does_nothing():
    model = toy()
    assert Engine(model).step() == []
    assert model.n_forwards == 0


def test_engines_over_one_model_may_take_turns():
    """What the other engine wrote over is read again, not found."""
    sampling = Sampling(temperature=0.8, max_tokens=20, ignore_eos=True)
    batch = [[1, 2, 3] * 6, [4, 5] * 7]
    expected = [run(toy(), sampling, batch=[prompt]).tokens[0] for prompt in batch]
    model = toy(n_blocks=40)
    engines = [Engine(model) for _ in batch]
    for _ in range(2):  # the second time a prefix would be found
        seqs = [e.submit(p, sampling, seed=0) for e, p in zip(engines, batch, strict=True)]
        while any(engine.has_work for engine in engines):
            for engine in engines:
                engine.step()
                engine.cache.check()
        assert [seq.tokens for seq in seqs] == expected


@pytest.mark.parametrize(
    "options",
    [
        {"logit_bias": {EOS: float("inf")}, "min_tokens": 2},
        {"logit_bias": {t: float("-inf") for t in range(V)}},
        {"logit_bias": {t: float("-inf") for t in range(V) if t != EOS}, "min_tokens": 1},
    ],
)
def test_options_that_leave_no_token_are_refused_before_they_can_stop_others(options):
    engine = Engine(toy(), eos_ids=(EOS,))
    other = engine.submit([1, 2], Sampling(max_tokens=5, ignore_eos=True), seed=0)
    with pytest.raises(OptionError, match="no token is left"):
        engine.submit([1, 2], Sampling(temperature=1.0, **options), seed=0)
    while engine.has_work:
        engine.step()
    assert other.n_output == 5


def test_one_step_is_one_forward():
    model = toy()
    outcome = run(model, Sampling(max_tokens=20), drafter=Lookup(min_match=1), policy=Fixed(4))
    assert model.n_forwards == outcome.n_steps


def test_a_prefix_found_after_eviction_keeps_to_the_widest_forward():
    """The prompt ends one token after a shared block, so this token is fed with the one before it: a row more."""
    model, sampling = toy(rows_rule="split", max_rows=8), Sampling(max_tokens=30, ignore_eos=True)
    expected = run(toy(rows_rule="split"), sampling, batch=[[1, 2, 3, 4, 5]]).tokens
    engine = Engine(model)
    seq = engine.submit([1, 2, 3, 4, 5], sampling, seed=0)
    while seq.n_output < 20:
        engine.step()
    engine.evict(seq.id)
    for block, (key, _) in list(engine.cache._key_of.items()):
        if key[0]:  # all but the first block of the text are given to others meanwhile
            del engine.cache._block_of[key], engine.cache._key_of[block]
    while engine.has_work:
        engine.step()  # the toy asserts the number of rows
    assert [seq.tokens] == expected


def test_a_failing_observer_does_not_make_a_finished_sequence_run_again():
    class Failing(Lookup):
        def observe(self, seqs, drafts, verdicts, seen):
            raise ZeroDivisionError("made up")

    engine = Engine(toy(), drafter=Failing(), policy=Fixed(2))
    seq = engine.submit([1, 2, 3], Sampling(max_tokens=1, ignore_eos=True), seed=0)
    with pytest.raises(ZeroDivisionError):
        engine.step()
    assert (seq.n_output, seq.finish) == (1, "length")
    assert not engine.has_work
    assert engine.cache.n_free == engine.cache.n_blocks


def test_a_draft_model_that_does_not_know_every_token_is_refused():
    with pytest.raises(VocabularyError, match="`14`"):
        ModelDrafter(ToyModel(V - 2), n_valid_ids=V)
    ModelDrafter(ToyModel(V + 2), n_valid_ids=V)
