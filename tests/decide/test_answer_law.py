"""Laws: merging, scores, averages over chains, importance weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from wager.decide.law import Law, as_mapping, as_numbers, average, effective_size, importance, tempering
from wager.errors import OptionError


def test_equal_values_are_merged_in_order_of_appearance() -> None:
    law = Law.of(["b", "a", "b", None], [1, 1, 2, 4], covered=0.5, n_tokens=7)
    assert as_mapping(law) == pytest.approx({"b": 0.75, "a": 0.25})
    assert law.values == ("b", "a")
    assert (law.covered, law.n_tokens, len(law)) == (0.25, 7, 2)
    assert Law.of([1, 1.0, True]).values == (1,)


def test_nothing_parsed_covers_nothing() -> None:
    for law in (Law.of([], n_tokens=3), Law.of([None, None], n_tokens=3), Law.scored(["a"], [-math.inf], n_tokens=3)):
        assert (len(law), law.covered, law.n_tokens) == (0, 0.0, 3)


def test_scored_candidates_are_a_softmax_and_forms_are_summed() -> None:
    logs = np.log([0.2, 0.1, 0.1])
    law = Law.scored([4.0, 4.0, 5.0], logs)
    assert as_mapping(law) == pytest.approx({4.0: 0.75, 5.0: 0.25})
    assert law.covered == pytest.approx(0.4)
    far = Law.scored(["a", "b"], [-2000.0, -2000.0 + math.log(3)])  # exp of these is 0
    assert as_mapping(far) == pytest.approx({"a": 0.25, "b": 0.75})


def test_the_mean_of_laws_of_chains() -> None:
    first = Law.of(["a", "b"], [3, 1], covered=0.8, n_tokens=10)
    second = Law.of(["b"], covered=0.4, n_tokens=20)
    empty = Law.of([], n_tokens=5)
    both = average([first, second, empty])
    assert as_mapping(both) == pytest.approx({"a": 0.375, "b": 0.625})
    assert both.covered == pytest.approx(0.4)
    assert both.n_tokens == 35
    assert as_mapping(average([first, second], [1, 3])) == pytest.approx({"a": 0.1875, "b": 0.8125})
    assert len(average([empty])) == 0


def test_draws_at_one_are_weighed_for_another_temperature() -> None:
    """Seed 0, 40 000 draws: the weighted law is p^(1/T) normalised, within 0.02 (over 5 standard errors)."""
    rng = np.random.default_rng(0)
    p = np.array([0.5, 0.3, 0.2])
    draws = rng.choice(3, 40_000, p=p)
    for temperature in (0.5, 2.0):
        law = Law.of(draws.tolist(), tempering(np.log(p[draws]), temperature=temperature))
        wanted = p ** (1 / temperature) / (p ** (1 / temperature)).sum()
        assert [as_mapping(law)[i] for i in range(3)] == pytest.approx(wanted, abs=0.02)
    assert tempering([-1.0, -9.0], temperature=1.0).tolist() == [0.5, 0.5]


def test_importance_weights_survive_large_numbers() -> None:
    assert importance([-5000.0, -5001.0], [-10.0, -11.0]).tolist() == [0.5, 0.5]
    assert effective_size([1, 1, 1, 1]) == 4
    assert effective_size([1, 0, 0]) == 1
    assert effective_size([]) == 0


def bad(call: Any, says: str) -> Any:
    return pytest.param(call, says, id=says)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        bad(lambda: Law.of(["a"], [-1.0]), ">= 0"),
        bad(lambda: Law.of(["a"], [math.nan]), "finite"),
        bad(lambda: Law.of(["a", "b"], [1.0]), "2 finite"),
        bad(lambda: Law.of(["a"], [0.0]), "all zero"),
        bad(lambda: Law.of([{"a"}]), "frozensets"),
        bad(lambda: Law.scored(["a"], [math.nan]), "logprobs"),
        bad(lambda: Law.scored(["a"], [0.0, 0.0]), "1 log"),
        bad(lambda: average([Law.of(["a"])], [1.0, 2.0]), "1 numbers"),
        bad(lambda: tempering([0.0], temperature=0.0), "temperature"),
        bad(lambda: importance([math.nan], [0.0]), "per draw"),
        bad(lambda: as_numbers(Law.of(["1"])), "needs numbers"),
        bad(lambda: as_numbers(Law.of([True])), "needs numbers"),
        bad(lambda: as_numbers(Law.of([math.inf])), "finite"),
    ],
)
def test_what_is_no_law_is_said(call: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        call()
