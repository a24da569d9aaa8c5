"""Many at once: identity, cancelling, queues, deadlines, keys; and that nothing is left behind."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from http_tools import serving
from wager.serve.config import Limits, Settings

CHAT = "/v1/chat/completions"
WORDS = ["the", "cat", "saw", "a", "dog", "and", "the", "dog", "saw", "a", "cat", "so"]


def request(rng, **more):
    """A random request; its text must not depend on who else is there."""
    body = {
        "messages": [{"role": "user", "content": " ".join(rng.choice(WORDS, int(rng.integers(1, 60))))}],
        "max_tokens": int(rng.integers(1, 40)),
        "temperature": float(rng.choice([0.0, 0.8, 1.5])),
        "seed": int(rng.integers(1000)),
        "n": int(rng.choice([1, 1, 2])),
    }
    extras = [
        {"repetition_penalty": 1.2},
        {"frequency_penalty": 1.0},
        {"top_k": 5},
        {"logprobs": True},
        {"stop": "e"},
        {},
    ]
    return {**body, **extras[int(rng.integers(len(extras)))], **more}


def hang_up(server, body, after_s):
    """Send a request and close the connection a little later, reading nothing."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        time.sleep(after_s)


def test_every_text_is_that_of_a_solo_run(tiny_llama):
    rng = np.random.default_rng(0)
    bodies = [request(rng) for _ in range(32)]
    checks = []

    def check(engine):
        engine.cache.check()
        checks.append(len(engine._runs))

    with serving(tiny_llama, Settings(limits=Limits(max_seqs=6, max_queue=500)), after_step=check) as server:
        alone = [server.ask(CHAT, {**body, "speculate": False})[2] for body in bodies]
        checks.clear()
        noise = [request(rng, stream=bool(i % 2), max_tokens=200, ignore_eos=True) for i in range(12)]
        delays = rng.random(12) / 10
        with ThreadPoolExecutor(28) as pool:
            leaving = [pool.submit(hang_up, server, body, d) for body, d in zip(noise, delays, strict=True)]
            answers = list(pool.map(lambda body: server.ask(CHAT, body)[2], bodies))
            for one in leaving:
                one.result()
        server.settled()
    assert [a["choices"] for a in answers] == [a["choices"] for a in alone]
    assert max(checks) > 6  # some waited


def test_hanging_up_frees_everything(tiny_llama):
    with serving(tiny_llama, Settings(limits=Limits(max_seqs=8, max_queue=2000))) as server:
        server.ask(CHAT, request(np.random.default_rng(0)))
        server.settled()
        free = server.engine.cache.n_free
        rng = np.random.default_rng(1)
        with ThreadPoolExecutor(16) as pool:
            for _ in pool.map(
                lambda i: hang_up(server, request(np.random.default_rng(i), stream=i % 2 == 0), float(i % 7) / 200),
                range(1000),
            ):
                pass
        server.settled()
        assert server.engine.cache.n_free == free
        assert server.ask(CHAT, request(rng))[0] == 200


def test_a_full_queue_is_said_and_when_to_come_back(tiny_llama):
    with serving(tiny_llama, Settings(limits=Limits(max_seqs=1, max_queue=1))) as server:
        long = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 400, "ignore_eos": True}
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: server.ask(CHAT, long), range(8)))
        refused = [a for a in answers if a[0] == 429]
        assert refused
        assert sum(a[0] == 200 for a in answers) >= 2
        assert all(int(a[1]["retry-after"]) >= 1 for a in refused)
        assert all(a[2]["error"]["code"] == "queue_full" for a in refused)
        server.settled()


def test_a_request_has_a_deadline(tiny_llama):
    with serving(tiny_llama, Settings(limits=Limits(deadline_s=0.05))) as server:
        body = {"messages": [{"role": "user", "content": "go"}], "ignore_eos": True, "n": 8}
        status, _, answer = server.ask(CHAT, body)
        assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
        events = server.ask(CHAT, {**body, "stream": True})[2]
        assert "deadline_exceeded" in (events if isinstance(events, str) else json.dumps(events))
        server.settled()


def test_keys_hosts_and_shares(tiny_llama):
    settings = Settings(keys=("right", "other"), limits=Limits(max_per_key=1))
    with serving(tiny_llama, settings) as server:
        body = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 4}
        for header in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic right"},
            {"authorization": "Bearer "},
        ):
            status, headers, answer = server.ask(CHAT, body, headers=header)
            assert status == 401
            assert headers["www-authenticate"] == "Bearer"
            assert answer["error"]["code"] == "invalid_api_key"
        good = {"authorization": "Bearer right"}
        assert server.ask(CHAT, body, headers=good)[0] == 200
        assert server.ask("/metrics")[0] == 401
        assert server.ask("/health")[0] == 200
        assert server.ask(CHAT, body, headers={**good, "host": "evil.example"})[0] == 403
        long = {**body, "max_tokens": 300, "ignore_eos": True}
        with ThreadPoolExecutor(4) as pool:
            statuses = [a[0] for a in pool.map(lambda _: server.ask(CHAT, long, headers=good), range(4))]
        assert 429 in statuses
        assert 200 in statuses
        assert server.ask(CHAT, body, headers={"authorization": "Bearer other"})[0] == 200
        assert "access-control-allow-origin" not in server.ask("/health", headers={"origin": "http://a.example"})[1]


def test_a_step_that_fails_is_told_and_the_next_request_works(tiny_llama, monkeypatch):
    with serving(tiny_llama) as server:
        engine = server.engine
        step, failed = engine.step, threading.Event()

        def broken():
            if not failed.is_set():
                failed.set()
                raise RuntimeError("secret internals")
            return step()

        monkeypatch.setattr(engine, "step", broken)
        body = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 4}
        status, _, answer = server.ask(CHAT, body)
        assert status == 500
        assert "secret" not in json.dumps(answer)
        assert server.ask(CHAT, body)[0] == 200
        server.settled()


@pytest.mark.parametrize("stream", [False, True])
def test_shutting_down_ends_what_runs(tiny_llama, stream):
    body = {"messages": [{"role": "user", "content": "go"}], "ignore_eos": True, "n": 8, "stream": stream}

    def ask(server):
        try:
            return server.ask(CHAT, body)[0]
        except (http.client.HTTPException, OSError):
            return "cut off"

    with ThreadPoolExecutor(1) as pool:
        with serving(tiny_llama) as server:
            asked = pool.submit(ask, server)
            while not server.service.loop.n_sequences:
                time.sleep(0.005)
        assert asked.result(timeout=30) in ((200, "cut off") if stream else (200, 503))
    assert not server.engine.has_work
