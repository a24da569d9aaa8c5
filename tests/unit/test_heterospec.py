"""HeteroSpec: bins by entropy, depth and nodes by bin, and how bins are fitted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policy_tools import drafter, lengths, told
from wager.drafters.drawing import Drawing
from wager.policies import Tree
from wager.policies.heterospec import CUTS, Bins, HeteroSpec, fit_bins, likeliest
from wager.tree import depths
from wager.types import Draft, Drawn, Sampling, Sequence


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
    assert bins.entropy == pytest.approx(3)


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
    assert fit_bins(x, y, least=5) == pytest.approx((0.25, 0.5, 0.75), abs=0.02)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.random(30), rng.integers(0, 5, 30).astype(float)
        order = np.argsort(x)
        a, b = x[order], y[order]
        costs = {float(a[i - 1] + a[i]) / 2: b[:i].var() + b[i:].var() for i in range(5, 26)}
        assert fit_bins(x, y, depth=1, least=5) == (pytest.approx(min(costs, key=costs.get)),)
        cuts = fit_bins(x, y, least=5)
        assert list(cuts) == sorted(cuts)
        assert len(cuts) <= 7
    assert fit_bins(x, np.ones(30), least=5) == ()
    assert fit_bins(x[:9], y[:9], least=5) == ()
    assert fit_bins(x, y, least=16) == ()
    assert fit_bins(np.zeros(30), y, least=5) == ()
