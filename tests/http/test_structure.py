"""Answers of a given form over HTTP: JSON, schemas and calls of tools, with the same text with and without drafts."""

from __future__ import annotations

import json

import openai
import pytest

from wager.grammar import Choice

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello there"}]
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["mood", "n"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a day.",
        "parameters": {
            "type": "object",
            "properties": {"day": {"enum": ["today", "tomorrow"]}},
            "required": ["day"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def formatted(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_an_answer_keeps_to_its_schema_with_and_without_drafts(server, temperature):
    body = {"messages": HELLO, "temperature": temperature, "seed": 4, "max_tokens": 100}
    with_it = server.ask(CHAT, {**body, "response_format": formatted(SCHEMA)})[2]
    without = server.ask(CHAT, {**body, "response_format": formatted(SCHEMA), "speculate": False})[2]
    said = json.loads(with_it["choices"][0]["message"]["content"])
    assert set(said) == {"mood", "n"}
    assert said["mood"] in ("good", "bad")
    assert with_it["choices"] == without["choices"]
    assert with_it["metrics"]["speculative_decoding"]["tokens_per_forward"] > 1


def test_a_json_object_is_one(server):
    body = {"messages": HELLO, "temperature": 1.0, "seed": 8, "max_tokens": 300}
    answer = server.ask(CHAT, {**body, "response_format": {"type": "json_object"}})[2]["choices"][0]
    assert answer["message"]["content"].startswith("{")
    if answer["finish_reason"] == "stop":
        assert isinstance(json.loads(answer["message"]["content"]), dict)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_of_a_tool_is_valid_whole_and_streamed(server, choice):
    client = openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)
    tools = [WEATHER] if choice == "required" else [CLOCK, WEATHER]
    asked = {
        "model": "tiny-llama",
        "messages": HELLO,
        "tools": tools,
        "tool_choice": choice,
        "seed": 3,
        "max_tokens": 99,
    }
    whole = client.chat.completions.create(**asked).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content is None
    call = whole.message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["day"] in ("today", "tomorrow")
    chunks = [c.choices[0] for c in client.chat.completions.create(**asked, stream=True)]
    calls = [c.delta.tool_calls[0] for c in chunks if c.delta.tool_calls]
    assert [c.function.arguments for c in calls] == [call.function.arguments]
    assert chunks[-1].finish_reason == "tool_calls"
    assert not any(c.delta.content for c in chunks)


def test_a_tool_may_be_left_alone(server):
    body = {"messages": HELLO, "tools": [WEATHER, CLOCK], "temperature": 0, "max_tokens": 20}
    for more in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        status, _, answer = server.ask(CHAT, {**body, **more})
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"] or answer["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize("stream", [False, True])
def test_where_no_tool_may_be_called_what_looks_like_a_call_is_text(server, monkeypatch, stream):
    said = "<tool_call>\nno JSON\n</tool_call>"
    monkeypatch.setattr(server.service, "_constraint", lambda body, tools: Choice((said,)))
    body = {"messages": HELLO, "tools": [WEATHER], "tool_choice": "none", "max_tokens": 99, "temperature": 0}
    if stream:
        choices = [e["choices"][0] for e in server.events(CHAT, {**body, "stream": True})[:-1]]
        assert "".join(c["delta"].get("content", "") for c in choices) == said
        assert choices[-1]["finish_reason"] == "stop"
    else:
        choice = server.ask(CHAT, body)[2]["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (said, "stop")


def test_a_conversation_with_calls_goes_on(server):
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"day": "today"}'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    status, _, answer = server.ask(CHAT, {"messages": messages, "max_tokens": 5})
    assert status == 200, answer


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": formatted({"type": "object", "properties": {"a": {"type": "alien"}}})}, "alien"),
        ({"response_format": formatted({"type": "array", "uniqueItems": True})}, "uniqueItems"),
        ({"response_format": formatted(SCHEMA), "tools": [WEATHER]}, "tools"),
        ({"response_format": formatted(SCHEMA), "ignore_eos": True}, "ignore_eos"),
        ({"response_format": formatted(SCHEMA), "min_tokens": 2}, "min_tokens"),
        ({"tools": [WEATHER, WEATHER]}, "twice"),
        ({"tool_choice": "required"}, "tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "other"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_forms_that_cannot_be_kept_are_refused(server, more, says):
    status, _, answer = server.ask(CHAT, {"messages": HELLO, "max_tokens": 10, **more})
    assert status == 400, answer
    assert says in answer["error"]["message"]


def test_a_deep_schema_is_refused_at_once(server):
    schema: dict = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    status, _, answer = server.ask(CHAT, {"messages": HELLO, "response_format": formatted(schema)})
    assert status == 400, answer
