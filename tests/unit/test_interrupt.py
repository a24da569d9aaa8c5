"""Ctrl-C waits for the end of a step.

In processes of their own: openvino-genai's pipelines, which other tests run, leave the main thread an alternate signal
stack that is gone, and a signal then ends the process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PRELUDE = """
import signal, threading
from wager.interrupt import whole
done = []
def interrupt():
    signal.raise_signal(signal.SIGINT)
"""


def outcome(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(("n", "reached"), [(1, "True"), (2, "False")])
def test_one_interrupt_waits_for_the_end_of_the_block_and_a_second_does_not(n: int, reached: str) -> None:
    code = f"""
try:
    with whole():
        for _ in range({n}):
            interrupt()
        done.append(True)
except KeyboardInterrupt:
    print(bool(done), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert outcome(code) == f"{reached} True"


def test_other_handlers_are_left_alone() -> None:
    code = """
signal.signal(signal.SIGINT, lambda number, frame: done.append(number))
with whole():
    interrupt()
    print(len(done))
"""
    assert outcome(code) == "1"


def test_other_threads_are_left_alone() -> None:
    code = """
def elsewhere():
    with whole():
        done.append(True)
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
print(len(done))
"""
    assert outcome(code) == "1"
