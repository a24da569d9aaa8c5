"""Constrained text does not depend on drafts either, and one that cannot go on ends alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_tools import EOS, RandomTrees, V, prompts, run, toy, trees
from guide_tools import table
from wager.cost import StepCost
from wager.drafters import make_drafter
from wager.drafters.blend import Blend
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.errors import ConstraintError, OptionError
from wager.policies import Fixed, Tree, policy_named
from wager.types import Sampling

GUIDE = table(EOS, V)
SAMPLINGS = {
    "greedy": Sampling(max_tokens=40, constraint=GUIDE),
    "sampled": Sampling(temperature=1.1, max_tokens=40, constraint=GUIDE),
    "everything": Sampling(
        temperature=1.2, top_p=0.9, top_k=12, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.3,
        frequency_penalty=0.2, logit_bias={5: -2.0, 9: 3.0}, max_tokens=40, stop_token_ids=(9,), logprobs=2,
        constraint=GUIDE,
    ),
}  # fmt: skip
DRAFTERS = ["lookup", "random", "random trees", "model", "other model", "model tree", "blend"]


def drafter_named(name, model):
    if name in ("lookup", "random", "blend"):
        lookup = Lookup(min_match=1)
        made = {"lookup": lookup, "random": RandomTrees(), "blend": Blend(lookup)}[name]
        return {"drafter": made, "policy": Fixed(6)}
    if name == "random trees":
        return {"drafter": RandomTrees(model=model), "policy": trees()}
    seed, width = {"model": (0, 1), "other model": (1, 1), "model tree": (0, 3)}[name]
    drafter = ModelDrafter(toy(seed=seed, scale=2.0), n_valid_ids=V, eos_ids=frozenset((EOS,)))
    return {"drafter": drafter, "policy": Fixed(4 * width, depth=4, width=width)}


def solo(sampling):
    """Plain runs, each alone: tokens, how each ended, and their logprobs."""
    found = []
    for seed, prompt in enumerate(prompts()):
        engine = Engine(toy(), eos_ids=(EOS,))
        seq = engine.submit(prompt, sampling, seed=seed)
        while engine.has_work:
            engine.step()
        found.append((seq.tokens, seq.finish, seq.logprobs))
    return found


@pytest.fixture(scope="module")
def plain():
    return {name: solo(sampling) for name, sampling in SAMPLINGS.items()}


def told(outcome):
    return [(seq.tokens, seq.finish, seq.logprobs) for seq in outcome.seqs]


def test_plain_output_is_what_the_automaton_takes(plain):
    for found in plain.values():
        for (tokens, finish, _), prompt in zip(found, prompts(), strict=True):
            output = tokens[len(prompt) :]
            assert GUIDE.fits([], output) == len(output)
            assert (output[-1] in (EOS, 9)) == (finish == "stop")
    assert {finish for found in plain.values() for _, finish, _ in found} == {"stop", "length"}


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_gives_the_plain_text(plain, sampling, drafter):
    model = toy()
    outcome = run(model, SAMPLINGS[sampling], **drafter_named(drafter, model))
    assert told(outcome) == plain[sampling]
    assert sum(stats.n_accepted for stats in outcome.stats) > 10


@pytest.mark.parametrize("model_options", [{"max_rows": 6}, {"n_blocks": 40}], ids=str)
def test_with_little_room(plain, model_options):
    model = toy(**model_options)
    for name in ("random trees", "model"):
        assert told(run(model, SAMPLINGS["sampled"], **drafter_named(name, model))) == plain["sampled"]


def test_forced_tokens_are_free_drafts_even_where_the_drafter_has_none(plain):
    class Silent(RandomTrees):
        def _tree(self, seq, limit):
            from wager.types import EMPTY

            return EMPTY

    outcome = run(toy(), SAMPLINGS["sampled"], drafter=Silent(), policy=Fixed(0))
    assert told(outcome) == plain["sampled"]
    drafted, accepted = (sum(getattr(s, name) for s in outcome.stats) for name in ("n_drafted", "n_accepted"))
    assert accepted == drafted > 30
    without = run(toy(), SAMPLINGS["sampled"])
    assert sum(s.n_drafted for s in without.stats) == 0


def test_a_draft_is_cut_where_the_constraint_rules_it_out():
    model = toy()
    free = replace(SAMPLINGS["greedy"], constraint=None)
    fed = [sum(s.n_drafted for s in run(model, s, **drafter_named("random", model)).stats) for s in (free, GREEDY)]
    taken = [sum(s.n_accepted for s in run(model, s, **drafter_named("random", model)).stats) for s in (free, GREEDY)]
    assert taken[1] / fed[1] > 0.3 > taken[0] / fed[0]


GREEDY = SAMPLINGS["greedy"]


@pytest.mark.parametrize("drafter", [None, "random trees", "model", "model tree", "blend"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_dead_end_ends_one_sequence_where_plain_decoding_meets_it(drafter, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=40, constraint=table(EOS, V, dead_end=True), logprobs=1)
    expected = solo(sampling)
    ends = [finish for _, finish, _ in expected]
    model = toy()
    outcome = run(model, sampling, **(drafter_named(drafter, model) if drafter else {}))
    assert told(outcome) == expected
    if temperature:
        assert ends.count("error") > 1
        assert ends.count("error") < len(ends)
    for seq in outcome.seqs:
        assert (seq.finish == "error") == isinstance(seq.error, ConstraintError)
        assert seq.guide is None


def test_a_dead_end_is_told_with_the_last_event():
    sampling = Sampling(constraint=GUIDE, logit_bias={1: float("-inf")})
    engine = Engine(toy(), eos_ids=(EOS,))
    bad, good = engine.submit([1, 2], sampling, seed=0), engine.submit([1, 2], GREEDY, seed=0)
    events = []
    while engine.has_work:
        events += engine.step()
    assert good.finish in ("stop", "length")
    (last,) = [e for e in events if e.seq_id == bad.id]
    assert (last.tokens, last.finish) == ((), "error")
    assert "logit_bias" in str(last.error)


def test_options_that_contradict_a_constraint_are_refused():
    for options in ({"ignore_eos": True}, {"min_tokens": 3}):
        with pytest.raises(OptionError, match=next(iter(options))):
            Sampling(constraint=GUIDE, **options)
    for wrong in ('{"type": "object"}', type(GUIDE)):
        with pytest.raises(OptionError, match="constraint"):
            Sampling(constraint=wrong)
    with pytest.raises(OptionError, match="no token ends"):
        Engine(toy(), eos_ids=()).submit([1], GREEDY, seed=0)


def test_masks_are_asked_for_at_walked_nodes_only():
    guide = table(EOS, V)
    sampling = replace(SAMPLINGS["sampled"], constraint=guide)
    outcome = run(toy(), sampling, drafter=RandomTrees(), policy=trees())
    n_walked = sum(s.n_forwards + s.n_accepted for s in outcome.stats)
    assert len(guide.asked) <= n_walked


REGISTERED = ["lookup", "suffix", "suffix:local", "cacheback", "recycling", "lookahead", "lookup+recycling"]


@pytest.mark.parametrize("spec", REGISTERED)
def test_registered_drafters_meet_drafts_that_are_not_theirs(plain, spec):
    """Forced tokens are fed in place of their drafts; what they learn of that must not end in a wrong text."""
    for name in ("greedy", "sampled"):
        outcome = run(toy(), SAMPLINGS[name], drafter=make_drafter(spec, None), policy=trees())
        assert told(outcome) == plain[name]
        assert sum(stats.n_accepted for stats in outcome.stats) > 10


@pytest.mark.parametrize("policy", ["cost", "heuristic", "threshold", "adaedl", "delayed", "heterospec"])
def test_policies_meet_drafts_that_they_did_not_ask_for(plain, policy):
    info, cost, tree = policy_named(policy), StepCost([2, 4, 8]), Tree()
    made = info.policy(n_tokens=None, tree=tree, cost=cost, min_rows=2, forks=True)
    drafter = ModelDrafter(toy(seed=1, scale=2.0), n_valid_ids=V, eos_ids=frozenset((EOS,)))
    assert told(run(toy(), SAMPLINGS["sampled"], drafter=drafter, policy=made)) == plain["sampled"]
