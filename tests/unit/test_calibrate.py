"""What a calibration makes of its timings, on a clock of our own."""

from __future__ import annotations

import pytest

from wager import calibrate


def test_the_price_of_a_switch_is_what_a_change_of_width_adds(monkeypatch):
    last = None

    def seconds(model, n_rows, context):
        nonlocal last
        changed, last = n_rows != last, n_rows
        return n_rows + (5.0 if changed else 0.0)

    monkeypatch.setattr(calibrate, "forward_seconds", seconds)
    assert calibrate.switch_seconds(None, (2, 4, 8, 16)) == pytest.approx(5.0)
