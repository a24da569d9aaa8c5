"""Every selectable policy by itself: what it drafts, how it learns, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policy_tools import drafter, lengths, sequence, told
from wager.cost import StepCost
from wager.drafters.drawing import Drawing
from wager.drafters.lookup import Lookup
from wager.drafting import check_policy_takes, planned
from wager.errors import OptionError
from wager.policies import POLICIES, Fixed, Tree, policy_named
from wager.policies.adaedl import AdaEdl, Unlikely
from wager.policies.heuristic import Heuristic
from wager.policies.threshold import Threshold, Unsure, fitted
from wager.types import Draft, Drawn, Limits, Verdict, chain
from wager.verify import rule_named

COST = StepCost([2, 4, 8, 16, 32])
WALK = rule_named("walk")


# -- by name -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_can_be_named_and_drafts(name: str) -> None:
    info = policy_named(name)
    policy = info.policy(n_tokens=None, tree=Tree(), cost=COST)
    assert info.spelled == name
    assert max(lengths(policy)) >= 1
    assert info.decides
    assert info.use
    assert info.source


@pytest.mark.parametrize("name", [name for name, info in POLICIES.items() if info.length is not None])
def test_tokens_a_path_are_what_is_asked_for(name: str) -> None:
    info = POLICIES[name]
    (limit,) = info.policy(n_tokens=6, tree=Tree(), cost=COST).limits([sequence()], drafter())
    assert limit.depth == (9 if name == "heterospec" else 6)
    if info.knob is None:
        six = policy_named(f"{name}:6")
        assert six.policy(n_tokens=None, tree=Tree(), cost=COST).limits([sequence()], drafter())[0].depth == limit.depth
        assert six.spelled == f"{name}:6"
    (default,) = info.policy(n_tokens=None, tree=Tree(3), cost=COST).limits([sequence()], drafter())
    assert (default.width, default.n_nodes) == (3, 3 * default.depth)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("nonsense", "give one of cost, fixed"),
        ("", "give one of"),
        ("cost:3", "takes no value"),
        ("fixed:-1", "draft tokens, a whole number of at least 0$"),
        ("fixed:1.5", "a whole number"),
        ("fixed:inf", "draft tokens"),
        ("fixed:", "draft tokens"),
        ("heuristic:0", "of at least 1$"),
        ("threshold:1.5", "the first threshold"),
        ("adaedl:nan", "accepted"),
        ("heterospec:x", "draft tokens"),
        ("delayed:0", "the most branches"),
    ],
)
def test_specs_that_make_no_sense_are_refused(spec: str, match: str) -> None:
    with pytest.raises(OptionError, match=f"`policy` is .*{match}"):
        policy_named(spec)


@pytest.mark.parametrize(
    ("policy", "drafter", "n", "tree", "rule", "match"),
    [
        ("fixed:4", "lookup", 5, Tree(), "walk", "`num_draft_tokens` is 5"),
        ("heuristic:4", "lookup", 4, Tree(), "walk", "`num_draft_tokens` is 4"),
        ("cost", "lookup", 4, Tree(), "walk", "`num_draft_tokens` is 4"),
        ("heuristic", "lookup", 0, Tree(), "walk", "give at least 1"),
        ("delayed", "model:x", 4, Tree(), "walk", "`num_draft_tokens` is 4"),
        ("cost", "suffix", None, Tree(2), "walk", "takes no form of a tree"),
        ("delayed", "model:x", None, Tree(2), "walk", "takes no form of a tree"),
        ("delayed", "model:x", None, Tree(), "block", "`policy` is 'delayed', .* give delayed:1 or another rule"),
        ("delayed:3", "model:x", None, Tree(), "standard", "up to 3 branches, but `rule` 'standard' takes 1"),
        ("delayed:9", "model:x", None, Tree(), "walk", r"in \[1, 8\]"),
        ("cost", "none", None, Tree(), "walk", "'none'"),
        ("threshold", "lookup", None, Tree(), "walk", "tells none"),
        ("adaedl", "lookup+suffix", None, Tree(), "walk", "tells none"),
        ("heterospec", "auto", None, Tree(), "walk", "tells none"),
        ("delayed", "recycling", None, Tree(), "walk", "tells none"),
        ("delayed", "skip", None, Tree(), "walk", "`policy` is 'delayed' but .* single paths: give delayed:1"),
        ("threshold", "model:x", None, Tree(2), "spectr", "one path alone"),
        ("adaedl", "copy:int4", None, Tree(2), "rrsw", "one path alone"),
        ("heterospec", "model:x", None, Tree(), "nss", r"drawn by chance \(without_replacement\)"),
        ("heterospec", "model:x", None, Tree(), "block", "drawn by chance"),
    ],
)
def test_contradictions_are_refused_before_anything_is_loaded(policy, drafter, n, tree, rule, match) -> None:
    with pytest.raises(OptionError, match=match):
        planned(policy, drafter, n, tree, rule_named(rule))


def test_what_is_planned() -> None:
    assert planned(None, "lookup", None, Tree(), WALK).name == "cost"
    assert planned(None, "lookup", 3, Tree(), WALK).name == "fixed"
    assert planned(None, "model:x", None, Tree(2), WALK).name == "fixed"
    assert planned("threshold", "model:x", 7, Tree(2), WALK).name == "threshold"
    assert planned("threshold:0.2", "copy:int4", None, Tree(), rule_named("block")).spelled == "threshold:0.2"
    assert planned("delayed", "model:x", None, Tree(), rule_named("spectr")).width == 4
    assert planned("delayed:1", "model:x", None, Tree(), rule_named("standard")).width == 1
    assert planned("delayed:1", "window", None, Tree(), WALK).spelled == "delayed:1"


def test_drafters_are_looked_at_too() -> None:
    with pytest.raises(OptionError, match="'lookup' tells none"):
        check_policy_takes(POLICIES["adaedl"], Lookup(), Tree())
    with pytest.raises(OptionError, match="one path alone"):
        check_policy_takes(POLICIES["threshold"], drafter(drawing=Drawing("iid")), Tree(2))
    with pytest.raises(OptionError, match="drawn by chance"):
        check_policy_takes(POLICIES["heterospec"], drafter(drawing=Drawing("iid")), Tree())
    check_policy_takes(POLICIES["threshold"], drafter(drawing=Drawing("iid")), Tree())
    check_policy_takes(POLICIES["heterospec"], drafter(), Tree(3))


# -- heuristic ---------------------------------------------------------------------------------------------------------


def step(policy, n_accepted: int, *, seq_id: int = 0, n: int | None = None) -> int:
    """One round of a chain; what is drafted next."""
    seqs = [sequence(seq_id)]
    length = policy.limits(seqs, drafter=None)[0].depth if n is None else n
    policy.observe(seqs, [chain([0] * length)], [Verdict(tuple(range(n_accepted)), 0)])
    return policy.limits(seqs, drafter=None)[0].depth


def test_two_more_or_one_fewer() -> None:
    policy = Heuristic(5)
    assert step(policy, 5) == 7
    assert step(policy, 6) == 6
    assert [step(policy, 0) for _ in range(7)] == [5, 4, 3, 2, 1, 1, 1]
    assert step(policy, 1) == 3
    assert step(policy, 2, n=2) == 5  # a shorter draft, accepted whole
    assert step(policy, 0, n=0) == 5  # none was fed


def test_of_a_tree_the_deepest_path_counts() -> None:
    policy, seqs = Heuristic(2, tree=Tree(2)), [sequence()]
    tree = Draft(np.array([1, 2, 3, 4], np.int32), np.array([-1, 0, -1, 2], np.int32))
    assert policy.limits(seqs, None) == [Limits(4, 2, 2)]
    policy.observe(seqs, [tree], [Verdict((2, 3), 0)])
    assert policy.limits(seqs, None)[0].depth == 4
    policy.observe(seqs, [tree], [Verdict((2,), 0)])
    assert policy.limits(seqs, None)[0].depth == 3


@pytest.mark.parametrize(("transient", "next_"), [(False, 9), (True, 5)])
def test_what_a_new_request_starts_from(transient: bool, next_: int) -> None:
    policy = Heuristic(5, transient=transient)
    step(policy, 5)
    step(policy, 7)
    assert policy.limits([sequence(1)], None)[0].depth == 5  # beside the first: its own number
    policy.forget(1)
    policy.forget(0)
    assert policy.limits([sequence(2)], None)[0].depth == next_


# -- threshold ---------------------------------------------------------------------------------------------------------


def test_the_neutral_threshold_is_a_fixed_length_and_the_other_end_one_token() -> None:
    for temperature in (0.0, 0.8):
        free = lengths(Fixed(6), temperature=temperature)
        assert lengths(Threshold(0.0, n_tokens=6), temperature=temperature) == free
    assert Unsure(1.1).after([Drawn((0.9,)), Drawn((0.2, 1.0))]) == [True, True]
    assert set(lengths(Threshold(math.nextafter(1, 2), n_tokens=6))[:1]) == {1}


def test_the_threshold_is_the_best_of_all_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 30))
        probs = rng.choice(rng.random(8), n)
        matched = rng.random(n) < probs
        if not 0 < matched.sum() < n:
            continue

        def cost(threshold: float, probs=probs, matched=matched) -> float:
            positive = probs >= threshold
            return float(positive[~matched].mean() + 3 * (1 - positive[matched].mean()))

        best = min(map(cost, probs))
        found = fitted(probs, matched)
        assert cost(found) == pytest.approx(best)
        assert found == max(p for p in probs if cost(p) == pytest.approx(best))


def test_what_the_threshold_is_fitted_to() -> None:
    """Reached tokens alone, more than five of them, some right and some wrong."""
    policy, seqs = Threshold(0.4, n_tokens=9), [sequence()]
    policy.observe(seqs, [told([0.9, 0.8, 0.7, 0.6, 0.5, 0.45])], [Verdict((0, 1, 2, 3, 4, 5), 0)])
    assert policy.threshold == 0.4  # all of one class
    policy.observe(seqs, [told([0.3, 0.99])], [Verdict((), 0)])  # 0.99 came after a wrong one
    assert policy.threshold == pytest.approx(0.45)
    few = Threshold(0.4, n_tokens=9)
    few.observe(seqs, [told([0.9, 0.8, 0.7, 0.6, 0.1])], [Verdict((0, 1, 2, 3), 0)])
    assert few.threshold == 0.4
    branches = Threshold(0.4, n_tokens=9)
    branches.observe(seqs * 2, [told([0.9, 0.8, 0.3, 0.2], [-1, 0, -1, 2])] * 2, [Verdict((0, 1), 0)] * 2)
    assert branches.threshold == pytest.approx(0.8)


def test_the_threshold_converges_where_probabilities_are_honest() -> None:
    """A token given p is right with chance p, p uniform: fpr + 3 fnr at t is (1 - t)^2 + 3 t^2, least at 1/4.

    2000 rounds, seed 0; 0.1 is some five standard errors.
    """
    rng, policy = np.random.default_rng(0), Threshold(0.9, n_tokens=1)
    for _ in range(2000):
        prob = float(rng.random())
        policy.observe([sequence()], [told([prob])], [Verdict((0,) if rng.random() < prob else (), 0)])
    assert policy.threshold == pytest.approx(0.25, abs=0.1)


# -- AdaEDL ------------------------------------------------------------------------------------------------------------


def test_no_bound_is_a_fixed_length_and_the_other_end_is_plain_decoding() -> None:
    free = lengths(Fixed(6))
    assert lengths(AdaEdl(0.9, n_tokens=6, least=-math.inf)) == free
    assert set(lengths(AdaEdl(0.9, n_tokens=6, least=math.inf))) == {0}


def test_the_bound_on_acceptance() -> None:
    stop = Unlikely(0.5)
    assert not stop.before(Drawn(), 1.25)
    assert stop.before(Drawn(), 1.2501)
    assert stop.before(Drawn(), 1e9)  # far below zero
    assert not stop.before(Drawn(), 0.0)


def test_steps_of_the_controller() -> None:
    policy, seqs = AdaEdl(0.9, n_tokens=4), [sequence(), sequence(1)]
    policy.observe(seqs, [chain([]), chain([])], [Verdict((), 0)] * 2)
    assert policy.least == 0.5
    policy.observe(seqs, [chain([1, 2, 3]), chain([1])], [Verdict((0, 1), 0), Verdict((), 0)])
    assert policy.least == pytest.approx(0.9 * 0.5 + 0.1 * 0.51)  # rate (0.9 + 0.5) / 2
    for _ in range(9):
        policy.observe(seqs[:1], [chain([1, 2])], [Verdict((0, 1), 0)])
    assert policy.least < 0.5


def test_the_bound_converges_wherever_it_starts() -> None:
    """Entropies uniform in [0, 4], a token accepted with chance 1 - H/4. 6000 rounds from each start, seed 0."""
    ends, rates = [], []
    for start in (-0.5, 0.0, 0.6):
        rng, policy, hits, trials = np.random.default_rng(0), AdaEdl(0.8, n_tokens=4, least=start), 0, 0
        for round_ in range(6000):
            (limit,) = policy.limits([sequence()], None)
            n, n_right, right = 0, 0, True
            while n < limit.depth and not limit.stop.before(Drawn(), entropy := float(rng.random() * 4)):
                n, right = n + 1, right and rng.random() < 1 - entropy / 4
                n_right += right
            policy.observe([sequence()], [chain([0] * n)], [Verdict(tuple(range(n_right)), 0)])
            if round_ >= 4000:
                hits, trials = hits + n_right, trials + n
        ends.append(policy.least)
        rates.append(hits / trials)
    assert max(ends) - min(ends) < 0.05
    assert min(rates) > 0.6  # half of the rounds lie above the target; without a bound a quarter is accepted


# -- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("cost", "delayed")])  # clocks decide there
def test_lengths_come_again(name: str) -> None:
    def again() -> list[int]:
        return lengths(policy_named(name).policy(n_tokens=None, tree=Tree(2), cost=StepCost([2, 4, 8, 16, 32, 64])))

    first = again()
    assert again() == first
    assert name == "fixed" or len(set(first)) > 1
