"""What a measurement is made of: methods by name, suites, the journal, oracles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wager.bench.answer import Answer
from wager.bench.journal import Journal, read_rows, rows_of, runs
from wager.bench.methods import Method, check_methods, parse_method, parse_methods
from wager.bench.oracle import Oracle, copy_runs
from wager.bench.suite import choose, load_suite, suite_path
from wager.errors import OptionError
from wager.types import Limits, Sampling, Sequence


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("plain", Method("plain", "plain")),
        ("fast/plain", Method("plain", "plain")),
        ("max/plain", Method("max/plain", "plain", "max")),
        ("lookup:n=8", Method("lookup:n=8", "drafter", drafter="lookup", n_draft=8)),
        ("model:/a/b:c", Method("model:/a/b:c", "drafter", drafter="model:/a/b:c", argument="/a/b:c")),
        ("max/model:x:n=3", Method("max/model:x:n=3", "drafter", "max", "model:x", "x", 3)),
        ("auto", Method("auto", "drafter", drafter="auto")),
        ("lookup+suffix", Method("lookup+suffix", "drafter", drafter="lookup+suffix")),
        (
            "lookup+suffix:local:n=2",
            Method("lookup+suffix:local:n=2", "drafter", drafter="lookup+suffix:local", argument="local", n_draft=2),
        ),
        ("copy:int4", Method("copy:int4", "drafter", drafter="copy:int4", argument="int4")),
        ("oracle:copy", Method("oracle:copy", "oracle", argument="copy")),
        ("reference/genai:sdpa", Method("reference/genai:sdpa", "genai", "reference", argument="sdpa")),
        ("genai:defaults", Method("genai:defaults", "genai", defaults=True)),
        ("genai:lookup:n=3", Method("genai:lookup:n=3", "genai", argument="lookup", n_draft=3)),
        (
            "transformers:draft:a/b:c:n=2:defaults",
            Method(
                "transformers:draft:a/b:c:n=2:defaults",
                "transformers",
                argument="draft",
                n_draft=2,
                draft="a/b:c",
                defaults=True,
            ),
        ),
        ("llamacpp:m.gguf", Method("llamacpp:m.gguf", "llamacpp", argument="m.gguf")),
        (
            "max/copy:int4:n=2@policy=threshold@rule=block",
            Method(
                "max/copy:int4:n=2@policy=threshold@rule=block",
                "drafter",
                "max",
                "copy:int4",
                "int4",
                2,
                "threshold",
                "block",
            ),
        ),
        ("model:a@b", Method("model:a@b", "drafter", drafter="model:a@b", argument="a@b")),
    ],
)
def test_methods_by_name(text: str, method: Method) -> None:
    assert parse_method(text) == method


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plane", "`plane` is no method"),
        ("lookup+plane", "is no method"),
        ("turbo/plain", "`turbo/plain` is no method"),
        ("plain:x", "`plain:x` has the argument `x`"),
        ("plain:n=3", "takes no draft length"),
        ("lookup:n=0", "give at least 1"),
        ("lookup:n=x", "whole number"),
        ("model", "needs a path"),
        ("genai:gpu", "genai:sdpa"),
        ("genai:n=3", "genai takes no draft length"),
        ("genai:draft", "needs a draft model: give genai:draft:MODEL"),
        ("transformers:lookup:x", "the argument `lookup:x`"),
        ("plain@rule=standard", "only drafters take a policy or a rule"),
        ("genai@policy=fixed", "only drafters take a policy or a rule"),
        ("lookup@policy=threshold", "tells none"),
        ("lookup@rule=nonsense", "nonsense"),
        ("plain,lookup,fast/plain", "names `plain` twice"),
        (" , ", "give some of"),
    ],
)
def test_wrong_methods_are_refused(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_methods(text)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(OptionError, match="add plain"):
        check_methods(parse_methods("oracle,max/plain"), temperature=0.0)
    with pytest.raises(OptionError, match="greedy"):
        check_methods(parse_methods("plain,genai"), temperature=0.8)
    with pytest.raises(OptionError, match="add plain"):
        check_methods(parse_methods("oracle,lookup@rule=standard"), temperature=0.8)
    check_methods(parse_methods("plain,oracle,genai"), temperature=0.0)
    check_methods(parse_methods("oracle,lookup@rule=standard"), temperature=0.0)


def test_a_suite_takes_prompts_and_first_turns(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rows = [
        {"question_id": 81, "category": "writing", "turns": ["one", "two"], "task": "chat"},
        {"id": "x", "category": "writing", "prompt": "three"},
        {"prompt": "four"},
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    got = [(p.id, p.task, p.text) for p in load_suite(path)]
    assert got == [("81", "chat", "one"), ("x", "writing", "three"), ("5", "all", "four")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no prompts"),
        ("[1]", "not an object"),
        ("{", "not JSON"),
        ('{"turns": []}', "no `prompt`"),
        ('{"prompt": 3}', "no `prompt`"),
        ('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}', "twice"),
    ],
)
def test_damaged_suites_are_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(content)
    with pytest.raises(OptionError, match=said):
        load_suite(path)


def test_the_shipped_suite_is_balanced() -> None:
    prompts = load_suite(suite_path("mixed"))
    tasks = [p.task for p in prompts]
    assert {task: tasks.count(task) for task in tasks} == dict.fromkeys(
        ["multi_turn", "translation", "summarization", "qa", "math", "rag", "code_edit", "agent"], 4
    )
    assert len({p.text for p in prompts}) == 32
    for prompt in prompts:
        n_words = len(prompt.text.split())
        assert prompt.task not in ("summarization", "rag") or 250 <= n_words <= 600, (prompt.id, n_words)


def test_choosing_prompts() -> None:
    prompts = load_suite(suite_path("mixed"))
    assert len(choose(prompts, per_task=None, tasks=[])) == 32
    two = choose(prompts, per_task=2, tasks=["qa", "rag"])
    assert [p.id for p in two] == ["qa-1", "qa-2", "rag-1", "rag-2"]
    for wrong, said in (({"per_task": 0, "tasks": []}, "at least 1"), ({"per_task": 1, "tasks": ["x"]}, "`x`")):
        with pytest.raises(OptionError, match=said):
            choose(prompts, **wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="mixed"):
        suite_path("no-such-suite")


def provenance(**settings: Any) -> dict[str, Any]:
    return {"settings": settings, "started": "now", "load": [], "command": []}


def test_the_journal_continues_what_a_crash_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a" / "out", provenance(model="m"))
    journal.add({"kind": "run", "n": 1})
    journal.add({"kind": "method", "method": "x"})
    journal.close()
    with journal.path.open("a") as file:
        file.write('{"kind": "run", "n"')  # killed in the middle of a line
    again = Journal(tmp_path / "a" / "out", provenance(model="m"))
    assert again.resumed
    assert runs(again.rows) == [{"kind": "run", "n": 1}]
    again.add({"kind": "run", "n": 2})
    again.close()
    rows = rows_of(tmp_path / "a" / "out")
    assert [row["kind"] for row in rows] == ["provenance", "run", "method", "resumed", "run"]


def test_the_journal_refuses_another_measurement(tmp_path: Path) -> None:
    Journal(tmp_path, provenance(model="m", max_tokens=8)).close()
    with pytest.raises(OptionError, match="max_tokens `8`, not `9`"):
        Journal(tmp_path, provenance(model="m", max_tokens=9))
    assert len(read_rows(tmp_path / "runs.jsonl")) == 1


def test_what_is_no_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no measurement"):
        rows_of(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"kind": "run"}\n')
    with pytest.raises(OptionError, match="no provenance"):
        rows_of(tmp_path)
    (tmp_path / "runs.jsonl").write_text("not json\n{}\n")
    with pytest.raises(OptionError, match="line 1 is not JSON"):
        rows_of(tmp_path)
    with pytest.raises(OptionError, match="cannot be made"):
        Journal(tmp_path / "runs.jsonl", provenance())


def test_an_answer_counts_from_its_token_times() -> None:
    row = Answer([7, 8, 9, 9], [0.5, 0.5, 0.75, 1.0], "length", {"n_forwards": 3}).to_json()
    assert row["n_tokens"] == 4
    assert row["n_tokens_first"] == 2
    assert (row["first_token_s"], row["decode_s"], row["total_s"]) == (0.5, 0.5, 1.0)
    assert row["n_forwards"] == 3


def slow_copy_runs(text: list[int], start: int) -> list[int]:
    runs = [0] * len(text)
    for at in range(max(start, 1), len(text)):
        for j in range(1, at):
            if text[j - 1] == text[at - 1]:
                n = 0
                while at + n < len(text) and text[j + n] == text[at + n]:
                    n += 1
                runs[at] = max(runs[at], n)
    return runs


def test_copy_runs_are_the_longest() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 40):
        for _ in range(20):
            text = rng.integers(0, 3, n).tolist()
            start = int(rng.integers(0, n + 1))
            assert copy_runs(text, start) == slow_copy_runs(text, start)
    assert copy_runs([1, 2, 3, 1, 2, 3, 4], 4) == [0, 0, 0, 0, 2, 1, 0]
    assert copy_runs([5, 5, 5, 5], 2) == [0, 0, 2, 1]


def sequence(tokens: list[int]) -> Sequence:
    return Sequence(0, tokens, 2, Sampling(), 0)


def test_an_oracle_drafts_the_truth_and_nothing_else() -> None:
    oracle = Oracle()
    oracle.know([1, 2], [3, 4, 5, 6])
    (draft,) = oracle.propose([sequence([1, 2, 3])], [Limits(2, 9)])
    assert draft.tokens.tolist() == [4, 5]
    (draft,) = oracle.propose([sequence([1, 2, 3])], [Limits(9, 9)])
    assert draft.tokens.tolist() == [4, 5, 6]
    for tokens in ([1, 2, 9], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]):
        assert len(oracle.propose([sequence(tokens)], [Limits(9, 9)])[0]) == 0


def test_a_copying_oracle_drafts_only_what_stands_there() -> None:
    oracle = Oracle(copy_only=True)
    oracle.know([1, 2, 3, 8], [1, 2, 3, 9, 7])
    (draft,) = oracle.propose([sequence([1, 2, 3, 8, 1])], [Limits(9, 9)])
    assert draft.tokens.tolist() == [2, 3]
    assert len(oracle.propose([sequence([1, 2, 3, 8, 1, 2, 3])], [Limits(9, 9)])[0]) == 0
