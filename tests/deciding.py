"""Stand-ins for the model under `wager decide`: estimators whose laws follow from the prompt."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wager.decide.job import Job
from wager.decide.law import Law
from wager.decide.outcome import Outcome, run
from wager.decide.work import Asker
from wager.errors import PromptError

TOO_LONG = "too long"


@dataclass
class Estimated:
    law: Law
    values: tuple[Any, ...]


def law_of(prompt: str, values: Sequence[Any], n: int | None) -> Law:
    """All ``values`` with weights by the prompt's digest; where ``n`` is given, of so many draws."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "little"))
    weights = rng.dirichlet(np.ones(len(values)))
    if n is None:
        return Law.of(values, weights, covered=0.9, n_tokens=len(values))
    return Law.of([values[i] for i in rng.choice(len(values), n, p=weights)], n_tokens=n)


@dataclass
class FakeEstimator:
    """``asked`` collects the prompts; ``before`` may raise or wait."""

    values: Sequence[Any]
    n: int | None = None
    asked: list[str] = field(default_factory=list)
    before: Callable[[Sequence[str]], None] = lambda prompts: None

    def estimate(self, llm: Any, prompts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        self.before(prompts)
        for prompt in prompts:
            if TOO_LONG in prompt:
                raise PromptError(f"the prompt `{prompt}` is longer than the context: shorten it")
        self.asked += prompts
        laws = [law_of(prompt, self.values, self.n) for prompt in prompts]
        return [Estimated(law, law.values) for law in laws]


def fake_asker(job: Job, llm: Any, main: FakeEstimator) -> Asker:
    """As ``Job.asker`` makes it, without a model: ``main`` answers, draws agree with it."""
    assert job.answers is not None
    values = job.answers.values
    others = {name: FakeEstimator(values, None if name == "enumerate" else job.n) for name in job.others}
    compared = job.target is not None
    return Asker(
        llm=llm,
        estimators={job.main: main, **others},
        greedy=FakeEstimator(values, 1) if compared else None,
        sampled=FakeEstimator(values, job.n) if compared else None,
        seed=job.seed,
    )


def job_in(folder: Path, **given: Any) -> Job:
    """A job on ``folder``'s data.csv and prompt.txt, with labels 0..5 unless told otherwise."""
    usual: dict[str, Any] = {
        **{"data": folder / "data.csv", "prompt": folder / "prompt.txt", "out": folder / "out.csv"},
        **{"metric": "rmse,mae,accuracy", "labels": "0..5", "target": "score", "model": "none", "profile": "fast"},
    }
    return Job(**{**usual, **given})


def write_data(folder: Path, n: int, *, padding: str = "") -> None:
    """n rows ``text,score`` and the template that asks for text."""
    lines = [f'"row {i}, quoted{padding}",{i % 11 / 2}' for i in range(n)]
    (folder / "data.csv").write_text("text,score\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (folder / "prompt.txt").write_text("Rate: {text}\nScore:\n", encoding="utf-8")


def decided(job: Job, monkeypatch: pytest.MonkeyPatch, main: FakeEstimator | None = None) -> tuple[Outcome, list[str]]:
    """Run the job with a stand-in for the model; what was said comes with the outcome."""
    said: list[str] = []
    assert job.answers is not None
    main = main or FakeEstimator(job.answers.values)
    monkeypatch.setattr(Job, "asker", lambda self, llm: fake_asker(self, llm, main))
    return run(job, lambda: None, say=said.append, progress=lambda what, done, total: None), said  # type: ignore[arg-type, return-value]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
