"""`wager run` and `wager demo`: options, streams, JSON, comparison, errors and interrupts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

Wager = Callable[..., Any]


def test_text_goes_to_stdout_and_the_summary_to_stderr(wager: Wager, llm: Any) -> None:
    result = wager("run", "Hello")
    assert (result.code, result.out) == (0, "one two three \n")
    assert result.err.count("\n") == 1
    for part in ("3 tokens (length)", "1.50 per forward", "50% of 2", "bit-identical"):
        assert part in result.err
    call = llm.made[-1].calls[0]
    assert call["prompt"] == "Hello"
    assert f"seed {call['sampling'].seed}" in result.err
    assert llm.made[-1].closed


def test_every_sampling_option_reaches_the_engine(wager: Wager, llm: Any) -> None:
    options = "--temperature 0 --top-p 0.9 --top-k 5 --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.2"
    options += " --frequency-penalty 0.3 --max-tokens 9 --min-tokens 2 --seed 0 --logprobs 0 --ignore-eos"
    options += " --logit-bias 3=-inf --logit-bias 4=1.5 --stop a --stop b --json"
    assert wager("run", "x", *options.split()).code == 0
    s = llm.made[-1].calls[0]["sampling"]
    assert (s.temperature, s.top_p, s.top_k, s.min_p) == (0, 0.9, 5, 0.1)
    assert (s.repetition_penalty, s.presence_penalty, s.frequency_penalty) == (1.1, 0.2, 0.3)
    assert (s.max_tokens, s.min_tokens, s.seed, s.logprobs, s.ignore_eos) == (9, 2, 0, 0, True)
    assert (dict(s.logit_bias), s.stop) == ({3: -math.inf, 4: 1.5}, ("a", "b"))


def test_options_not_given_leave_the_models_own(wager: Wager, llm: Any) -> None:
    wager("run", "x")
    wager("run", "x")
    first, second = (made.calls[0]["sampling"] for made in llm.made)
    assert replace(first, seed=None) == llm.made[-1].sampling()
    assert first.seed != second.seed


def test_every_model_option_reaches_the_engine(wager: Wager, llm: Any) -> None:
    options = "--model m --profile max --num-draft-tokens 0 --kv-cache-gb 0.5 --threads 2 --require-identical"
    options += " --rule gls --tree-width 3 --policy fixed"
    wager("run", "x", *options.split(), "--draft-model", "small")
    given = llm.made[-1].options
    del given["progress"]
    assert given == {
        **{"model": "m", "profile": "max", "num_draft_tokens": 0, "kv_cache_gb": 0.5, "threads": 2},
        **{"require_identical": True, "drafter": "model:small", "rule": "gls", "tree_width": 3},
        "policy": "fixed",
    }


@pytest.mark.parametrize("raw", [False, True])
def test_raw_and_system(wager: Wager, llm: Any, raw: bool) -> None:
    wager("run", "x", *(["--raw"] if raw else ["--system", "be brief"]))
    call = llm.made[-1].calls[0]
    assert (call["chat"], call["system"]) == (not raw, None if raw else "be brief")


@pytest.mark.parametrize(
    ("given", "ours", "value"),
    [
        ("--num-assistant-tokens 4", "num_draft_tokens", 4),
        ("--num-speculative-tokens=4", "num_draft_tokens", 4),
        ("--assistant-model small", "drafter", "model:small"),
    ],
)
def test_names_that_users_bring(wager: Wager, llm: Any, given: str, ours: str, value: Any) -> None:
    assert wager("run", "x", *given.split()).code == 0
    assert llm.made[-1].options[ours] == value


def test_max_new_tokens_is_max_tokens(wager: Wager, llm: Any) -> None:
    assert wager("run", "x", "--max-new-tokens", "7", "--temp=0.5").code == 0
    sampling = llm.made[-1].calls[0]["sampling"]
    assert (sampling.max_tokens, sampling.temperature) == (7, 0.5)
    assert wager("run", "--", "--max-new-tokens").code == 0
    assert llm.made[-1].calls[0]["prompt"] == "--max-new-tokens"


@pytest.mark.parametrize("args", [["run"], ["run", "-"]])
def test_the_prompt_comes_from_stdin(wager: Wager, llm: Any, args: list[str]) -> None:
    assert wager(*args, stdin="\ufeffzwei\nZeilen é\n".encode()).code == 0
    assert llm.made[-1].calls[0]["prompt"] == "zwei\nZeilen é"


@pytest.mark.parametrize(
    ("args", "stdin", "match"),
    [
        (["run"], None, "no prompt"),
        (["run"], b"", "empty"),
        (["run", ""], None, "empty"),
        (["run"], b"caf\xe9", "0xe9"),
        (["run", "x", "--temperature", "-1"], None, "temperature"),
        (["run", "x", "--top-p", "0"], None, "top_p"),
        (["run", "x", "--logit-bias", "a=b"], None, "a=b"),
        (["run", "x", "--raw", "--system", "s"], None, "--raw"),
        (["run", "x", "--drafter", "lookup", "--draft-model", "m"], None, "contradicts"),
        (["run", "x", "--threads", "13"], None, "13"),
    ],
)
def test_mistakes_are_one_line_and_code_2(wager: Wager, llm: Any, args: list[str], stdin: Any, match: str) -> None:
    result = wager(*args, stdin=stdin)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert match in result.err


@pytest.mark.parametrize(
    "args", [["run", "x", "--nonsense"], ["run", "x", "--seed", "many"], ["walk"], ["run", "x", "y"]]
)
def test_usage_errors_are_code_2(wager: Wager, llm: Any, args: list[str]) -> None:
    result = wager(*args)
    assert result.code == 2
    assert result.err
    assert "Traceback" not in result.err


def test_json_is_one_object_with_everything(wager: Wager, llm: Any) -> None:
    result = wager("run", "x", "--json", "--seed", "5", "--logit-bias", "3=1")
    found = json.loads(result.out)
    assert (found["text"], found["tokens"], found["finish"], found["seed"]) == (
        "one two three ",
        [1, 2, 3],
        "length",
        5,
    )
    assert found["n_prompt"] == 3
    assert found["stats"]["tokens_per_s"] == 2.0
    assert found["sampling"]["temperature"] == 0.7
    assert found["sampling"]["logit_bias"] == {"3": 1.0}
    assert found["settings"]["exactness"] == "bit-identical"
    assert found["logprobs"] is None
    assert result.err == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_compare_runs_both_with_one_seed(wager: Wager, llm: Any, as_json: bool) -> None:
    result = wager("run", "x", "--compare", *(["--json"] if as_json else []))
    assert result.code == 0
    calls = llm.made[-1].calls
    assert [c["speculate"] for c in calls] == [False, True]
    assert calls[1]["sampling"].seed == calls[0]["sampling"].seed is not None
    if as_json:
        found = json.loads(result.out)
        assert (found["identical"], found["speed_up"]) == (True, 2.0)
        assert found["plain"]["tokens"] == found["speculative"]["tokens"]
    else:
        assert result.out.count("one two three") == 2
        for part in ("yes, all 3", "1.0 tokens/s", "2.0 tokens/s", "2.00 ×", "1.50 (plain 1.00)", "50% of 2"):
            assert part in result.out


def test_reasons_come_after_the_answer_on_stderr(wager: Wager, llm: Any) -> None:
    result = wager("run", "x", "--explain")
    assert result.out == "one two three \n"
    assert "step 1: because" in result.err
    assert "because" not in wager("run", "x").err
    assert "step 1: because" in wager("run", "x", "--explain", "--compare").err


@pytest.mark.parametrize(("command", "tokens"), [("run", [1, 9, 3]), ("demo", [1, 9, 3])])
def test_compare_is_loud_when_not_identical(wager: Wager, llm: Any, command: str, tokens: list[int]) -> None:
    llm.tokens = staticmethod(lambda speculate: tokens if speculate else [1, 2, 3])
    result = wager(*([command, "x", "--compare"] if command == "run" else [command]))
    assert result.code == 1
    assert "NOT IDENTICAL: token 1 is '<2>' plain and '<9>' speculative" in result.err
    assert "NO" in result.out


def test_demo_is_greedy_and_identical(wager: Wager, llm: Any) -> None:
    result = wager("demo")
    assert result.code == 0
    assert "yes, all 3" in result.out
    assert all(call["sampling"].temperature == 0 for call in llm.made[-1].calls)


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_what_was_generated(wager: Wager, llm: Any, as_json: bool) -> None:
    llm.fails = staticmethod(lambda speculate, i: KeyboardInterrupt() if i == 2 else None)
    result = wager("run", "x", *(["--json"] if as_json else []))
    assert result.code == 130
    assert "Traceback" not in result.err
    if as_json:
        found = json.loads(result.out)
        assert (found["text"], found["tokens"], found["finish"]) == ("one two ", [1, 2], "cancelled")
        assert found["seed"] == llm.made[-1].calls[0]["sampling"].seed
    else:
        assert result.out == "one two \n"
    assert llm.made[-1].closed


def test_our_own_bugs_keep_their_traceback(llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from wager.cli import main

    llm.fails = staticmethod(lambda speculate, i: ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        main(["run", "x"])
