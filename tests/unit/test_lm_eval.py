"""What lm-evaluation-harness asks, without it: BOS, spaces between context and continuation, long texts, generation."""

from __future__ import annotations

import importlib.util

import pytest

from wager import LLM
from wager.errors import OptionError
from wager.lm_eval import Harness, harness_model


@pytest.fixture(scope="module")
def llm(tiny_llama, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        return LLM(tiny_llama, kv_cache_gb=0.1)


@pytest.fixture
def harness(llm):
    return Harness(llm)


def logprob(llm, tokens, n):
    """Of the last n tokens after the others, one by one."""
    total = 0.0
    for i in range(len(tokens) - n, len(tokens)):
        total += float(llm.score(tokens[:i], [[tokens[i]]], terminator="none").logprobs[0])
    return total


def test_pairs_are_encoded_as_one_text(llm, harness):
    pairs = [("ab ab", " ba"), ("ab ab ", "ba"), ("ab ab", "x y"), ("ab ab", " ba")]
    found = harness.loglikelihoods(pairs)
    assert found[0] == found[3]
    assert found[0][0] == pytest.approx(found[1][0])  # the space at the end of the context is the continuation's
    tokens = llm.text.encode("ab abx y")
    head = llm.text.encode("ab ab")
    assert tokens[: len(head)] == head
    assert found[2][0] == pytest.approx(logprob(llm, tokens, len(tokens) - len(head)), abs=1e-4)


def test_without_a_context_the_text_begins_after_its_start(llm, harness):
    [(found, _)] = harness.loglikelihoods([("", "ab ab")])
    tokens = [*harness._start, *llm.text.encode("ab ab", add_special=False)]
    assert found == pytest.approx(logprob(llm, tokens, len(tokens) - 1), abs=1e-4)
    assert harness.rolling(["ab ab", ""]) == [pytest.approx(found), 0.0]


def test_what_the_model_would_write_is_greedy(llm, harness):
    answer = llm.generate("ab ab", llm.sampling(temperature=0.0, max_tokens=3), chat=False)
    [score] = llm.score_many([llm.encode("ab ab", chat=False)], [[answer.tokens]], terminator="none")
    assert score.greedy == (True,)


def test_long_texts_are_cut_into_parts(llm, harness):
    text = "ab ba x y " * 12
    whole = harness.rolling([text])[0]
    harness._most = 17
    parts = harness.rolling([text])[0]
    tokens = llm.text.encode(text, add_special=False)
    expected = sum(
        logprob(llm, [*(tokens[i - 1 : i] or harness._start), *tokens[i : i + 16]], len(tokens[i : i + 16]))
        for i in range(0, len(tokens), 16)
    )
    assert parts == pytest.approx(expected, abs=1e-3)
    assert parts != pytest.approx(whole, abs=1e-3)


def test_texts_end_at_until_and_options_are_honoured_or_refused(llm, harness):
    free = llm.generate("ab ab", llm.sampling(temperature=0.0, max_tokens=12), chat=False).text
    stop = free[4:6]
    asked = [("ab ab", {"until": [stop], "max_gen_toks": 12}), ("ab ab", {"max_gen_toks": 12, "do_sample": False})]
    assert harness.generations(asked) == [free[: free.index(stop)], free]
    with pytest.raises(OptionError, match="num_beams"):
        harness.generations([("ab", {"num_beams": 2})])
    with pytest.raises(OptionError, match="room for the prompt"):  # it would take off what is left of the prompt
        harness.generations([("ab", {"max_gen_toks": llm.info["context_length"] + 3})])


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is not None, reason="it is installed")
def test_without_the_harness_it_says_how_to_get_it():
    with pytest.raises(OptionError, match="pip install lm_eval"):
        harness_model()
