"""Rules on numbers against every candidate that could be better, and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decide_tools import NUMBERS, fixed, risks
from wager.decide import rules
from wager.decide.law import Law, as_numbers
from wager.decide.options import Options
from wager.decide.rules import decide, rule_for, rule_named
from wager.errors import OptionError

METRICS = [
    "rmse",
    "mse",
    "mae",
    "pinball:0.1",
    "pinball:0.75",
    "mape",
    "msle",
    "huber:0.3",
    "huber:2",
    "within:0.25",
    "within:0.5",
    "within:0",
]
SHIFTS = np.array([0, -2, -0.5, -0.3, -0.25, 0.25, 0.3, 0.5, 2])


def everywhere(values: np.ndarray) -> list[float]:
    """A fine grid around the values, and the points where a piecewise loss can turn."""
    fine = np.linspace(max(values.min() - 1, -0.9), values.max() + 1, 97)
    turns = (values[:, None] + SHIFTS).ravel()
    middles = (values[:, None] + values[None, :]).ravel() / 2
    return [float(x) for x in np.concatenate([fine, turns[turns > -1], middles])]


@pytest.mark.parametrize("metric", METRICS)
def test_no_number_is_better(metric: str) -> None:
    @fixed
    @given(NUMBERS)
    def check(laws: list[Law]) -> None:
        for law in laws:
            chosen = decide(law, rule_for(metric)).value
            found = risks(metric, law, [chosen, *everywhere(as_numbers(law))])
            assert found[0] <= found[1:].min() + 1e-9, law

    check()


@pytest.mark.parametrize("metric", METRICS)
def test_on_a_grid_no_other_point_is_better_and_the_lowest_wins(metric: str) -> None:
    grid = (3.0, 0.0, 1.0, 2.5, 5.0, 2.0)

    @fixed
    @given(NUMBERS)
    def check(laws: list[Law]) -> None:
        for law in laws:
            chosen = decide(law, rule_for(metric), options=Options(grid=grid)).value
            found = risks(metric, law, sorted(grid))
            assert chosen == sorted(grid)[int(np.argmax(found <= found.min() + 1e-9))], law

    check()


@fixed
@given(NUMBERS)
def test_on_a_grid_squared_error_takes_the_point_nearest_to_the_mean(laws: list[Law]) -> None:
    grid = np.arange(0, 61, 2.5)
    for law in laws:
        y, w = as_numbers(law), law.weights
        chosen = rules.on_grid(y, w, grid=grid, loss=lambda a, b: (a - b) ** 2)
        gaps = np.abs(grid - rules.mean(y, w))
        assert abs(chosen - rules.mean(y, w)) <= gaps.min() + 1e-9


@fixed
@given(NUMBERS, st.sampled_from([0.5, 2.0, 4.0]), st.integers(-5, 5))
def test_scale_and_shift_go_through(laws: list[Law], scale: float, shift: int) -> None:
    for law in laws:
        y, w = as_numbers(law), law.weights
        moved = scale * y + shift
        for rule in (rules.mean, rules.median):
            assert rule(moved, w) == pytest.approx(scale * rule(y, w) + shift, abs=1e-9)
        assert rules.quantile(moved, w, tau=0.3) == pytest.approx(scale * rules.quantile(y, w, tau=0.3) + shift)
        huber = rules.huber_point(moved, w, delta=scale * 0.7)
        assert huber == pytest.approx(scale * rules.huber_point(y, w, delta=0.7) + shift, abs=1e-6)
        window = rules.window_centre(moved, w, eps=scale * 0.5)
        assert window == pytest.approx(scale * rules.window_centre(y, w, eps=0.5) + shift)


@fixed
@given(NUMBERS, st.integers(0, 99))
def test_order_duplicates_and_the_scale_of_weights_do_not_matter(laws: list[Law], seed: int) -> None:
    for law in laws[:8]:
        order = np.random.default_rng(seed).permutation(len(law))
        values = [*(law.values[i] for i in order), *law.values]
        weights = np.concatenate([3 * law.weights[order], 4 * law.weights])
        split = Law(values=tuple(values), weights=weights / weights.sum())
        for spec in METRICS:
            assert decide(split, rule_for(spec)).value == pytest.approx(decide(law, rule_for(spec)).value, abs=1e-7)


def test_the_lowest_of_equally_good_numbers() -> None:
    two = ([1.0, 2.0], [1, 1])
    assert rules.median(*two) == 1.0
    assert rules.median([2.0, 1.0], [1, 1]) == 1.0
    assert rules.median([1, 2, 3], [0.1 + 0.2, 0.2, 0.5]) == 2  # 0.1 + 0.2 + 0.2 is above 1/2 by rounding, or below
    assert rules.quantile(list(range(10)), [0.1] * 10, tau=0.3) == 2  # three times 0.1 is more than 0.3
    assert rules.huber_point([0.0, 10.0], [1, 1], delta=1) == 1.0  # flat between 1 and 9
    assert rules.window_centre([0.0, 1.0, 5.0, 6.0], [1, 1, 1, 1], eps=0.5) == 0.5
    assert rules.window_centre([0.2, 0.3, 9.0], [1, 1, 1], eps=0.05) == pytest.approx(0.25)
    assert rules.on_grid([0.0, 1.0], [1, 1], grid=[1.0, 0.0], loss=lambda y, x: (y - x) ** 2) == 0.0


def test_outcomes_without_a_loss() -> None:
    assert rules.percentage_median([0.0, 4.0, 1.0], [10, 1, 1]) == 1.0  # 1 / |y| makes the small one heavy
    assert rules.percentage_median([0.0], [1]) == 0.0
    law = Law.of([0.0])
    assert decide(law, rule_for("mape"), options=Options(grid=(3.0, 2.0))).value == 2.0
    with pytest.raises(OptionError, match=r"-1\.5"):
        rules.log_mean([0.0, -1.5], [1, 1])


def test_expected_rank_is_the_middle_rank_in_the_reference() -> None:
    reference = [1.0, 2.0, 2.0, 4.0]
    assert rules.expected_rank([2.0], [1], reference=reference) == pytest.approx(0.5)
    assert rules.expected_rank([0.0, 9.0], [1, 3], reference=reference) == pytest.approx(0.75)
    law = Law.of([0.0, 9.0], [1, 3])
    assert decide(law, rule_named("expected-rank"), options=Options(reference=(1.0, 2.0))).value == pytest.approx(0.75)
    assert decide(law, rule_named("expected-rank")).value == pytest.approx(6.75)  # the mean, without a reference


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rules.mean([], []), "0 values"),
        (lambda: rules.mean([1.0], [-1.0]), "weights"),
        (lambda: rules.mean([1.0, 2.0], [0.0, 0.0]), "not all 0"),
        (lambda: rules.mean([float("nan")], [1.0]), "finite"),
        (lambda: rules.quantile([1.0], [1], tau=1.0), "tau"),
        (lambda: rules.huber_point([1.0], [1], delta=0), "delta"),
        (lambda: rules.window_centre([1.0], [1], eps=-1), "eps"),
        (lambda: rules.expected_rank([1.0], [1], reference=[]), "reference"),
        (lambda: decide(Law.of(["a"]), rule_for("rmse")), "numbers"),
        (lambda: decide(Law.of([1.0]), rule_for("pearson"), options=Options(labels=("a",))), "labels"),
        (lambda: rule_for("rmse:2"), "no value"),
        (lambda: rule_named("mean:2"), "no value"),
        (lambda: rule_for("pinball:1"), r"\(0, 1\)"),
        (lambda: rule_for("nonsense"), "accuracy"),
        (lambda: rule_named("nonsense"), "median"),
    ],
)
def test_what_cannot_be_done_is_said(call: object, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        call()  # type: ignore[operator]


def test_an_empty_law_gives_the_fallback_and_the_reason() -> None:
    nothing = decide(Law.of([None, None]), rule_for("rmse"))
    assert nothing.value is None
    assert "parsed" in nothing.reason
    assert decide(Law.of([]), rule_for("mae"), options=Options(fallback=2.5)).value == 2.5
