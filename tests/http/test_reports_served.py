"""Bugs that users of other servers reported, as tests of their whole kind over HTTP, with lookup drafting.

Each test names the report it stands for (project and issue number); tests/unit/test_reports.py has those that need no
server.
"""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor

import pytest

from http_tools import serving
from tiny_gguf import TURNS, write_gemma
from wager.models.gguf import import_gguf
from wager.serve.config import Limits, Settings

CHAT, TEXT, SCORE = "/v1/chat/completions", "/v1/completions", "/v1/score"
PROMPT = "abab" * 8
EMOJI = "😀日本語 it's 👩‍👩‍👧 ok"
SMALL_GB = 24 * 16384 / 2**30  # the fewest blocks there may be: one full context and padding
GIVEN = {"prompt": PROMPT, "max_tokens": 32, "temperature": 0}


@pytest.fixture(scope="module")
def bos_server(tmp_path_factory, _home):
    """A model whose tokenizer begins texts with BOS, and whose chat template does too."""
    place = tmp_path_factory.mktemp("bos")
    import_gguf(write_gemma(place / "bos.gguf"), place / "bos")
    with serving(place / "bos") as server:
        server.service.llm.text._tokenizer.set_chat_template("{{ bos_token }}" + TURNS)
        yield server


@pytest.fixture(scope="module", params=["lookup", "model"])
def drafting(request, tiny_llama, _home):
    """A server whose drafts come from the text, and one with a draft model that is right fairly often."""
    draft = {"lookup": "lookup", "model": f"model:{tiny_llama.parent / 'tiny-llama-b'}"}[request.param]
    with serving(tiny_llama, Settings(limits=Limits(max_seqs=8)), drafter=draft) as server:
        yield server
        server.settled()


def drafted(answer):
    return answer["metrics"]["speculative_decoding"]["num_draft_tokens"]


def accepted(answer):
    return answer["metrics"]["speculative_decoding"]["num_accepted_tokens"]


def pair(server, path, body):
    """The answers with and without drafts."""
    with_it, without = (server.ask(path, {**body, "speculate": on}) for on in (True, False))
    assert with_it[0] == without[0] == 200, with_it
    assert drafted(without[2]) == 0
    return with_it[2], without[2]


def pieces_of(server, path, body):
    """The choices of a stream, as they come."""
    return [e["choices"][0] for e in server.events(path, {**body, "stream": True})[:-1]]


def streamed_text(server, body):
    return "".join(c["delta"].get("content", "") for c in pieces_of(server, CHAT, body))


def hello(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **more}


@pytest.mark.parametrize("banned", ["a", None])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_banned_token_is_nowhere_however_it_was_drafted(drafting, path, banned):
    """vllm 42744, 38202: of the letters left to the model lookup drafts one that is banned, at every depth."""
    ids = {letter: drafting.service.llm.text.encode(letter)[0] for letter in "abcd"}
    bias = {str(i): 40 for i in ids.values()}
    if banned is not None:
        bias[str(ids[banned])] = -100
    body = {"prompt": PROMPT} if path == TEXT else hello(PROMPT)
    n_accepted = 0
    for more in (
        {"temperature": 0},
        {"temperature": 1.0, "seed": 4},
        {"temperature": 1.5, "seed": 5, "min_p": 0.3},
        {"temperature": 1.5, "seed": 6, "min_p": 1.0},
        {"temperature": 1.5, "seed": 7, "top_k": 2},
    ):
        with_it, without = pair(drafting, path, {**body, "max_tokens": 40, "logit_bias": bias, **more})
        assert with_it["choices"] == without["choices"], more
        choice = with_it["choices"][0]
        text = choice["text"] if path == TEXT else choice["message"]["content"]
        assert len(text) == 40
        assert set(text) <= set("abcd") - {banned}
        n_accepted += accepted(with_it)
    assert n_accepted > 20


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1])
def test_a_seed_gives_its_text_again(server, seed):
    """vllm 6038: twice, in a stream, from the other end of the number's range, and beside others."""
    body = hello("once upon", temperature=2.0, seed=seed)
    first = server.ask(CHAT, body)[2]
    text = first["choices"][0]["message"]["content"]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(server.ask, CHAT, hello("once upon", temperature=2.0)) for _ in range(3)]
        again = server.ask(CHAT, body)[2]
        assert all(o.result()[2]["choices"] != again["choices"] for o in others)
    assert again["choices"] == first["choices"]
    assert streamed_text(server, body) == text
    assert server.ask(CHAT, {**body, "seed": first["metrics"]["seed"]})[2]["choices"] == first["choices"]
    assert server.ask(CHAT, {**body, "seed": seed % 2**64 // 2 + 1})[2]["choices"] != first["choices"]


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 5}, {"stop": "e"}, {"frequency_penalty": 1.0}])
def test_logprobs_are_there_for_every_token_drafted_or_not(drafting, options):
    """llama.cpp 27972; sglang 10660: as many as tokens, none of them a stand-in, those of decoding without drafts."""
    body = {**GIVEN, **options, "logprobs": 5}
    with_it, without = pair(drafting, TEXT, body)
    assert with_it["choices"] == without["choices"]
    shape = with_it["choices"][0]["logprobs"]
    n = with_it["usage"]["completion_tokens"]
    assert len(shape["tokens"]) == len(shape["token_logprobs"]) == len(shape["top_logprobs"]) == n
    assert all(-100 < value < 0 for value in shape["token_logprobs"])
    pieces = [c["logprobs"] for c in pieces_of(drafting, TEXT, body) if c["logprobs"]]
    assert [v for piece in pieces for v in piece["token_logprobs"]] == shape["token_logprobs"]

    body = {**hello(PROMPT, temperature=0, logprobs=True, top_logprobs=5), **options}
    with_it, without = pair(drafting, CHAT, body)
    assert with_it["choices"] == without["choices"]
    content = with_it["choices"][0]["logprobs"]["content"]
    assert len(content) == with_it["usage"]["completion_tokens"]
    assert all(-100 < t["logprob"] < 0 and len(t["top_logprobs"]) == 5 for t in content)
    pieces = [c["logprobs"] for c in pieces_of(drafting, CHAT, body) if c.get("logprobs")]
    assert [t for piece in pieces for t in piece["content"]] == content


PARAMETERS = {"type": "object", "properties": {"day": {"enum": ["today", "on"]}}, "required": ["day"]}


@pytest.mark.parametrize("num_draft_tokens", [2, 8])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tags_in_the_prompt_are_not_copied_into_calls(server, choice, num_draft_tokens):
    """vllm 40875: a history full of calls and of what looks like one; drafts come from it, the text does not."""
    call = {"id": "c", "type": "function", "function": {"name": "w", "arguments": '{"day": "today"}'}}
    messages = [
        {"role": "user", "content": "<<function=w>> " * 3},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "<tool_call>\n{"},
    ]
    body = {
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "w", "parameters": PARAMETERS}}],
        "tool_choice": choice,
        "max_tokens": 60,
        "num_draft_tokens": num_draft_tokens,
    }
    for options in ({"temperature": 0}, {"temperature": 1.0, "seed": 2}):
        answers = pair(server, CHAT, {**body, **options})
        for answer in answers:
            for call in answer["choices"][0]["message"].get("tool_calls", ()):
                call["id"] = "any"
        assert answers[0]["choices"] == answers[1]["choices"]
        assert drafted(answers[0]) > 0
        shown = pieces_of(server, CHAT, {**body, **options})
        message = answers[0]["choices"][0]["message"]
        assert "".join(c["delta"].get("content", "") for c in shown) == (message["content"] or "")
        calls = [call["function"] for c in shown for call in c["delta"].get("tool_calls", ())]
        assert calls == [call["function"] for call in message.get("tool_calls", ())]


def test_a_small_limit_and_several_requests_leave_a_server_that_answers(tiny_llama):
    """ArcticInference 60: prompts around the limit, all at once, are answered up to it or refused."""
    with serving(tiny_llama, Settings(limits=Limits(max_prompt_tokens=400)), kv_cache_gb=SMALL_GB) as server:
        context = server.service.llm.info["context_length"]
        room = min(context, server.engine.cache.n_blocks * server.engine.cache.block_size - 1)
        lengths = [60, 399, 400, 401, room - 1, room, context, context + 1]
        bodies = [
            {"prompt": [5] * n, "max_tokens": most, "ignore_eos": True, "n": samples, "temperature": 1.0, "seed": n}
            for n in lengths
            for most, samples in ((3, 1), (60, 2), (room - 400, 1), (context, 1))
        ]
        solo = [server.ask(TEXT, body) for body in bodies]
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: server.ask(TEXT, body), bodies))
        for body, (status, _, answer), (_, _, alone) in zip(bodies, answers, solo, strict=True):
            n = len(body["prompt"])
            assert status in (200, 400), answer
            assert (status == 400) == (n > 400 or n + body["max_tokens"] > room), answer
            if status == 400:
                assert answer["error"]["message"]
                continue
            assert {c["finish_reason"] for c in answer["choices"]} == {"length"}
            assert answer["usage"]["completion_tokens"] == body["max_tokens"] * body["n"]
            assert answer["choices"] == alone["choices"]
        unlimited = server.ask(CHAT, hello("x" * 350, ignore_eos=True, max_tokens=None))[2]
        assert unlimited["usage"]["total_tokens"] == room
        server.settled()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_prompt_read_before_is_answered_as_the_first_time(drafting, at_once):
    """vllm 47930: the prefix is found, and as many drafts are accepted, in one request after another or beside it."""
    body = hello("a long prompt, " * 12 + str(at_once), temperature=0, logit_bias={"68": 20, "69": 20})
    first = drafting.ask(CHAT, body)[2]
    before = drafting.engine.cache.n_prefix_hits
    with ThreadPoolExecutor(3 if at_once else 1) as pool:
        again = list(pool.map(lambda _: drafting.ask(CHAT, body)[2], range(3)))
    assert drafting.engine.cache.n_prefix_hits > before
    assert accepted(first) > 0
    for answer in again:
        assert answer["choices"] == first["choices"]
        assert answer["usage"] == first["usage"]
        assert answer["metrics"]["speculative_decoding"] == first["metrics"]["speculative_decoding"]


def test_a_chat_sent_again_as_text_has_one_bos(bos_server):
    """transformers 37686; vllm 27486; sglang 888: what the template has written is not written again."""
    server, text = bos_server, bos_server.service.llm.text
    messages = [{"role": "user", "content": "the sun"}]
    templated = text.render(messages)
    assert templated.startswith("<bos>")
    chat = server.ask(CHAT, {"messages": messages, "max_tokens": 6, "temperature": 0})[2]
    body = {"max_tokens": 6, "temperature": 0, "logprobs": 0, "echo": True}
    ids = text.encode(templated)
    for prompt in (templated, ids, "the sun", text.encode("the sun")):
        answer = server.ask(TEXT, {**body, "prompt": prompt})[2]
        tokens = answer["choices"][0]["logprobs"]["tokens"][: answer["usage"]["prompt_tokens"]]
        assert [i for i, token in enumerate(tokens) if token == "<bos>"] == [0], prompt
        if prompt in (templated, ids):
            assert answer["usage"] == chat["usage"]
            assert answer["choices"][0]["text"].endswith(chat["choices"][0]["message"]["content"])
    as_text = server.ask(SCORE, {"prompt": templated, "candidates": ["a", "the"], "terminator": "end"})[2]
    as_chat = server.ask(SCORE, {"messages": messages, "candidates": ["a", "the"], "terminator": "end"})[2]
    assert as_text["data"] == as_chat["data"]


def test_characters_of_several_tokens_come_whole(server):
    """TGI 333; vllm 937; openvino.genai 541, 1302; mlc-llm 2978: wherever the text is cut, by length or by a stop."""
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [EMOJI]}}}
    body = {**hello("hello"), "response_format": wanted, "temperature": 0}
    full = f'"{EMOJI}"'
    whole = server.ask(CHAT, {**body, "max_tokens": 99})[2]["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == (full, "stop")
    n = len(full.encode())
    seen = ""
    for max_tokens in range(1, n + 1):
        options = {"max_tokens": max_tokens, "logprobs": True, "stream_options": {"include_tokens": True}}
        shown = pieces_of(server, CHAT, {**body, **options})
        text = "".join(c["delta"].get("content", "") for c in shown)
        assert full.startswith(text)
        assert text.startswith(seen)
        seen = text
        data = bytes(b for c in shown for t in c.get("tokens", ()) for b in t["bytes"])
        assert data.decode(errors="ignore") == text
    assert seen == full
    for stop in ("語", "\u200d", "本語 it", "ok", "👩‍👧"):
        cut = server.ask(CHAT, {**body, "max_tokens": 99, "stop": stop})[2]["choices"][0]["message"]["content"]
        assert cut == full[: full.index(stop)]
        assert streamed_text(server, {**body, "max_tokens": 99, "stop": stop}) == cut


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1.0, "seed": 3, "n": 2}])
def test_short_and_long_prompts_of_one_request_equal_their_own(server, llm, options):
    """unsloth 3699: no row of a batch sees another's padding."""
    ids = llm.text.encode("a long prompt about the sun " * 4)
    prompts = [ids[:1], ids[:30], ids, ids[1:2]]
    body = {**options, "max_tokens": 20, "logprobs": 1}
    together = server.ask(TEXT, {**body, "prompt": prompts})[2]
    alone = [c for p in prompts for c in server.ask(TEXT, {**body, "prompt": p})[2]["choices"]]
    assert [{**c, "index": 0} for c in together["choices"]] == [{**c, "index": 0} for c in alone]
    assert [c["index"] for c in together["choices"]] == list(range(len(alone)))
    assert together["usage"]["prompt_tokens"] == sum(map(len, prompts))
    texts = collections.defaultdict(str)
    for choice in pieces_of(server, TEXT, {**body, "prompt": prompts}):
        texts[choice["index"]] += choice["text"]
    assert [texts[i] for i in range(len(alone))] == [c["text"] for c in alone]
