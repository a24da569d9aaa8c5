"""Ctrl-C waits for the end of a step."""

from __future__ import annotations

import signal
import threading

import pytest

from wager.interrupt import whole


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def block():
        with whole():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait():
    done = []

    def block():
        with whole():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert not done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_and_other_threads_are_left_alone():
    seen = []
    old = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with whole():
            signal.raise_signal(signal.SIGINT)
            assert seen
    finally:
        signal.signal(signal.SIGINT, old)
    entered = []

    def elsewhere():
        with whole():
            entered.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert entered
