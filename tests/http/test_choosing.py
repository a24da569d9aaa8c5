"""Requests that choose their drafter: the same text, many drafters in one batch, told apart in the metrics."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from http_tools import serving
from wager.errors import OptionError
from wager.llm import LLM
from wager.policies import Fixed
from wager.serve.config import Limits, Settings
from wager.serve.service import Service

CHAT = "/v1/chat/completions"
ALL = ("auto", "lookup", "suffix", "cacheback", "recycling", "lookahead", "none")
REPEATED = {"messages": [{"role": "user", "content": "ab ab ab ab ab ab ab ab"}], "max_tokens": 40, "ignore_eos": True}


@pytest.fixture(scope="module")
def mixed(tiny_llama, _home):
    batches = []

    def check(engine):
        engine.cache.check()
        batches.append({run.drafter and engine.drafter.explain(run.seq.id) for run in engine._runs.values()})

    settings = Settings(limits=Limits(max_seqs=len(ALL), max_queue=100), drafters=ALL)
    with serving(tiny_llama, settings, after_step=check) as server:
        server.batches = batches
        yield server
        server.settled()
        assert not server.engine.drafter._bound


def drafts(server):
    """Verified draft tokens, by drafter."""
    head = 'wager_spec_decode_num_draft_tokens_total{drafter="'
    lines = [line for line in server.ask("/metrics")[2].splitlines() if line.startswith(head)]
    return {line.removeprefix(head).split('"')[0]: float(line.split()[-1]) for line in lines}


def test_the_model_lists_what_can_be_chosen(mixed):
    about = mixed.ask("/v1/models")[2]["data"][0]["wager"]
    assert about["drafter"] == about["drafters"][0] == "lookup"
    assert sorted(about["drafters"]) == sorted(["blend", *ALL[1:]])


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_the_text_is_the_same_whoever_drafts_in_a_mixed_batch(mixed, temperature):
    bodies = [{**REPEATED, "temperature": temperature, "seed": i % 4, "drafter": ALL[i % 7]} for i in range(28)]
    plain = [
        mixed.ask(CHAT, {**REPEATED, "temperature": temperature, "seed": s, "drafter": "none"})[2] for s in range(4)
    ]
    before = drafts(mixed)
    mixed.batches.clear()
    with ThreadPoolExecutor(28) as pool:
        answers = list(pool.map(lambda body: mixed.ask(CHAT, body)[2], bodies))
    mixed.settled()
    assert [a["choices"] for a in answers] == [plain[body["seed"]]["choices"] for body in bodies]
    assert max(len(batch - {None}) for batch in mixed.batches) >= 3
    told = [answer["metrics"]["speculative_decoding"] for answer in answers]
    assert [t["drafter"] for t in told] == [{"auto": "blend"}.get(b["drafter"], b["drafter"]) for b in bodies]
    counted = {name: n - before.get(name, 0) for name, n in drafts(mixed).items()}
    for name in {t["drafter"] for t in told}:
        mine = sum(t["num_draft_tokens"] for t in told if t["drafter"] == name)
        assert counted[name] == mine
        assert (mine > 0) == (name != "none")


def test_what_is_not_named_is_the_served_one(mixed):
    answer = mixed.ask(CHAT, {**REPEATED, "temperature": 0})[2]
    assert answer["metrics"]["speculative_decoding"]["drafter"] == "lookup"
    off = mixed.ask(CHAT, {**REPEATED, "temperature": 0, "drafter": "suffix", "speculate": False})[2]
    assert off["metrics"]["speculative_decoding"]["drafter"] == "none"
    assert off["choices"] == answer["choices"]


@pytest.mark.parametrize("drafter", ["retrieval:/etc/passwd", "model:x", "copy:int4", "", "lookup+suffix", "Lookup"])
def test_what_is_not_offered_is_refused_with_what_is(mixed, drafter):
    status, _, answer = mixed.ask(CHAT, {**REPEATED, "drafter": drafter})
    assert status == 400
    assert answer["error"]["param"] == "drafter"
    assert "recycling" in answer["error"]["message"]


def test_a_server_that_drafts_nothing_can_be_asked_to(tiny_llama):
    settings = Settings(drafters=("suffix",))
    with serving(tiny_llama, settings, drafter="none", num_draft_tokens=None) as server:
        server.engine.policy = Fixed(4)  # whether it pays with a tiny model is another question
        plain, drafted = (server.ask(CHAT, {**REPEATED, "temperature": 0, **m})[2] for m in ({}, {"drafter": "suffix"}))
        assert plain["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
        assert drafted["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
        assert plain["choices"] == drafted["choices"]
        assert server.ask(CHAT, {**REPEATED, "drafter": "lookup"})[0] == 400


@pytest.mark.parametrize("name", ["retrieval", "retrieval:x", "model:x", "skip", "copy:int4", "what", ""])
def test_only_what_needs_nothing_more_can_be_offered(name):
    with pytest.raises(OptionError, match="lookahead"):
        Settings(drafters=("lookup", name))


def test_where_text_depends_on_drafts_nothing_else_is_offered(tiny_llama):
    llm = LLM(tiny_llama, drafter="lookup", rule="nss", kv_cache_gb=0.1)
    with pytest.raises(OptionError, match="nss"):
        Service(llm, Settings(drafters=("suffix",)))
    assert Service(llm, Settings(drafters=None)).drafters == ("lookup", "none")


@pytest.mark.parametrize("drafters", [None, ("suffix",)])
def test_auto_can_be_had_wherever_what_it_drafts_from_can(tiny_llama, drafters):
    with serving(tiny_llama, Settings(drafters=drafters), drafter="lookup") as server:
        plain, auto = (server.ask(CHAT, {**REPEATED, "temperature": 0, "drafter": d})[2] for d in ("none", "auto"))
        assert auto["metrics"]["speculative_decoding"]["drafter"] == "blend"
        assert auto["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
        assert plain["choices"] == auto["choices"]
        status, _, refused = server.ask(CHAT, {**REPEATED, "rule": "spectr"})
        assert (status, refused["error"]["param"]) == (400, "rule")
        assert "'walk'" in refused["error"]["message"]
