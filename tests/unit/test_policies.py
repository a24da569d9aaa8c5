"""Every selectable policy by itself: what it drafts, how it learns, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine_tools import EOS, V, run, toy
from wager.cost import StepCost
from wager.drafters.drawing import Drawing
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.drafting import check_policy_takes, planned
from wager.errors import OptionError
from wager.policies import POLICIES, Fixed, Tree, policy_named
from wager.policies.adaedl import AdaEdl, Unlikely
from wager.policies.heterospec import CUTS, Bins, HeteroSpec, fit_bins, likeliest
from wager.policies.heuristic import Heuristic
from wager.policies.threshold import Threshold, Unsure, fitted
from wager.tree import depths
from wager.types import Draft, Drawn, Limits, Sampling, Sequence, Verdict, chain
from wager.verify import rule_named

COST = StepCost([2, 4, 8, 16, 32])
WALK = rule_named("walk")


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
    return ModelDrafter(toy(seed=1, scale=2.0), n_valid_ids=V, eos_ids=frozenset((EOS,)), **options)


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
        ("fixed:-1", r"in \[0, inf\]"),
        ("fixed:1.5", "a whole number"),
        ("fixed:inf", "draft tokens"),
        ("fixed:", "draft tokens"),
        ("heuristic:0", r"in \[1, inf\]"),
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
        ("delayed", "model:x", 4, Tree(), "walk", "`num_draft_tokens` is 4"),
        ("cost", "suffix", None, Tree(2), "walk", "takes no form of a tree"),
        ("delayed", "model:x", None, Tree(2), "walk", "takes no form of a tree"),
        ("delayed", "model:x", None, Tree(), "block", "single path"),
        ("delayed:9", "model:x", None, Tree(), "walk", r"in \[1, 8\]"),
        ("cost", "none", None, Tree(), "walk", "'none'"),
        ("threshold", "lookup", None, Tree(), "walk", "draws from no law"),
        ("adaedl", "lookup+suffix", None, Tree(), "walk", "draws from no law"),
        ("heterospec", "auto", None, Tree(), "walk", "draws from no law"),
        ("delayed", "recycling", None, Tree(), "walk", "draws from no law"),
        ("threshold", "model:x", None, Tree(2), "spectr", "one path alone"),
        ("adaedl", "copy:int4", None, Tree(2), "rrsw", "one path alone"),
        ("heterospec", "model:x", None, Tree(), "block", "relies on the chance"),
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


def test_drafters_are_looked_at_too() -> None:
    with pytest.raises(OptionError, match="'lookup' draws from no law"):
        check_policy_takes(POLICIES["adaedl"], Lookup(), Tree())
    with pytest.raises(OptionError, match="one path alone"):
        check_policy_takes(POLICIES["threshold"], drafter(drawing=Drawing("iid")), Tree(2))
    with pytest.raises(OptionError, match="relies on the chance"):
        check_policy_takes(POLICIES["heterospec"], drafter(drawing=Drawing("iid")), Tree())
    check_policy_takes(POLICIES["threshold"], drafter(drawing=Drawing("iid")), Tree())
    check_policy_takes(POLICIES["heterospec"], drafter(), Tree(3))


def test_too_few_tokens_to_start_from() -> None:
    with pytest.raises(OptionError, match="needs at least 1"):
        policy_named("heuristic").policy(n_tokens=0, tree=Tree(), cost=COST)


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
    assert policy.least == 0  # drafts at first whatever the entropy, up to 5 nats
    policy.least = 0.5
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


# -- HeteroSpec --------------------------------------------------------------------------------------------------------


def test_bins_are_monotone_and_extend_the_three_lowest() -> None:
    assert list(CUTS) == sorted(CUTS)
    assert len(CUTS) <= 7
    found = []
    for entropy in np.linspace(0, 3, 61):
        bins = Bins(4, 2, CUTS)
        path = Drawn((0.5,) * 4, (float(entropy),) * 4)
        ended = bins.after([path])[0]
        found.append(bins.bin)
        assert bins.extension == max(0, 2 - bins.bin)
        assert ended == (bins.extension == 0)
    assert found[0] == 0
    assert found == sorted(found)
    assert set(found) == set(range(len(CUTS) + 1))


def test_the_bin_is_that_of_the_most_confident_path() -> None:
    bins = Bins(2, 1, (0.5,))
    assert bins.after([Drawn((0.9,), (9.0,)), Drawn((0.1,), (0.0,))]) == [False, False]
    assert bins.bin is None
    assert bins.n_nodes(12) == 12
    assert bins.after([Drawn((0.9, 0.9), (0.1, 0.1)), Drawn((0.1, 0.99), (2.0, 2.0))]) == [False, False]
    assert bins.bin == 0
    assert bins.after([Drawn((0.9, 0.9, 0.2), (0.1, 0.1, 5.0))]) == [True]
    assert bins.n_nodes(12) == 4  # 0.3 * 12 + 1
    assert bins.n_nodes(1) == 3  # never fewer than the path


def test_the_likeliest_nodes_are_closed_and_as_many_as_asked() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        n = int(rng.integers(1, 20))
        parents = [int(rng.integers(-1, i)) for i in range(n)]
        draft = told(rng.choice([0.1, 0.5, 1.0], n).tolist(), parents)
        n_kept = int(rng.integers(1, n + 1))
        kept = likeliest(draft, n_kept)
        assert len(kept) == n_kept
        nodes = kept.tokens.tolist()  # of ``told`` the token is the node
        assert all(parents[node] < 0 or parents[node] in nodes for node in nodes)
        products = [math.prod(draft.confidence[i] for i in _path(parents, node).tolist()) for node in range(n)]
        assert min(products[node] for node in nodes) >= max(
            (p for i, p in enumerate(products) if i not in nodes), default=0
        )


def _path(parents: list[int], node: int) -> np.ndarray:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return np.array(path[::-1])


def test_depth_and_nodes_follow_the_entropy() -> None:
    """Cuts that put everything into one bin: the extension of that bin, and its share of the nodes."""
    tree, n, usual = Tree(3, 0, 2), 4, 4 * 9
    for bin_, (extension, budget) in enumerate([(2, int(0.3 * usual) + 2), (1, int(0.6 * usual) + 1), (0, usual)]):
        cuts = (-1.0,) * bin_ + (99.0,)
        policy, seq = HeteroSpec(n, tree=tree, cuts=cuts), Sequence(0, [1, 2], 1, Sampling(temperature=1.0), 0)
        steered = drafter(drawing=Drawing(levels=2))
        (whole,) = steered.propose([seq], policy.limits([seq], steered))
        assert max(depths(whole)) == n + extension
        assert len(policy.cut([seq], [whole])[0]) == min(budget, len(whole))
    high = HeteroSpec(n, tree=tree, cuts=(-3.0, -2.0, -1.0))
    draft = high.cut([seq], steered.propose([seq], high.limits([seq], steered)))[0]
    assert max(depths(draft)) == n
    chains = lengths(HeteroSpec(4, cuts=(99.0,)))
    assert max(chains) == 6


def test_a_drawn_draft_is_not_cut() -> None:
    with pytest.raises(AssertionError, match="must not be cut"):
        likeliest(Draft(np.zeros(2, np.int32), np.array([-1, 0], np.int32), kind="iid"), 1)


def test_bins_are_fitted() -> None:
    """Steps are found where they are; a split minimises the sum, not the weighted sum, of both sides' deviations."""
    x = np.linspace(0, 1, 80)
    y = np.floor(x * 4).clip(0, 3)
    assert fit_bins(x, y) == pytest.approx((0.25, 0.5, 0.75), abs=0.02)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.random(30), rng.integers(0, 5, 30).astype(float)
        order = np.argsort(x)
        a, b = x[order], y[order]
        costs = {float(a[i - 1] + a[i]) / 2: b[:i].var() + b[i:].var() for i in range(5, 26)}
        assert fit_bins(x, y, depth=1) == (pytest.approx(min(costs, key=costs.get)),)
        cuts = fit_bins(x, y)
        assert list(cuts) == sorted(cuts)
        assert len(cuts) <= 7
    assert fit_bins(x, np.ones(30)) == ()
    assert fit_bins(x[:9], y[:9]) == ()
    assert fit_bins(np.zeros(30), y) == ()


# -- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("cost", "delayed")])  # clocks decide there
def test_lengths_come_again(name: str) -> None:
    def again() -> list[int]:
        return lengths(policy_named(name).policy(n_tokens=None, tree=Tree(2), cost=StepCost([2, 4, 8, 16, 32, 64])))

    first = again()
    assert again() == first
    assert name == "fixed" or len(set(first)) > 1
