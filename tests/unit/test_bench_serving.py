"""What a server under load is said to have done, from the rows alone."""

from __future__ import annotations

import pytest

from wager.bench.serving import cells, differences, errors, markdown
from wager.types import JSON


def load(mode: str, n_clients: int, seconds: float, *texts: str | None) -> JSON:
    """A round's row: each answer has five tokens, the first after 0.1 s, the others 0.1 s apart; None: it failed."""
    done = {"n_tokens": 5, "first_s": 0.1, "total_s": 0.5}
    requests = [{"error": "no"} if text is None else {**done, "text": text} for text in texts]
    return {"round": 0, "n_clients": n_clients, "mode": mode, "seconds": seconds, "requests": requests}


def test_cells_tell_speed_and_latency_of_what_was_answered() -> None:
    off, on = cells([load("off", 2, 1.0, "a", "b"), load("on", 2, 0.5, "b", None)])
    assert (off.tokens_per_s, on.tokens_per_s) == (10.0, 10.0)
    assert off.against_off is None
    assert on.against_off is not None
    assert on.against_off.value == 1.0
    assert off.first_ms is not None
    assert off.token_ms is not None
    assert (off.first_ms.p50, off.token_ms.p99) == pytest.approx((100.0, 100.0))
    assert "| 100 (100) " in markdown([off])


def test_a_load_that_failed_as_a_whole_has_no_latency() -> None:
    [cell] = cells([load("off", 1, 1.0, None)])
    assert cell.first_ms is cell.token_ms is None
    assert "off" in markdown([cell])


def test_failures_and_other_texts_are_counted_over_all_loads() -> None:
    rows = [load("off", 1, 1, "a", "b"), load("on", 2, 1, "b", "a"), load("auto", 2, 1, "a", None)]
    assert (errors(rows), differences(rows)) == (1, 0)  # in any order; what failed in part cannot be compared
    rows += [load("auto", 1, 1, "a", "c"), {**load("genai", 1, 1, "x", "y")}]
    assert differences(rows) == 1
    later = {**load("off", 1, 1, "a", "c"), "round": 1}
    assert differences([*rows, later]) == 2  # every round asks the same
