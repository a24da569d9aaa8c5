"""Proposals of modules to leave out: each way keeps to its rules, and finds what there is to find."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from wager.drafters.skip_search import conf, cosine, free_modules, swift
from wager.tune_skip import Costs, score, search

N = 24


def climb(seed: int, n: int) -> tuple[list[frozenset[int]], frozenset[int]]:
    """Sets that `swift` proposes where a secret set is best, and the best of them."""
    secret, best, tried = frozenset((4, 5, 9, 14, 15)), [frozenset({2})], []
    for modules in islice(swift(N, lambda: best[0], seed=seed), n):
        tried.append(modules)
        best[0] = min(best[0], modules, key=lambda found: len(found ^ secret))
    return tried, best[0]


def test_swift_finds_a_secret_set_by_small_changes_and_the_same_with_the_same_seed() -> None:
    tried, best = climb(3, 800)
    assert best == {4, 5, 9, 14, 15}
    assert tried == climb(3, 800)[0]
    assert tried != climb(4, 800)[0]
    assert all(found and found <= set(free_modules(N)) for found in tried)
    assert not list(swift(4, frozenset, seed=0))


def test_conf_leaves_out_both_modules_of_flat_layers() -> None:
    """Of layers 1 … 10 every other one is flat: the neighbours of each are all of the other kind."""
    confidences = np.full(N, 0.5)
    flat = [1, 3, 5, 7, 9]
    for layer in flat:
        confidences[[2 * layer, 2 * layer + 1]] = 0.1
    first = next(conf(confidences))
    assert first == {2 * layer + part for layer in flat for part in (0, 1)}
    rng = np.random.default_rng(0)
    for _ in range(50):
        found = list(conf(rng.random(N)))
        assert found
        assert len(set(found)) == len(found)
        for modules in found:
            assert modules <= set(free_modules(N))
            assert {m ^ 1 for m in modules} == modules
    assert not list(conf(np.ones(4)))


@pytest.mark.parametrize("share", [0.15, 0.3, 0.45])
def test_the_threshold_of_conf_settles_in_its_band(share: float) -> None:
    """Among the sets on the way is one whose share of layers is in the band, where scores are like those of a model."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        shares = [len(found) / 60 for found in conf(rng.random(60))]
        assert any(share <= found <= share + 0.25 for found in shares)


def test_cosine_takes_the_attentions_that_turn_least_one_by_one() -> None:
    assert list(cosine(np.array([1.0, 0.2, 0.9, 0.5, 1.0]))) == [{4}, {4, 6}, {4, 6, 2}]


COSTS = Costs((10.0, 11.0, 12.0, 13.0, 14.0), draft_s=9.0, attention_s=0.2, mlp_s=0.3)


def test_speed_is_tokens_over_the_time_they_take() -> None:
    accepted = np.array([4, 4, 2, 0])
    found = score(accepted, COSTS, frozenset({2, 3, 5}))
    token_s = 9.0 - 0.2 - 0.6
    speeds = {n: (1 + np.minimum(accepted, n).mean()) * 10 / (n * token_s + 10 + n) for n in (1, 2, 3, 4)}
    assert found.speed == pytest.approx(max(speeds.values()))
    assert speeds[found.n_draft] == pytest.approx(found.speed)
    assert found.right == 0.75
    assert score(accepted, COSTS, frozenset({2}), token_s=1.0).speed == pytest.approx(3.5 * 10 / 18)


def test_what_is_seldom_right_never_beats_what_mostly_is() -> None:
    useless = score(np.zeros(8, np.int64), COSTS, frozenset(free_modules(N)))
    slow = score(np.ones(8, np.int64), COSTS, frozenset({2}))
    assert useless.key < score(np.array([1, 0, 0, 0]), COSTS, frozenset({2, 3})).key < slow.key


class Known:
    """A replay whose drafts are right where no odd module is left out; counts what it is asked."""

    n_modules = N

    def __init__(self):
        self.asked = []

    def accepted(self, modules):
        self.asked.append(modules)
        return np.full(10, 4 if all(m % 2 == 0 for m in modules) else 0)

    def measures(self):
        return np.linspace(0, 1, N), np.linspace(1, 0, N // 2)


def test_search_keeps_the_fastest_set_and_asks_for_none_twice() -> None:
    replay, told = Known(), []
    best, n_tried = search(replay, COSTS, method="cosine", budget_s=60, progress=lambda *said: told.append(said))
    assert best.modules == frozenset(range(2, N - 2, 2))
    assert n_tried == len(replay.asked) == len(set(replay.asked)) == 11
    assert told[-1][1:] == (60, 60)
    other = Known()
    found, _ = search(other, COSTS, method="swift", budget_s=0.5, seed=5)
    assert found.right == 1
    assert len(set(other.asked)) == len(other.asked)
    assert search(Known(), COSTS, method="conf", budget_s=0, seed=5)[1] == 1
