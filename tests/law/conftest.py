"""Linear programs of the tournament are solved once a context, not once for everything that can happen there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wager.types import F64
from wager.verify import khisti


@pytest.fixture(autouse=True, scope="session")
def _solved_once() -> Iterator[None]:
    solve, known = khisti.meeting, {}

    def meeting(p: F64, r: F64, q: F64) -> khisti.Meeting:
        key = p.tobytes(), r.tobytes(), q.tobytes()
        if key not in known:
            known[key] = solve(p, r, q)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(khisti, "meeting", meeting)
        yield
