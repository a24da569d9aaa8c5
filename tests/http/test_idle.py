"""A server with nothing to do compiles the graphs that its first answers would otherwise wait for."""

from __future__ import annotations

import time

from wager import LLM
from wager.serve.loop import EngineLoop


def test_an_idle_loop_prepares_and_survives_what_fails(tiny_llama):
    llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.05)
    called: list[int] = []

    def prepare() -> None:
        called.append(len(called))
        if len(called) == 2:
            raise RuntimeError("no memory")

    loop = EngineLoop(llm.engine, llm.text, max_queue=1, on_idle=prepare)
    loop.start()
    deadline = time.monotonic() + 20
    while len(called) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.2)  # longer than an idle thread waits: what failed is left alone
    assert called == [0, 1]
    assert loop.stalled_s() < 2
    loop.close()
