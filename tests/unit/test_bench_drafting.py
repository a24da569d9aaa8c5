"""What drafting costs as the text grows: counted, so that it holds on a busy machine, and the command that times it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafter_tools import n_read_for_one_more
from wager.bench.drafting import (
    LENGTHS,
    MIXTURE,
    Played,
    Point,
    check,
    curve,
    from_text_alone,
    markdown,
    measure,
    mixture,
    plot,
)
from wager.cli import main
from wager.drafters import make_drafter
from wager.drafters.lookup import Lookup
from wager.errors import OptionError

SPECS = [*from_text_alone(), "suffix:local"]
SHORT, LONG, N_IDS = 300, 9_000, 200


class Forgetful(Lookup):
    """Reads everything again at every step."""

    def propose(self, seqs, limits):
        self._automata.clear()
        return super().propose(seqs, limits)


class Scans(Lookup):
    """Looks at something for every token it has read."""

    def propose(self, seqs, limits):
        for automaton in self._automata.values():
            self.n = 0
            for _ in automaton._next:
                self.n += 1
        return super().propose(seqs, limits)


def n_instructions(work: Callable[[], object]) -> int:
    """Instructions of Python that are executed."""
    n, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal n
        frame.f_trace_opcodes = True
        n += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


def work_of_a_step(drafter, n_history: int, n_steps: int = 40) -> float:
    """Instructions of a step after one committed token, the mean of some, drafted and rejected."""
    text = mixture(n_history + n_steps + 1, N_IDS, 0).tolist()
    played = Played(drafter, text, np.random.default_rng(0).standard_normal((9, N_IDS)).astype(np.float32))
    played.to(n_history)
    return float(np.mean([n_instructions(played.step) for _ in range(n_steps)]))


@pytest.mark.parametrize("spec", SPECS)
def test_a_step_reads_no_more_of_a_long_text(spec: str) -> None:
    """Fails if a draft, or what is learnt from it, goes through the history again."""
    assert n_read_for_one_more(make_drafter(spec, None), 20_000) < 100


@pytest.mark.parametrize("spec", SPECS)
def test_a_step_does_no_more_work_after_a_long_text(spec: str) -> None:
    """Thirty times the text, at most half as much again: drafts get longer as more is known."""
    short, long = (work_of_a_step(make_drafter(spec, None), n) for n in (SHORT, LONG))
    assert long < 1.5 * short


def test_what_grows_with_the_text_is_seen() -> None:
    assert n_read_for_one_more(Forgetful(), 20_000) >= 20_000
    for make in (Forgetful, Scans):
        assert work_of_a_step(make(), 10 * SHORT, 3) > 5 * work_of_a_step(make(), SHORT, 3)


class Notes(Lookup):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = [], []

    def propose(self, seqs, limits):
        self.asked.append(list(seqs[0].tokens))
        return super().propose(seqs, limits)

    def observe(self, seqs, drafts, verdicts, seen):
        path = (-1, *verdicts[0].path)
        says = [int(seen[0].logits(node).argmax()) for node in path]
        self.told.append((list(seqs[0].tokens), [drafts[0].tokens[i] for i in path[1:]], says, verdicts[0].token))


def test_a_text_is_played_as_it_is() -> None:
    """What is committed, what was accepted and what the target is made to say agree; a step commits one token."""
    text = mixture(60, 9, 3).tolist()
    drafter = Notes()
    logits = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
    before = logits.copy()
    played = Played(drafter, text, logits)
    played.to(40)
    assert drafter.told[-1][0] == text[:40]
    for _ in range(5):
        assert played.step()[0] >= 0
    assert drafter.asked[-1] == text[:44]
    n = 1
    for tokens, accepted, says, last in drafter.told:
        assert tokens == text[: len(tokens)]
        assert [*accepted, last] == says == tokens[n:]
        n = len(tokens)
    assert n == 45
    assert np.array_equal(logits, before)


def test_the_mixture_copies_and_does_not_only_copy() -> None:
    tokens = mixture(4000, 1000, 0)
    assert tokens.min() >= 0
    assert tokens.max() < 1000
    pairs = list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    assert 0.05 < len(set(pairs)) / len(pairs) < 0.5
    assert np.array_equal(tokens, mixture(4000, 1000, 0))
    assert not np.array_equal(tokens, mixture(4000, 1000, 1))


def test_the_same_end_is_timed_after_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(name: str, target: None) -> Notes:
        made.append(Notes())
        return made[-1]

    monkeypatch.setattr("wager.bench.drafting.make_drafter", make)
    text = list(range(50))
    points = curve("x", "a", text, [10, 30], np.zeros((9, 50), np.float32), 5)
    assert [point.n_drafted for point in points] == [0, 0]
    steps = [drafter.asked[-5:] for drafter in made[::2]]
    assert [len(asked[0]) for asked in steps] == [10, 30]
    assert all([asked[i][-1] for i in range(5)] == text[-6:-1] for asked in steps)
    assert [drafter.asked for drafter in made[1::2]] == [[text[35:45]], [text[15:45]]]


def test_a_text_is_measured_as_far_as_it_goes() -> None:
    points = measure(
        {"a": mixture(400, 50, 0)}, 50, longest=1000, n_steps=5, seed=0, progress=lambda what, done, total: None
    )
    assert {point.n_history for point in points} == {100, 300}
    assert {point.drafter for point in points} == set(from_text_alone())
    assert all(0 < point.step_s <= point.slow_s for point in points)
    assert all(point.first_s > 0 for point in points)
    assert max(point.n_drafted for point in points) > 1
    head, _, *rows = markdown(points).splitlines()
    assert "| 100 | 300 |" in head
    assert len(rows) == len(from_text_alone())


def test_the_picture_shows_every_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The rows share an axis: the text drawn last may be the slowest."""
    figures = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, *_, **__: figures.append(self))
    points = [
        Point("x", text, n, 0.1, step_s, step_s, 1) for text, step_s in (("a", 1e-5), ("b", 1e-3)) for n in (9, 99)
    ]
    assert plot(points, tmp_path / "x.png")
    for axis in figures[0].axes[:2]:
        low, high = axis.get_ylim()
        assert low == 0
        assert high > 1000


@pytest.mark.parametrize(("longest", "n_steps", "reason"), [(99, 10, "at least 100"), (1000, 0, "at least 1$")])
def test_what_cannot_be_measured_is_refused(longest: int, n_steps: int, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check(longest=longest, n_steps=n_steps)


def test_the_command_leaves_table_figures_and_picture(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("The cat sat on the mat, and so did the dog. " * 20, encoding="utf-8")
    options = ["--model", str(tiny_llama), "--longest", "100", "--steps", "3", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "drafting", str(file), *options])
    assert exit_.value.code in (0, None)
    found = json.loads((tmp_path / "out" / "drafting.json").read_text(encoding="utf-8"))
    assert {point["text"] for point in found["points"]} == {"files", MIXTURE}
    assert {point["n_history"] for point in found["points"]} == {LENGTHS[0]}
    assert found["settings"]["files"] == ["text.txt"]
    assert capsys.readouterr().out == (tmp_path / "out" / "drafting.md").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "drafting.png").read_bytes().startswith(b"\x89PNG")
