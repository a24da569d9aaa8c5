"""Whether to ask for drafts at all, where asking takes time: it stops, it is tried, and it is taken up again."""

from __future__ import annotations

import numpy as np
import pytest

from policy_tools import AVX2, World, sequence
from wager.policies.asking import Asking
from wager.stopwatch import Stopwatch

# Every row costs the same: no draft pays, however few are wrong.
KNOTS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
LINEAR = {n: 0.001 + 0.0008 * n for n in KNOTS}
# Up to 64 rows cost nearly what one costs: every draft pays.
LEVEL = {n: 0.012 + 0.00002 * n for n in KNOTS}


def _shares(world: World, n_steps: int) -> tuple[float, float]:
    """Tokens a second against plain decoding, and the share of sequences that were asked, over the last steps."""
    n_asked, found = 0, []
    for _ in range(n_steps):
        found.append(world.step()[:2])
        n_asked += sum(world.policy._asked)
    rate = sum(t for t, _ in found) / sum(s for _, s in found)
    return rate / world.fixed_rate(0), n_asked / (n_steps * len(world.seqs))


@pytest.mark.parametrize("asking_s", [1e-4, 5e-4, 5e-3])
@pytest.mark.parametrize("n_seqs", [1, 8, 16])
def test_drafting_stops_where_the_asking_takes_longer_than_it_saves(asking_s: float, n_seqs: int) -> None:
    world = World(LINEAR, lambda s, d: 0.3, n_seqs=n_seqs, asking_s=asking_s, min_rows=1)
    _shares(world, 100)
    speed, asked = _shares(world, 1500)
    assert speed > 0.98
    assert 0 < asked < 0.5 * (asking_s < 5e-4) + 0.1


def test_drafting_goes_on_where_it_saves_more_than_the_asking_takes() -> None:
    world = World(LEVEL, lambda s, d: 0.6, n_seqs=16, asking_s=2e-4, min_rows=1)
    _shares(world, 100)
    speed, asked = _shares(world, 300)
    assert speed > 1.3
    assert asked == 1


def test_drafting_that_was_too_dear_is_taken_up_again_once_it_pays() -> None:
    alpha = 0.05
    world = World(LEVEL, lambda s, d: alpha, n_seqs=8, asking_s=2e-3, min_rows=1)
    _shares(world, 200)
    _, asked = _shares(world, 300)
    assert asked < 0.1
    alpha = 0.9
    _shares(world, 500)
    speed, asked = _shares(world, 100)
    assert asked > 0.95
    assert speed > 1.5
    world.drafter.asking_s = 0.1
    _shares(world, 50)
    speed, asked = _shares(world, 1000)
    assert asked < 0.05
    assert speed > 0.98


def test_only_those_are_asked_whose_drafts_pay() -> None:
    world = World(LEVEL, lambda s, d: (0.02, 0.9)[s % 2], n_seqs=8, asking_s=1e-3, min_rows=1)
    _shares(world, 300)
    counts = np.zeros(8)
    for _ in range(300):
        world.step()
        counts += world.policy._asked
    assert counts[1::2].min() > 290
    assert counts[::2].max() < 100


def test_fewer_sequences_have_a_record_of_their_own() -> None:
    """What does not pay for sixteen may pay for one: nothing has to be unlearnt first."""
    world = World(AVX2 | {64: 0.2}, lambda s, d: 0.8, n_seqs=16, asking_s=2e-3, min_rows=1)
    _shares(world, 300)
    everybody = world.seqs
    world.seqs = everybody[:1]
    _, asked = _shares(world, 20)
    assert asked > 0.8


def test_trials_take_a_hundredth_of_the_time_catching_up_included() -> None:
    asking = Asking()
    seqs = [sequence(i) for i in range(4)]
    spent_s, n_trials = 0.0, [0] * 4
    for _ in range(5000):
        prices = [(0.002, 0.01)] * 4
        asked = asking.choose(seqs, prices, 0.02)
        for i, ask in enumerate(asked):
            if ask:
                asking.observe(i, 4, 0.0)
                spent_s, n_trials[i] = spent_s + 0.012, n_trials[i] + 1
    assert 0.007 < spent_s / (5000 * 0.02) < 0.011
    assert min(n_trials) > 15
    asking.forget(0)
    assert not asking._own.keys() & {(0, 2)}
    assert 0 not in asking._asked


def test_a_stopwatch_gives_the_mean_of_late_and_is_not_led_by_one_interruption() -> None:
    now = 0.0
    watch = Stopwatch(1.0, clock=lambda: now)
    for took in [0.5] * 100:
        watch.start()
        now += 2 * took
        watch.stop()
        watch.lap(2)
    assert watch.seconds == pytest.approx(0.5, abs=0.01)
    watch.start()
    now += 1000
    watch.stop()
    watch.lap(0)  # nothing was done: forgotten
    assert watch.seconds == pytest.approx(0.5, abs=0.01)
    watch.start()
    now += 1000
    watch.stop()
    watch.lap(1)
    assert watch.seconds < 0.54
