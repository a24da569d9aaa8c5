"""The measurement of what scores cost, on a tiny model: what is fed how often, and ratios by pairs."""

from __future__ import annotations

import pytest

from wager import LLM
from wager.bench import scoring
from wager.bench.scoring import FORWARD, ONE, Way


def test_ways_are_counted_and_compared(tiny_llama, tmp_path_factory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)
    told = llm.engine.on_step
    ways = scoring.measure(llm, 4, repeats=2)
    assert llm.engine.on_step is told
    assert all(len(way.seconds) == 2 and min(way.seconds) > 0 for way in ways.values())
    assert ways["41 one by one"].n_forwards == 41
    assert ways[FORWARD].n_forwards == ways[ONE].n_forwards == 1
    assert ways["41, new prompt"].n_rows > ways["41"].n_rows > ways[ONE].n_rows
    for line in scoring.lines(ways):
        assert len(line) == len(scoring.HEADER)
    assert Way([4.0, 2.0, 9.0]).over(Way([1.0, 2.0, 3.0])) == 3.0
