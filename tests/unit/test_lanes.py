"""Which compiled graph a forward takes, and when another one is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from wager.models.lanes import OWN, PLUGIN, Lane, Lanes, Prices


def lanes(prices: Prices, widths: tuple[int, ...] = (1, 8, 4, 32)) -> Lanes:
    return Lanes(lambda width: Lane(None, width), Lane(None), widths, prices)


def test_a_graph_that_may_not_take_fewer_rows_takes_its_own_number_alone() -> None:
    some = lanes(PLUGIN)
    some.add_all()
    assert [some.of(n).width for n in (1, 2, 4, 7, 8, 32, 33)] == [1, None, 4, None, 8, 32, None]


def test_the_smallest_graph_that_takes_the_rows_is_taken() -> None:
    some = lanes(OWN)
    assert some.of(3).width is None
    some.add(8)
    assert [some.of(n).width for n in (1, 3, 8, 9)] == [8, 8, 8, None]
    some.add_all()
    assert [some.of(n).width for n in (1, 2, 4, 5, 8, 9, 32, 33)] == [1, 4, 4, 8, 8, 32, 32, None]


def test_graphs_are_added_in_order_or_as_asked() -> None:
    some = lanes(OWN)
    assert some.add_one(3)
    assert not some.add_one(3)
    assert not some.add_one(100)
    assert [width in some for width in (1, 4, 8, 32)] == [False, True, False, False]
    assert [some.add_one() for _ in range(4)] == [True, True, True, False]
    assert some.complete


@pytest.mark.parametrize("prices", [OWN, PLUGIN], ids=["own", "plugin"])
def test_doing_without_costs_no_more_than_twice_the_best(prices: Prices) -> None:
    """Ski rental: what was lost before a graph is compiled is about what compiling takes."""
    some, n = lanes(prices), 0
    while some.of(8).width is None:
        n += 1
    assert abs(n * prices.saves - prices.compiling) <= prices.saves + prices.switch


def test_a_graph_that_others_stand_in_for_is_compiled_later() -> None:
    some, n = lanes(OWN), 0
    some.add(8)
    while some.of(4).width == 8:
        n += 1
    assert some.of(4).width == 4
    assert OWN.borrowing is not None
    assert n * OWN.borrowing >= OWN.compiling - 1


def test_rows_after_those_in_use_keep_what_they_had() -> None:
    class Request:
        def set_tensor(self, name: str, tensor: object) -> None:
            pass

    lane = Lane(Request(), 4)
    lane.put_rows("ids", np.array([5, 6], np.int64))
    assert lane._inputs["ids"].tolist() == [5, 6, 0, 0]
    lane.put_rows("ids", np.array([1, 2, 3, 4], np.int64))
    lane.put_rows("ids", np.array([9], np.int64))
    assert lane._inputs["ids"].tolist() == [9, 2, 3, 4]
