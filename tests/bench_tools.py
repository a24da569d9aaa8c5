"""A measurement without models: runners that answer from a script, at a speed that is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from wager.bench.answer import Answer, Request
from wager.bench.journal import Journal
from wager.bench.methods import parse_methods
from wager.bench.run import EncodedPrompt, Measurement
from wager.types import Sampling

N_TOKENS = 12
SHARES = {"draft": 0.04, "target": 0.9, "host": 0.06}
FORGET = Request([], Sampling(max_tokens=1))
PROMPTS = [EncodedPrompt("p0", "a", [1, 2]), EncodedPrompt("p1", "a", [3]), EncodedPrompt("p2", "b", [4, 5])]
Reply = Callable[[Request], list[int]]


def counting(request: Request) -> list[int]:
    return [request.tokens[0] + i for i in range(min(N_TOKENS, request.sampling.max_tokens))]


class FakeRunner:
    """Takes ``step_s`` a token after a first token at 1 s; writes down who was asked what, in order."""

    def __init__(self, name: str, log: list[tuple[str, Request]], *, step_s: float = 1.0, reply: Reply = counting):
        self.settings: dict[str, Any] = {}
        self.closed = False
        self._name, self._log, self._step_s, self._reply = name, log, step_s, reply

    def run(self, request: Request) -> Answer:
        self._log.append((self._name, request))
        tokens = self._reply(request)
        n = len(tokens)
        times_s = [1.0 + self._step_s * i for i in range(n)]
        decode_s = times_s[-1] - 1.0
        parts = {f"decode_{part}_s": share * decode_s for part, share in SHARES.items()}
        stats = {"n_forwards": n, "n_drafted": 4, "n_accepted": 2, "accepted_by_depth": [[1, 3], [1, 1]], **parts}
        return Answer(tokens, times_s, "length", {} if self._name.startswith("genai") else stats)

    def forget(self) -> None:
        self._log.append((self._name, FORGET))

    def close(self) -> None:
        self.closed = True


class Bench:
    """A measurement with fake runners in a folder of its own; ``measure`` may be called again to continue."""

    def __init__(self, folder: Path, names: str, **speeds: float) -> None:
        self.folder, self.methods = folder, parse_methods(names)
        self.log: list[tuple[str, Request]] = []
        self.said: list[str] = []
        self.ticks: list[tuple[str, int, int]] = []
        self.runners = {m.name: FakeRunner(m.name, self.log, step_s=speeds.get(m.name, 1.0)) for m in self.methods}
        self.exact = frozenset(m.name for m in self.methods if m.is_ours)

    def measure(self, *, repeats: int = 1, temperature: float = 0.0, max_tokens: int = 64, **more: Any) -> Measurement:
        cpu = {"name": "chip", "n_cores": 2, "flags": ["avx2"]}
        settings = {"methods": [m.name for m in self.methods], "model": "m", "suite": "s.jsonl", "seed": 5}
        settings |= {"max_tokens": max_tokens, "temperature": temperature, "ignore_eos": False}
        provenance = {"started": "now", "load": [], "command": [], "git": None, "cpu": cpu, "settings": settings}
        journal = Journal(self.folder, {**provenance, "versions": {"wager": "0", "openvino": "1"}, **more})
        for name, runner in self.runners.items():
            journal.add({"kind": "method", "method": name, "settings": runner.settings})
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=5)
        measurement = Measurement(
            journal, self.methods, dict(self.runners), PROMPTS, sampling, repeats, self.exact, self.said.append,
            lambda *tick: self.ticks.append(tick),
        )  # fmt: skip
        try:
            measurement.run()
        finally:
            journal.close()
        return measurement

    def order(self) -> list[str]:
        """Methods as they were asked, warm-ups left out."""
        return [name for name, request in self.log if request.sampling.max_tokens > 16]
