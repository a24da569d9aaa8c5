"""A stand-in for the engine, for what the command line does with answers, errors and interrupts."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wager.cli import main
from wager.errors import WagerError
from wager.record import RunStats
from wager.types import Event, Sampling


@dataclass
class FakeCompletion:
    text: str
    tokens: list[int]
    finish: str
    seed: int
    stats: RunStats
    n_prompt: int = 3
    logprobs: list[Any] = field(default_factory=list)


class FakeLLM:
    """Answers "one two three " token by token; class-level switches make it misbehave."""

    made: list[FakeLLM]
    fails: Callable[[bool, int], BaseException | None]
    tokens: Callable[[bool], list[int]]

    def __init__(self, model: str = "", **options: Any) -> None:
        self.options = {"model": model} | options
        self.calls: list[dict[str, Any]] = []
        self.closed = False
        self.info = {"model": model, "exactness": "bit-identical"}
        self.text = SimpleNamespace(token_text=lambda token: f"<{token}>")
        type(self).made.append(self)
        if isinstance(error := options.get("threads"), int) and error == 13:
            raise WagerError("`13` threads\nbring bad luck: choose another number")

    def sampling(self, **given: Any) -> Sampling:
        return replace(Sampling(temperature=0.7), **given)

    def stream(self, prompt: Any, sampling: Sampling, *, on_event: Any, speculate: bool = True, **rest: Any) -> Any:
        self.calls.append({"prompt": prompt, "sampling": sampling, "speculate": speculate, **rest})
        tokens = type(self).tokens(speculate)
        for i, (token, text) in enumerate(zip(tokens, ["one ", "two ", "three "], strict=True)):
            if (error := type(self).fails(speculate, i)) is not None:
                raise error
            on_event(Event(0, (token,), text, "length" if i == 2 else None))
        stats = RunStats(n_tokens=3, n_forwards=2 if speculate else 3, n_drafted=2 * speculate, n_accepted=speculate)
        stats.first_token_s, stats.total_s, stats.n_tokens_first = 0.5, 1.5 if speculate else 2.5, 1
        seed = 99 if sampling.seed is None else sampling.seed
        return FakeCompletion("one two three ", tokens, "length", seed, stats)

    def chat_stream(self, messages: Any, sampling: Sampling, *, on_event: Any, speculate: bool = True) -> Any:
        return self.stream(list(messages), sampling, on_event=on_event, speculate=speculate)

    def explain(self, tell: Any) -> None:
        tell("step 1: because")

    def warm_up(self) -> None:
        self.calls.clear()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> type[FakeLLM]:
    """``wager.llm.LLM`` replaced; ``llm.made[-1]`` is the instance that the command made."""

    class Fresh(FakeLLM):
        made = []  # noqa: RUF012 (each test has its own class)
        fails = staticmethod(lambda speculate, i: None)
        tokens = staticmethod(lambda speculate: [1, 2, 3])

    module = ModuleType("wager.llm")
    module.LLM = Fresh  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wager.llm", module)
    return Fresh


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def wager(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs one command line in this process; ``stdin`` are bytes (None: a terminal without input)."""

    def run(*args: str, stdin: bytes | None = None) -> Result:
        source = io.TextIOWrapper(io.BytesIO(stdin or b""), encoding="utf-8")
        source.isatty = lambda: stdin is None  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", source)
        with pytest.raises(SystemExit) as exit_:
            main(args)
        out, err = capsys.readouterr()
        code = exit_.value.code
        return Result(0 if code is None else int(code), out, err)

    return run
