"""The likeliest tokens of a completion: a table by text, as OpenAI's clients read it, from which nothing is missing."""

from __future__ import annotations

import pytest

from wager.types import Sampling

TEXT = "/v1/completions"
BODY = {"prompt": "the cat 日本", "max_tokens": 40, "temperature": 1.5, "seed": 5, "ignore_eos": True}


@pytest.fixture(scope="module")
def alone(llm):
    sampling = Sampling(max_tokens=40, temperature=1.5, seed=5, ignore_eos=True, logprobs=20)
    return llm.generate(BODY["prompt"], sampling, chat=False).logprobs


def test_tokens_with_one_text_are_all_there(server, llm, alone):
    shape = server.ask(TEXT, {**BODY, "logprobs": 20})[2]["choices"][0]["logprobs"]
    shared = 0
    for table, told in zip(shape["top_logprobs"], alone, strict=True):
        known = dict(told.top) | {told.token: told.logprob}
        assert len(table) == len(known)
        assert sorted(table.values()) == pytest.approx(sorted(known.values()))
        for key, value in table.items():
            if key.startswith("token_id:"):
                token = int(key.removeprefix("token_id:"))
                assert value == pytest.approx(known[token])
                assert table[llm.text.token_text(token)] >= value
                shared += 1
    assert shared > 0


def test_the_chosen_token_is_in_its_table(server, alone):
    shape = server.ask(TEXT, {**BODY, "logprobs": 1})[2]["choices"][0]["logprobs"]
    for value, table, told in zip(shape["token_logprobs"], shape["top_logprobs"], alone, strict=True):
        assert value in table.values()
        assert len(table) == 1 + (told.token != told.top[0][0])


def test_tokens_can_be_told_by_id(server, alone):
    body = {**BODY, "logprobs": 20, "return_tokens_as_token_ids": True}
    shape = server.ask(TEXT, body)[2]["choices"][0]["logprobs"]
    assert shape["tokens"] == [f"token_id:{told.token}" for told in alone]
    for table, told in zip(shape["top_logprobs"], alone, strict=True):
        assert set(table) == {f"token_id:{token}" for token in (told.token, *dict(told.top))}
    echoed = server.ask(TEXT, {**body, "echo": True, "max_tokens": 1})[2]["choices"][0]["logprobs"]
    assert all(piece.startswith("token_id:") for piece in echoed["tokens"])
