"""The time of a forward: table, calibration, and learning from noisy steps."""

from __future__ import annotations

import json

import numpy as np
import pytest

from wager.cost import StepCost

CURVE = {2: 0.013, 4: 0.018, 8: 0.031, 16: 0.046}


def _calibrated(slope: float = 0.0, switch_s: float = 0.0) -> StepCost:
    cost = StepCost(CURVE)
    cost.calibrate([(w, c, CURVE[w] + slope * c) for w, c in cost.calibration_plan()], switch_s=switch_s)
    return cost


def test_before_calibration_it_is_a_guess_and_says_so() -> None:
    cost = StepCost([2, 8])
    assert not cost.calibrated
    assert 0 < cost.predict(2, 1, 0) < cost.predict(8, 1, 0)


def test_rows_are_padded_to_the_next_width() -> None:
    cost = _calibrated()
    assert [cost.width_for(n) for n in (1, 2, 3, 8, 9, 16, 17, 99)] == [2, 2, 4, 8, 16, 16, 17, 99]
    assert cost.predict(5, 1, 0) == cost.predict(8, 1, 0) == pytest.approx(0.031)


def test_beyond_the_widest_it_goes_on_in_a_line() -> None:
    assert _calibrated().predict(32, 1, 0) == pytest.approx(0.046 + 16 * 0.015 / 8)


def test_calibration_takes_medians_and_the_slope_in_the_context() -> None:
    cost = StepCost(CURVE)
    timings = [(w, c, CURVE[w] + 2e-6 * c) for w, c in cost.calibration_plan(contexts=(16, 1024), n_repeats=5)]
    timings[0] = (*timings[0][:2], 9.0)
    cost.calibrate(timings)
    assert cost.calibrated
    assert cost.predict(4, 1, 4000) == pytest.approx(0.018 + 0.008)


def test_widths_that_were_not_timed_lie_between_their_neighbours_or_on_the_guess() -> None:
    cost = StepCost([1, 2, 4, 8, 16])
    guess = cost.predict(16, 1, 0) / cost.predict(8, 1, 0)
    cost.calibrate([(2, 0, 0.1), (8, 0, 0.4), (2, 100, 0.2), (8, 100, 0.8)])
    assert cost.predict(4, 1, 0) == pytest.approx(0.2)
    assert cost.predict(4, 1, 100) == pytest.approx(0.4)
    assert 0 < cost.predict(1, 1, 0) < cost.predict(2, 1, 0)
    cost = StepCost([8, 16])
    cost.calibrate([(8, 0, 0.4)])
    assert cost.predict(16, 1, 0) / cost.predict(8, 1, 0) == pytest.approx(guess)


def test_steps_correct_a_wrong_calibration_in_spite_of_outliers() -> None:
    rng = np.random.default_rng(0)
    cost = _calibrated()
    for _ in range(60):
        cost.observe(8, 1, 100, 0.05 * (1 + 0.05 * rng.normal()) * (3 if rng.random() < 0.2 else 1))
    assert cost.predict(8, 1, 100) == pytest.approx(0.05, rel=0.1)


def test_a_busy_machine_slows_every_width() -> None:
    cost = _calibrated()
    for _ in range(100):
        cost.observe(4, 1, 0, 2 * CURVE[4])
    assert cost.predict(16, 1, 0) == pytest.approx(2 * CURVE[16], rel=0.1)
    assert cost.predict(16, 4, 0) == pytest.approx(CURVE[16])  # batches are told apart


def test_switching_is_not_charged_to_the_width() -> None:
    cost = _calibrated(switch_s=0.005)
    for _ in range(100):
        cost.observe(2, 1, 0, CURVE[2] + 0.005)
        cost.observe(8, 1, 0, CURVE[8] + 0.005)
    assert cost.predict(2, 1, 0) == pytest.approx(CURVE[2], rel=0.03)


def test_old_measurements_fade() -> None:
    """A width that was slow for a while and is not used any more: most of that is forgotten."""
    cost = _calibrated()
    for _ in range(40):
        cost.observe(8, 1, 0, 0.09)
    assert cost.predict(8, 1, 0) > 0.08
    for _ in range(3000):
        cost.observe(2, 1, 0, CURVE[2])
    assert cost.predict(8, 1, 0) == pytest.approx(CURVE[8], rel=0.3)


def test_steps_correct_the_shape_of_the_table_for_the_next_time() -> None:
    cost = StepCost([2, 8])
    cost.calibrate([(2, 16, 0.05), (8, 16, 0.05)])  # on a busy machine; in truth 8 rows take twice as long as 2
    for _ in range(400):
        cost.observe(2, 1, 16, 0.01)
        cost.observe(8, 1, 16, 0.02)
    again = StepCost.from_json(cost.to_json())
    assert again.predict(8, 1, 16) / again.predict(2, 1, 16) == pytest.approx(2, rel=0.1)


def test_prompt_reading_is_not_a_held_width() -> None:
    cost = _calibrated()
    cost.observe(512, 1, 0, 5.0)
    assert cost.predict(16, 1, 0) == pytest.approx(CURVE[16])


def test_json_round_trip() -> None:
    cost = _calibrated(slope=1e-6, switch_s=0.005)
    again = StepCost.from_json(json.loads(json.dumps(cost.to_json())))
    assert again.calibrated
    assert again.switch_s == 0.005
    assert again.widths == cost.widths
    assert all(again.predict(w, 1, 777) == cost.predict(w, 1, 777) for w in cost.widths)


@pytest.mark.parametrize("widths", [[], [4, 2], [2, 2]])
def test_widths_ascend(widths: list[int]) -> None:
    with pytest.raises(AssertionError):
        StepCost(widths)
