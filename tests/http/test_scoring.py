"""Scores and decisions over HTTP are those of the library."""

from __future__ import annotations

import pytest

from wager.decide.candidates import parse_labels

SCORE, DECIDE = "/v1/score", "/v1/decide"


def test_scores_are_those_of_the_library(server, llm):
    texts = ["a", "ab", "the sea", "7"]
    _, _, answer = server.ask(SCORE, {"prompt": "the cat saw", "candidates": texts})
    alone = llm.score("the cat saw", texts, chat=False)
    assert [e["logprob"] for e in answer["data"]] == pytest.approx(alone.logprobs.tolist(), abs=1e-9)
    assert answer["covered"] == pytest.approx(alone.covered)
    messages = [{"role": "user", "content": "the cat saw"}]
    _, _, chat = server.ask(SCORE, {"messages": messages, "candidates": texts})
    assert [e["logprob"] for e in chat["data"]] == pytest.approx(
        llm.score("the cat saw", texts).logprobs.tolist(), abs=1e-9
    )


def test_a_decision_has_the_law_and_the_best_answer_of_each_metric(server, llm):
    body = {"prompt": "how good?", "labels": "0..2:0.5", "metrics": ["rmse", "mae", "accuracy"]}
    _, _, answer = server.ask(DECIDE, body)
    pairs = parse_labels("0..2:0.5").pairs
    scores = llm.score("how good?", [text for _, text in pairs], terminator="end")
    law = {entry["value"]: entry["weight"] for entry in answer["law"]}
    assert sum(law.values()) == pytest.approx(1)
    assert set(law) == {0.0, 0.5, 1.0, 1.5, 2.0}
    assert answer["covered"] == pytest.approx(scores.covered)
    assert answer["predictions"]["rmse"] == pytest.approx(sum(v * w for v, w in law.items()))
    assert answer["predictions"]["accuracy"] == max(law, key=law.get)
    drawn = {"prompt": "how good?", "n": 8, "seed": 3, "metrics": ["accuracy"], "max_tokens": 4}
    first, second = server.ask(DECIDE, drawn)[2], server.ask(DECIDE, drawn)[2]
    assert first["law"] == second["law"]
    assert first["usage"]["completion_tokens"] > 0


def test_labels_may_be_words(server):
    _, _, answer = server.ask(DECIDE, {"prompt": "how good?", "labels": ["good", "bad"]})
    assert {e["value"] for e in answer["law"]} == {"good", "bad"}
    assert answer["predictions"]["accuracy"] in ("good", "bad")


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (SCORE, {"prompt": "a"}, "candidates"),
        (SCORE, {"candidates": ["a"]}, "prompt"),
        (SCORE, {"prompt": "a", "candidates": []}, "candidates"),
        (SCORE, {"prompt": "", "candidates": ["a"]}, "prompt"),
        (SCORE, {"prompt": "a", "candidates": ["a"] * 1025}, "1024"),
        (SCORE, {"prompt": "a", "candidates": ["a" * 1025]}, "1024"),
        (SCORE, {"prompt": "a", "candidates": ["a"], "temperature": 0}, "temperature"),
        (SCORE, {"prompt": "the cat", "candidates": ["a"], "temperature": 5e-324}, "temperature"),
        (SCORE, {"prompt": "h", "candidates": ["e"]}, "one token"),
        (SCORE, {"prompt": "word " * 600, "candidates": ["a"]}, "context"),
        (DECIDE, {"prompt": "a"}, "labels"),
        (DECIDE, {"prompt": "a", "labels": "1,2", "n": 3}, "labels"),
        (DECIDE, {"prompt": "a", "labels": "1,2", "metrics": ["nonsense"]}, "nonsense"),
        (DECIDE, {"prompt": "a", "labels": "1,2", "metrics": ["cost"]}, "cost"),
        (DECIDE, {"prompt": "a", "labels": "good,bad", "metrics": ["rmse"]}, "rmse"),
        (DECIDE, {"prompt": "a", "labels": "5..1"}, "5..1"),
        (DECIDE, {"prompt": "a", "labels": "0..1:1e-300"}, "1e-300"),
        (DECIDE, {"prompt": "a", "labels": ["a", "a"]}, "twice"),
        (DECIDE, {"prompt": "a", "n": 99}, "at most 16"),
    ],
    ids=str,
)
def test_what_cannot_be_decided_is_refused(server, path, body, says):
    status, _, answer = server.ask(path, body)
    assert status == 400, answer
    assert says in answer["error"]["message"]


def test_labels_in_a_list_are_texts_as_they_are(server):
    labels = ["yes, sure", "no", "0..5", "a=1"]
    _, _, answer = server.ask(DECIDE, {"prompt": "is it?", "labels": labels})
    assert {e["value"] for e in answer["law"]} == set(labels)


def test_what_was_read_adds_up(server):
    for path, body in ((SCORE, {"candidates": ["a", "ab"]}), (DECIDE, {"labels": "1,2"})):
        usage = server.ask(path, {"messages": [{"role": "user", "content": "the cat"}], **body})[2]["usage"]
        assert usage["completion_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
