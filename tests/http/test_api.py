"""What clients send and get: both end points, streams, every option honoured or refused."""

from __future__ import annotations

import json
import logging

import openai
import pytest

from wager import Sampling
from wager.text import incomplete_tail

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello there"}]


def chat(server, **more):
    return server.ask(CHAT, {"messages": HELLO, "max_tokens": 8, **more})


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)


def test_an_answer_is_that_of_the_library(server, llm):
    status, headers, answer = chat(server, seed=5, temperature=0.9, max_tokens=24)
    alone = llm.generate("hello there", llm.sampling(seed=5, temperature=0.9, max_tokens=24))
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": alone.text, "refusal": None}
    assert answer["choices"][0]["finish_reason"] == alone.finish
    assert answer["usage"]["prompt_tokens"] == alone.n_prompt
    assert answer["usage"]["completion_tokens"] == len(alone.tokens)
    assert answer["system_fingerprint"] == llm.fingerprint
    assert answer["metrics"]["seed"] == 5
    assert headers["x-request-id"]


def test_the_openai_client_chats_streams_and_completes(client, llm):
    assert [m.id for m in client.models.list()] == ["tiny-llama"]
    asked = {"model": "tiny-llama", "messages": HELLO, "max_tokens": 12, "temperature": 0, "seed": 1}
    whole = client.chat.completions.create(**asked)
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options=options))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    text = client.completions.create(model="tiny-llama", prompt="the cat", max_tokens=6, temperature=0)
    assert text.choices[0].text == llm.generate("the cat", Sampling(max_tokens=6), chat=False).text
    with pytest.raises(openai.NotFoundError, match="another"):
        client.chat.completions.create(model="another", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        client.embeddings.create(model="tiny-llama", input="x")


def test_samples_have_the_texts_of_their_own(server, llm):
    _, _, answer = chat(server, n=3, seed=9, temperature=1.0)
    texts = [c["message"]["content"] for c in answer["choices"]]
    alone = llm.generate("hello there", llm.sampling(seed=9, temperature=1.0, max_tokens=8), n=3)
    assert texts == [one.text for one in alone]
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert len(set(texts)) > 1


def test_a_prompt_may_be_text_or_ids_one_or_several(server, llm):
    ids = llm.text.encode("the cat")
    answers = [
        server.ask(TEXT, {"prompt": prompt, "max_tokens": 5, "temperature": 0})[2]
        for prompt in ("the cat", ids, ["the cat"], [ids], ["the cat", "a dog"])
    ]
    texts = [[c["text"] for c in answer["choices"]] for answer in answers]
    assert texts[0] == texts[1] == texts[2] == texts[3] == texts[4][:1]
    assert len(texts[4]) == 2


def test_echo_puts_the_prompt_in_front(server):
    body = {"prompt": "the cat", "max_tokens": 5, "temperature": 0}
    plain = server.ask(TEXT, body)[2]["choices"][0]["text"]
    assert server.ask(TEXT, {**body, "echo": True})[2]["choices"][0]["text"] == "the cat" + plain
    events = server.events(TEXT, {**body, "echo": True, "stream": True})
    assert "".join(e["choices"][0]["text"] for e in events[:-1]) == "the cat" + plain


@pytest.mark.parametrize("stream", [False, True])
def test_given_ids_that_end_inside_a_character_are_shown_with_what_completes_it(server, llm, stream):
    ids = llm.text.encode("so 😀 it")
    cut = next(i for i in range(1, len(ids)) if incomplete_tail(b"".join(map(llm.text.token_bytes, ids[:i]))))
    bias = {str(ids[cut]): 100}
    body = {"prompt": ids[:cut], "max_tokens": 1, "temperature": 0, "logit_bias": bias, "echo": True, "n": 2}
    if stream:
        events = server.events(TEXT, {**body, "stream": True})[:-1]
        choices = [choice for event in events for choice in event["choices"]]
        texts = ["".join(c["text"] for c in choices if c["index"] == i) for i in range(2)]
    else:
        texts = [choice["text"] for choice in server.ask(TEXT, body)[2]["choices"]]
    data = b"".join(map(llm.text.token_bytes, ids[: cut + 1]))
    assert texts == [data.decode(errors="ignore")] * 2


def test_echo_with_logprobs_scores_the_prompt(server, llm):
    """As lm-evaluation-harness asks: nothing is generated but one token, and the prompt's own tokens count."""
    prompt, rest = "the cat saw", " a dog and the sea"
    body = {"prompt": prompt + rest, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
    choice = server.ask(TEXT, body)[2]["choices"][0]
    shape, n = choice["logprobs"], len(llm.text.encode(prompt + rest))
    assert len(shape["tokens"]) == len(shape["token_logprobs"]) == len(shape["text_offset"]) == n + 1
    assert shape["token_logprobs"][0] is None
    assert shape["top_logprobs"][0] is None
    assert choice["text"].startswith(prompt + rest)
    ids = llm.text.encode(prompt + rest)
    alone = llm.score(ids[:3], [ids[3:]], terminator="none", chat=False)
    assert shape["token_logprobs"][3:n] == pytest.approx(alone.token_logprobs[0].tolist(), abs=1e-4)
    pairs = zip(shape["top_logprobs"][3:n], shape["token_logprobs"][3:n], strict=True)
    best = [max(top.values()) == value for top, value in pairs]
    assert all(best) == alone.greedy[0]
    streamed = server.events(TEXT, {**body, "stream": True})
    pieces = [e["choices"][0]["logprobs"] for e in streamed[:-1] if e["choices"][0]["logprobs"]]
    assert [o for piece in pieces for o in piece["text_offset"]] == shape["text_offset"]
    assert [v for piece in pieces for v in piece["token_logprobs"]] == shape["token_logprobs"]


def test_an_offset_counts_a_character_with_the_token_that_completes_it(server, llm):
    text = "so 😀 日本 it"
    body = {"prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": 0, "echo": True}
    shape = server.ask(TEXT, body)[2]["choices"][0]["logprobs"]
    ids = llm.text.encode(text)
    assert len(ids) > len(text.split())
    ends = [len(b"".join(map(llm.text.token_bytes, ids[:i])).decode(errors="ignore")) for i in range(len(ids))]
    assert shape["text_offset"][: len(ids)] == ends


def test_logprobs_have_both_shapes(server, llm):
    sampling = Sampling(max_tokens=4, logprobs=2)
    alone = llm.generate("hello there", sampling)
    _, _, answer = chat(server, temperature=0, max_tokens=4, logprobs=True, top_logprobs=2)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [t["logprob"] for t in content] == pytest.approx([t.logprob for t in alone.logprobs])
    assert [[a["token"] for a in t["top_logprobs"]] for t in content] == [
        [llm.text.token_text(i) for i, _ in t.top] for t in alone.logprobs
    ]
    body = {"prompt": "the cat", "max_tokens": 4, "temperature": 0, "logprobs": 2}
    _, _, text = server.ask(TEXT, body)
    shape = text["choices"][0]["logprobs"]
    assert len(shape["tokens"]) == len(shape["token_logprobs"]) == len(shape["top_logprobs"]) == 4
    streamed = server.events(TEXT, {**body, "stream": True})
    offsets = [o for e in streamed[:-1] for o in (e["choices"][0]["logprobs"] or {"text_offset": []})["text_offset"]]
    assert offsets == shape["text_offset"]


def test_a_stream_says_which_tokens_were_drafted(server):
    body = {"messages": [{"role": "user", "content": "ab ab ab ab ab ab ab"}], "max_tokens": 24, "temperature": 0}
    options = {"include_tokens": True, "include_usage": True}
    events = server.events(CHAT, {**body, "stream": True, "stream_options": options})
    tokens = [t for e in events[:-1] if e["choices"] for t in e["choices"][0].get("tokens", [])]
    usage = events[-2]["usage"]
    assert len(tokens) == usage["completion_tokens"] == 24
    assert sum(t["drafted"] for t in tokens) == usage["completion_tokens_details"]["accepted_prediction_tokens"]
    assert events[-1] == "[DONE]"


@pytest.mark.parametrize(
    ("options", "sampling"),
    [
        ({"stop": "e"}, {"stop": ("e",)}),
        ({"stop": ["zz", "a"]}, {"stop": ("zz", "a")}),
        ({"logit_bias": {"7": 100}}, {"logit_bias": {7: 100.0}}),
        ({"presence_penalty": 1.5, "frequency_penalty": 0.5}, {"presence_penalty": 1.5, "frequency_penalty": 0.5}),
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"temperature": 1.2, "top_p": 0.7}, {"temperature": 1.2, "top_p": 0.7}),
        ({"temperature": 1.2, "top_k": 3}, {"temperature": 1.2, "top_k": 3}),
        ({"temperature": 1.2, "min_p": 0.2}, {"temperature": 1.2, "min_p": 0.2}),
        ({"min_tokens": 12}, {"min_tokens": 12}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"stop_token_ids": [3, 4, 5]}, {"stop_token_ids": (3, 4, 5)}),
        ({"max_tokens": None, "max_completion_tokens": 5}, {"max_tokens": 5}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_options_do_what_they_do_in_the_library(server, llm, options, sampling):
    _, _, answer = chat(server, **{"seed": 3, "max_tokens": 16, **options})
    alone = llm.generate("hello there", llm.sampling(**{"seed": 3, "max_tokens": 16, **sampling}))
    assert answer["choices"][0]["message"]["content"] == alone.text
    assert answer["usage"]["completion_tokens"] == len(alone.tokens)


@pytest.mark.parametrize("switch", [{"speculate": False}, {"drafter": "none"}, {"num_draft_tokens": 0}])
def test_speculation_can_be_left_out_of_one_request(server, switch):
    body = {"messages": [{"role": "user", "content": "ab ab ab ab ab ab ab"}], "max_tokens": 24, "temperature": 0}
    _, _, with_it = server.ask(CHAT, body)
    _, _, without = server.ask(CHAT, {**body, **switch})
    assert with_it["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    assert without["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
    assert with_it["choices"] == without["choices"]


@pytest.mark.parametrize("name", ["num_draft_tokens", "num_assistant_tokens", "num_speculative_tokens"])
def test_a_request_may_bound_its_drafts(server, name):
    body = {"messages": [{"role": "user", "content": "ab ab ab ab ab ab ab"}], "max_tokens": 24, "temperature": 0}
    _, _, answer = server.ask(CHAT, {**body, name: 1})
    assert len(answer["metrics"]["speculative_decoding"]["accepted_by_depth"]) == 1
    assert len(server.ask(CHAT, body)[2]["metrics"]["speculative_decoding"]["accepted_by_depth"]) > 1


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"messages": HELLO, "tempratur": 1}, 400, "tempratur"),
        ({"messages": HELLO, "temperature": -1}, 400, "temperature"),
        ({"messages": HELLO, "temperature": "hot"}, 400, "temperature"),
        ({"messages": HELLO, "temperature": True}, 400, "temperature"),
        ({"messages": HELLO, "top_p": 0}, 400, "top_p"),
        ({"messages": HELLO, "n": 0}, 400, "n"),
        ({"messages": HELLO, "n": 17}, 400, "at most 16"),
        ({"messages": HELLO, "max_tokens": 0}, 400, "max_tokens"),
        ({"messages": HELLO, "max_tokens": 5, "max_completion_tokens": 6}, 400, "give one"),
        ({"messages": HELLO, "top_logprobs": 2}, 400, "logprobs"),
        ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
        ({"messages": HELLO, "stop": [""]}, 400, "stop"),
        ({"messages": HELLO, "stop": ["x"] * 17}, 400, "stop"),
        ({"messages": HELLO, "logit_bias": {"a": 1}}, 400, "logit_bias"),
        ({"messages": HELLO, "logit_bias": {" 1_0": 1}}, 400, "token id"),
        ({"messages": HELLO, "logit_bias": {"99999999": 1}}, 400, "99999999"),
        ({"messages": HELLO, "best_of": 2}, 400, "best_of"),
        ({"messages": HELLO, "stream_options": {"include_usage": True}}, 400, "stream"),
        ({"messages": HELLO, "drafter": "suffix"}, 400, "lookup"),
        ({"messages": HELLO, "rule": "spectr"}, 400, "walk"),
        ({"messages": HELLO, "model": "gpt-4"}, 404, "gpt-4"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "alien", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}, 400, "content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "not Unicode"),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, 400, "context"),
        ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, 400, "name"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, 400, "tool_call_id"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "tool_call_id"),
        ({"messages": HELLO, "min_tokens": 5000}, 400, "min_tokens"),
        ({}, 400, "messages"),
        ([], 400, "object"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(server, body, status, says):
    got, _, answer = server.ask(CHAT, body)
    assert got == status, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert says in answer["error"]["message"]
    if says in body and isinstance(body[says], float | int):
        assert answer["error"]["param"] == says


@pytest.mark.parametrize(
    "body",
    [
        *({"prompt": prompt} for prompt in ("", [], [""], [[]], [10**9], [-1], {}, ["a"] * 17)),
        {"prompt": "a", "suffix": "b"},
    ],
    ids=str,
)
def test_a_prompt_that_is_none_is_refused(server, body):
    status, _, answer = server.ask(TEXT, body)
    assert status == 400, answer
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"messages": NaN}',
        b"[" * 100_000,
        b'{"messages": "' + b"x" * (1 << 20) + b'"}',
        b"null",
    ],
    ids=["empty", "cut", "bytes", "nan", "deep", "large", "null"],
)
def test_a_body_that_is_none_is_refused(server, raw):
    status, _, answer = server.ask(CHAT, raw=raw)
    assert status in (400, 413), answer
    assert answer["error"]["type"] == "invalid_request_error"


def test_null_is_not_given(server):
    body = {"messages": HELLO, "max_tokens": 4, "temperature": 0}
    nulls = dict.fromkeys(("stop", "seed", "n", "tools", "top_p", "logit_bias", "user", "stream", "response_format"))
    assert server.ask(CHAT, {**body, **nulls})[2]["choices"] == server.ask(CHAT, body)[2]["choices"]


def test_text_parts_are_joined_and_a_developer_is_the_system(server):
    parts = [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]
    whole = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there"}]
    split = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    answers = [
        server.ask(CHAT, {"messages": m, "max_tokens": 8, "temperature": 0})[2]["choices"] for m in (whole, split)
    ]
    assert answers[0] == answers[1]


def test_without_a_limit_an_answer_has_all_the_context(server, llm):
    _, _, answer = server.ask(CHAT, {"messages": HELLO, "temperature": 0, "ignore_eos": True})
    assert answer["usage"]["total_tokens"] == llm.info["context_length"]
    assert answer["choices"][0]["finish_reason"] == "length"


def test_without_a_seed_answers_differ_and_the_seed_is_told(server):
    first, second = (chat(server, temperature=2.0, max_tokens=24)[2] for _ in range(2))
    assert first["choices"] != second["choices"]
    again = chat(server, temperature=2.0, max_tokens=24, seed=first["metrics"]["seed"])[2]
    assert again["choices"] == first["choices"]


def test_there_is_health_readiness_and_a_description(server):
    assert server.ask("/health")[0] == 200
    assert server.ask("/ready")[2]["status"] == "ready"
    described = server.ask("/openapi.json")[2]
    assert "/v1/chat/completions" in described["paths"]
    assert "temperature" in described["components"]["schemas"]["ChatBody"]["properties"]
    assert server.ask("/v1/nowhere")[0] == 404
    assert server.ask("/v1/models", method="DELETE")[0] == 405
    assert server.ask("/v1/models/tiny-llama")[2]["id"] == "tiny-llama"
    assert server.ask("/v1/models/other")[0] == 404
    assert server.ask("/v1/models", headers={"host": f"LocalHost:{server.port}"})[0] == 200
    assert server.ask(f"{CHAT}/", {"messages": HELLO})[0] == 404


def test_metrics_count_what_was_done(server):
    def counts():
        lines = [line.rsplit(" ", 1) for line in server.ask("/metrics")[2].splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    before = counts()
    body = {"messages": [{"role": "user", "content": "ab ab ab ab ab ab"}], "max_tokens": 20, "temperature": 0}
    _, _, answer = server.ask(CHAT, body)
    server.ask(CHAT, {**body, "temperature": -1})
    after = counts()

    def grown(name):
        return after.get(name, 0) - before.get(name, 0)

    speculative = answer["metrics"]["speculative_decoding"]
    assert grown("wager_generation_tokens_total") == answer["usage"]["completion_tokens"]
    assert grown("wager_prompt_tokens_total") == answer["usage"]["prompt_tokens"]
    assert grown('wager_spec_decode_num_draft_tokens_total{drafter="lookup"}') == speculative["num_draft_tokens"] > 0
    assert grown('wager_spec_decode_num_accepted_tokens_total{drafter="lookup"}') == speculative["num_accepted_tokens"]
    assert grown(f'wager_request_success_total{{finished_reason="{answer["choices"][0]["finish_reason"]}"}}') == 1
    assert grown('wager_request_errors_total{status="400"}') == 1
    assert grown("wager_time_to_first_token_seconds_count") == 1
    assert grown("wager_prefix_cache_queries_total") == answer["usage"]["prompt_tokens"]
    assert grown("wager_prefix_cache_hits_total") <= answer["usage"]["prompt_tokens"]
    server.ask(CHAT, body)
    assert counts()["wager_prefix_cache_hits_total"] > after["wager_prefix_cache_hits_total"]
    assert after["wager_num_requests_running"] == 0
    assert json.dumps(answer)


def test_the_page_is_served_and_asks_no_other_host(server):
    status, headers, page = server.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in headers["content-security-policy"]
    for name in ("page.css", "page.js"):
        assert name in page
        status, _, text = server.ask(f"/{name}")
        assert status == 200
        assert "http://" not in text + page
        assert "https://" not in text + page


def test_the_log_names_the_user_and_no_prompt(server, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("wager.serve"), "propagate", True)
    caplog.set_level(logging.INFO, "wager.serve")
    _, headers, _ = chat(server, user="bob")
    logged = [r.fields for r in caplog.records if getattr(r, "fields", {}).get("request_id") == headers["x-request-id"]]
    assert [entry["user"] for entry in logged] == ["bob"]
    assert "hello there" not in json.dumps(logged)
