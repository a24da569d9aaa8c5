"""How much to draft: simulated against the best fixed length, on the curves of two machines."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from policy_tools import AMX, AVX2, N_STEPS, N_WARM, Simulated, World
from wager.policies import Fixed
from wager.policies.acceptance import Acceptance, bucket
from wager.policies.allocate import fill
from wager.tree import prune
from wager.types import EMPTY, Draft, Sampling, Sequence, Verdict, chain


@pytest.mark.parametrize("curve", [AVX2, AMX], ids=["avx2", "amx"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
def test_within_three_percent_of_the_best_fixed_length(curve: dict[int, float], alpha: float) -> None:
    world = World(curve, lambda s, d: alpha)
    assert world.rate() > 0.97 * world.best_fixed_rate()


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_the_time_of_drafting_counts(alpha: float) -> None:
    world = World(AVX2, lambda s, d: alpha, drafter_s=0.004)
    assert world.rate() > 0.97 * world.best_fixed_rate()


@pytest.mark.parametrize("curve", [AVX2, AMX], ids=["avx2", "amx"])
@pytest.mark.parametrize("drafter_s", [1e-6, 0.0015, 0.004])
def test_never_a_loss_where_nothing_is_accepted(curve: dict[int, float], drafter_s: float) -> None:
    world = World(curve, lambda s, d: 0.0, drafter_s=drafter_s)
    assert world.rate() > 0.98 * world.fixed_rate(0)


def test_rows_of_a_batch_go_where_they_are_accepted() -> None:
    world = World(AVX2, lambda s, d: (0.0, 0.9)[s % 2], n_seqs=4)
    assert world.rate() > 1.2 * world.best_fixed_rate()
    lengths = np.mean([world.step()[2] for _ in range(20)], axis=0)
    assert lengths[1] > 3 * lengths[0]


def test_a_drafter_of_unknown_speed_is_asked_for_one_token() -> None:
    world = World(AVX2, lambda s, d: 1.0, drafter_s=0.0)
    assert [limit.n_nodes for limit in world.policy.limits(world.seqs, world.drafter)] == [1]


def test_acceptance_that_comes_back_is_noticed() -> None:
    alpha = 0.0
    world = World(AVX2, lambda s, d: alpha, drafter_s=0.0015)
    for _ in range(300):
        world.step()
    alpha = 0.9
    for _ in range(300):
        world.step()
    assert np.mean([sum(world.step()[2]) for _ in range(50)]) >= 2


def test_support_decides_within_one_text() -> None:
    """Long matches are right, short ones wrong: both kinds of step get their own length."""
    support = 1
    world = World(AMX, lambda s, d: 0.95 if support > 8 else 0.1)
    lengths: dict[int, list[int]] = {1: [], 12: []}
    for i in range(400):
        support = 12 if i % 2 else 1
        n = world.step(support)[2][0]
        if i > 100:
            lengths[support].append(n)
    assert np.mean(lengths[1]) < 2 < 6 < np.mean(lengths[12])


def test_a_text_that_never_repeats_is_told_from_one_that_does() -> None:
    world = World(AVX2, lambda s, d: (0.05, 0.85)[s], n_seqs=2)
    for _ in range(100):
        world.step()
    table = world.policy.acceptance
    low, high = (table.values("simulated", s, chain([0], support=5))[0] for s in (0, 1))
    assert low < 0.3
    assert high > 0.6


def test_width_is_not_switched_for_nothing() -> None:
    """Two widths within a few per cent of each other, 5 ms a switch: it stays where it is."""
    world = World(AVX2, lambda s, d: 0.63)
    world.cost.switch_s = 0.005
    for _ in range(N_STEPS):
        world.step()
    n_switches = sum(a != b for a, b in itertools.pairwise(world.widths[N_WARM:]))
    assert n_switches < 20
    free = World(AVX2, lambda s, d: 0.63)
    for _ in range(N_STEPS):
        free.step()
    assert n_switches < sum(a != b for a, b in itertools.pairwise(free.widths[N_WARM:]))


def test_padding_is_filled() -> None:
    world = World(AVX2, lambda s, d: 0.4)
    for _ in range(100):
        _, _, (n,) = world.step()
        assert n + 1 in AVX2


def _tree() -> Draft:
    """Root with two children; the first has two children of its own: 0(1(3), 4), 2."""
    return Draft(np.array([5, 6, 7, 8, 9], np.int32), np.array([-1, 0, -1, 1, 0], np.int32), support=3)


def test_fill_takes_trees_by_value_and_counts_forks() -> None:
    values = [[0.6, 0.5, 0.3, 0.4, 0.05]]
    kept = dict(fill([_tree()], values, [2, 4, 6, 8, 9], min_rows=2))
    assert kept[2].nodes == [[0]]
    assert kept[4].nodes == [[0, 1, 3]]  # one branch of three nodes and the last token
    assert kept[6].nodes == [[0, 1, 2, 3]]  # a second branch: last token and node 2
    assert kept[8].nodes == [[0, 1, 2, 3]]
    assert kept[9].nodes == [[0, 1, 2, 3, 4]]  # a third one feeds node 0 again
    assert kept[9].n_rows == 9
    assert kept[9].value == pytest.approx(1.85)
    masked = dict(fill([_tree()], values, [6], min_rows=2, forks=False))
    assert masked[6].nodes == [[0, 1, 2, 3, 4]]


def test_fill_first_draft_tokens_are_free_only_with_two_rows() -> None:
    drafts, values = [chain([1, 2]), chain([3, 4])], [[0.9, 0.8], [0.1, 0.05]]
    assert dict(fill(drafts, values, [4], min_rows=2))[4].nodes == [[0], [0]]
    assert dict(fill(drafts, values, [4], min_rows=1))[4].nodes == [[0, 1], []]
    assert dict(fill(drafts, values, [4], min_rows=2, floor=0.2))[4].nodes == [[0], []]


@pytest.mark.parametrize("min_rows", [1, 2, 3])
def test_a_single_chain_is_filled_as_one_of_many_trees_is(min_rows: int) -> None:
    rng, widths = random.Random(4), [min_rows, 4, 6, 8, 16]
    for _ in range(200):
        values = sorted((rng.random() for _ in range(rng.randint(0, 20))), reverse=True)
        floor, draft = rng.choice([0.0, 0.3]), chain([0] * len(values))
        single = list(fill([draft], [values], widths, min_rows=min_rows, floor=floor))
        among = list(fill([draft, EMPTY], [values, []], [w + min_rows for w in widths], min_rows=min_rows, floor=floor))
        assert [(kept.nodes[0], kept.n_rows + min_rows) for _, kept in single] == [
            (kept.nodes[0], kept.n_rows) for _, kept in among
        ]
        assert [kept.value for _, kept in single] == pytest.approx([kept.value for _, kept in among])


def test_fill_is_the_best_choice_for_chains() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        drafts = [chain([0] * int(rng.integers(0, 5))) for _ in range(3)]
        values = [np.cumprod(rng.random(len(draft))).tolist() for draft in drafts]
        for width, kept in fill(drafts, values, [6, 7, 9, 16], min_rows=2):
            best = max(
                sum(sum(v[:n]) for v, n in zip(values, lengths, strict=True))
                for lengths in itertools.product(*(range(len(d) + 1) for d in drafts))
                if sum(max(2, 1 + n) for n in lengths) <= width
            )
            assert kept.value == pytest.approx(best)
            assert kept.n_rows == sum(max(2, 1 + len(nodes)) for nodes in kept.nodes) <= width
            assert all(nodes == list(range(len(nodes))) for nodes in kept.nodes)


def test_prune_renumbers_parents() -> None:
    pruned = prune(_tree(), [0, 2, 4])
    assert pruned.tokens.tolist() == [5, 7, 9]
    assert pruned.parents.tolist() == [-1, -1, 0]
    assert pruned.support == 3
    assert len(prune(_tree(), [])) == 0


@pytest.mark.parametrize(
    ("support", "want"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (8, 4), (16, 5), (17, 6), (99, 6)]
)
def test_buckets(support: int, want: int) -> None:
    assert bucket(support) == want


def test_acceptance_counts_only_nodes_whose_parent_was_reached() -> None:
    table = Acceptance()
    for _ in range(300):
        table.observe("d", 0, chain([1, 2, 3]), Verdict((0,), 9))
    first, second, third = table.chances("d", 0, 3)
    assert first > 0.95
    assert second < 0.05
    assert third == pytest.approx(
        1 - (1 - 0.25 / 2**0.5) * (1 - second)
    )  # never tried: still the guess from its parent


def test_acceptance_by_sibling_rank() -> None:
    table = Acceptance()
    tree = Draft(np.array([1, 2], np.int32), np.array([-1, -1], np.int32))
    for i in range(300):
        table.observe("d", 0, tree, Verdict(((0,), (1,), ())[i % 3], 9))
    values = table.values("d", 0, tree)
    assert values == pytest.approx([1 / 3, 1 / 3], abs=0.08)


def test_values_never_rise_along_a_path() -> None:
    table = Acceptance()
    long = chain(range(40))
    for _ in range(200):
        table.observe("d", 0, long, Verdict(tuple(range(40)), 9))
        values = table.values("d", 0, long)
        assert all(a >= b for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_of_drawn_siblings_the_last_are_cut_first(kind: str) -> None:
    """Rules that go through children in draw order are wrong where an earlier one was taken out by its rank's luck."""
    acceptance = Acceptance()
    tree = Draft(np.array([5, 6, 7], np.int32), np.array([-1, -1, -1], np.int32), kind=kind)
    for _ in range(50):
        acceptance.observe("d", 1, tree, Verdict((2,), 0))
    values = acceptance.values("d", 1, tree)
    assert values == sorted(values, reverse=True)
    free = acceptance.values("d", 1, Draft(tree.tokens, tree.parents))
    assert free[2] > free[0]  # where nothing was drawn the best rank goes first


def test_lengths_are_learnt_where_a_draft_names_its_source() -> None:
    """Of several drafters the record is kept by the one that drafted, and asked for by the one that drafted last."""
    acceptance = Acceptance()
    draft = Draft(np.array([1], np.int32), np.array([-1], np.int32), source="b")
    for _ in range(50):
        acceptance.observe("a+b", 1, draft, Verdict((), 0))
    assert acceptance.chain_values("a+b", 1, 2)[0] < 0.1


def test_nobody_to_draft_for() -> None:
    world = World(AVX2, lambda s, d: 0.5)
    assert world.policy.cut([], []) == []
    assert world.policy.cut(world.seqs, [EMPTY]) == [EMPTY]


def test_fixed_never_changes() -> None:
    policy = Fixed(4, width=2)
    seq = Sequence(0, [1], 1, Sampling(), 0)
    limit = policy.limits([seq], Simulated(0))[0]
    assert (limit.n_nodes, limit.depth, limit.width) == (4, 4, 2)
    assert policy.cut([seq], [EMPTY]) == [EMPTY]


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_of_a_sampled_draft_confidence_says_nothing(kind: str) -> None:
    """It would tell what was drawn, and what is cut may not go by that."""
    acceptance = Acceptance()
    sure, doubtful = (
        Draft(np.array([1, 2], np.int32), np.array([-1, 0], np.int32), None, kind, confidence=np.full(2, c, np.float32))
        for c in (0.99, 0.01)
    )
    for _ in range(20):
        acceptance.observe("d", 0, sure, Verdict((0, 1), 3))
        acceptance.observe("d", 0, doubtful, Verdict((), 3))
    assert acceptance.values("d", 0, sure) == acceptance.values("d", 0, doubtful)


def test_a_drafters_own_confidence_is_believed_as_far_as_it_comes_true() -> None:
    acceptance = Acceptance()
    sure, doubtful = (
        Draft(np.array([1], np.int32), np.array([-1], np.int32), confidence=np.full(1, c, np.float32))
        for c in (0.8, 0.2)
    )
    assert acceptance.values("d", 0, sure) == pytest.approx([0.8])
    assert acceptance.values("d", 0, doubtful) == pytest.approx([0.2])
    for i in range(400):
        acceptance.observe("d", 0, sure, Verdict((0,) if i % 2 else (), 3))
    assert acceptance.values("d", 1, sure)[0] == pytest.approx(0.5, abs=0.05)
    assert acceptance.values("d", 1, doubtful) == pytest.approx([0.2])
