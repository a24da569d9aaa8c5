"""What scores of candidates cost, in forwards: ``python -m wager.bench.scoring [MODEL [REPEATS]]``.

All ways are taken in turn in every repeat, so a drifting machine is in all of them alike; ratios are medians of pairs.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from wager.bench.report import table
from wager.llm import LLM
from wager.record import StepRecord

GRID = [f" {i / 10:.1f}" for i in range(41)]
FINE = [f" {i / 100:.2f}" for i in range(201)]
PHRASES = [
    " unrelated",
    " different",
    " somewhat similar",
    " similar",
    " very similar",
    " identical",
    " the same thing",
]
ONE, FORWARD = "1 candidate", "forward of one row"
_WORDS = [
    "apple",
    "river",
    "stone",
    "cloud",
    "window",
    "garden",
    "music",
    "paper",
    "horse",
    "winter",
    "summer",
    "engine",
    "tower",
    "bridge",
    "candle",
    "mirror",
]
_N_WORDS = (25, 125)  # with a digit each: about 60 and 300 tokens of the default model


@dataclass(slots=True)
class Way:
    """Seconds of each repeat, and of the last one the rows that were fed and the forwards that took."""

    seconds: list[float] = field(default_factory=list)
    n_rows: int = 0
    n_forwards: int = 0

    def over(self, other: Way) -> float:
        """Median of the paired ratios to ``other``."""
        return median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))


def measure(llm: LLM, n_words: int, *, repeats: int, seed: int = 0) -> dict[str, Way]:
    """Ways to score after prompts of so many words, first a cached one, then (`new`) ones never seen before."""
    drawn = random.Random(seed)
    prompt = _prompt(drawn, n_words)
    ways: dict[str, Way] = {}
    for _ in range(repeats + 1):
        _time(llm, ways, FORWARD, lambda: llm.generate(prompt, llm.sampling(max_tokens=1), chat=False, speculate=False))
        for name, candidates in ((ONE, GRID[:1]), ("41", GRID), ("201", FINE), ("7 phrases", PHRASES)):
            _time(llm, ways, name, partial(llm.score, prompt, candidates, chat=False))
        _time(llm, ways, "41 one by one", lambda: [llm.score(prompt, [each], chat=False) for each in GRID])
        for name, candidates in ((f"{ONE}, new prompt", GRID[:1]), ("41, new prompt", GRID)):
            _time(llm, ways, name, partial(llm.score, _prompt(drawn, n_words), candidates, chat=False))
    for way in ways.values():
        del way.seconds[0]
    return ways


def lines(ways: dict[str, Way]) -> list[list[str]]:
    """Of a table with ``HEADER``."""
    return [
        [
            name,
            str(way.n_forwards),
            str(way.n_rows),
            f"{1e3 * median(way.seconds):.1f}",
            f"{way.over(ways[FORWARD]):.1f}",
            f"{way.over(ways[ONE]):.1f}",
        ]
        for name, way in ways.items()
    ]


HEADER = ["what", "forwards", "rows", "ms", "of one forward", "of one candidate"]


def _prompt(drawn: random.Random, n_words: int) -> str:
    return " ".join(drawn.choice(_WORDS) + str(drawn.randrange(10)) for _ in range(n_words)) + ". Score:"


def _time(llm: LLM, ways: dict[str, Way], name: str, ask: Callable[[], object]) -> None:
    """Of a forward, of which the others are multiples, only itself counts; of the rest all that passes."""
    steps: list[StepRecord] = []
    told, llm.engine.on_step = llm.engine.on_step, steps.append
    start = time.perf_counter()
    try:
        ask()
    finally:
        seconds = time.perf_counter() - start
        llm.engine.on_step = told
    way = ways.setdefault(name, Way())
    way.seconds.append(sum(step.target_s for step in steps) if name == FORWARD else seconds)
    way.n_rows, way.n_forwards = sum(step.n_rows for step in steps), len(steps)


def main(model: str = "smollm2-135m", repeats: str = "9") -> None:
    """Print a table for each length of prompt."""
    llm = LLM(model, drafter="none")
    llm.warm_up()
    for n_words in _N_WORDS:
        n_tokens = len(llm.encode(_prompt(random.Random(0), n_words), chat=False))
        print(f"after {n_tokens} tokens\n")
        print(table(HEADER, lines(measure(llm, n_words, repeats=int(repeats)))), "\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
