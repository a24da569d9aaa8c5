"""Saturation with random aborts, malformed bodies and slow readers: a minute on demand of CI, longer by WAGER_SOAK_S.

Nothing is answered with a 500, /health stays quick, memory stays flat, and every block is free at the end.
"""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import threading
import time

import numpy as np
import pytest

from http_tools import serving
from wager.serve.config import Limits, Settings

SECONDS = float(os.environ.get("WAGER_SOAK_S", "60"))
CHAT = "/v1/chat/completions"


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Client(threading.Thread):
    """Asks until ``end``, in one of many ways each time; what must not be is in ``troubles``."""

    def __init__(self, server, seed: int, end: float) -> None:
        super().__init__()
        self.server, self.rng, self.end = server, random.Random(seed), end
        self.troubles: list[str] = []
        self.n_answered = 0

    def run(self) -> None:
        while time.monotonic() < self.end:
            way = self.rng.choice([self.whole, self.whole, self.streamed, self.aborted, self.malformed, self.slow])
            try:
                way()
            except Exception as error:
                self.troubles.append(f"{way.__name__}: {error!r}")

    def body(self, **more):
        words = " ".join(self.rng.choices(["the", "cat", "saw", "a", "dog"], k=self.rng.randrange(1, 40)))
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": self.rng.randrange(1, 60)}
        extras = [{}, {"temperature": 1.2}, {"n": 2}, {"stop": "e"}, {"logprobs": True}, {"frequency_penalty": 1.0}]
        extras += [{"response_format": {"type": "json_object"}}]
        return {**body, **self.rng.choice(extras), **more}

    def expect(self, status: int, *allowed: int) -> None:
        if status not in allowed:
            self.troubles.append(f"status {status}")
        self.n_answered += 1

    def whole(self) -> None:
        self.expect(self.server.ask(CHAT, self.body())[0], 200, 429)

    def streamed(self) -> None:
        self.expect(self.server.ask(CHAT, self.body(stream=True))[0], 200, 429)

    def malformed(self) -> None:
        raw = self.rng.choice([b"{", b"[1]", b'{"messages": 3}', b'{"messages": [], "x": 1}', b"\xff"])
        self.expect(self.server.ask(CHAT, raw=raw)[0], 400)

    def aborted(self) -> None:
        with self.sent(self.body(stream=self.rng.random() < 0.5, max_tokens=300)):
            time.sleep(self.rng.random() / 20)

    def slow(self) -> None:
        with self.sent(self.body(stream=True)) as connection:
            while connection.recv(64):
                time.sleep(0.002)

    def sent(self, body) -> socket.socket:
        data = json.dumps(body).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        return connection


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 120)
def test_saturation_with_everything_that_clients_do(tiny_llama):
    settings = Settings(limits=Limits(max_seqs=8, max_queue=24))
    with serving(
        tiny_llama,
        settings,
        after_step=lambda engine: engine.cache.check(),
        kv_cache_gb=0.015,  # all of it is touched soon: what grows after that is a leak
    ) as server:
        start = time.monotonic()
        clients = [Client(server, seed, start + SECONDS) for seed in range(12)]
        for client in clients:
            client.start()
        memory, health_s = [], []
        while time.monotonic() < start + SECONDS:
            before = time.perf_counter()
            assert server.ask("/health")[0] == 200
            health_s.append(time.perf_counter() - before)
            memory.append(resident_bytes())
            time.sleep(0.1)
        for client in clients:
            client.join()
        server.settled()
        assert [trouble for client in clients for trouble in client.troubles] == []
    n_answered = sum(client.n_answered for client in clients)
    p99_ms = 1e3 * float(np.quantile(health_s, 0.99))
    third = len(memory) // 3
    growth = max(memory[-third:]) / max(memory[third : 2 * third]) - 1
    print(f"{n_answered} answers, /health p99 {p99_ms:.1f} ms, memory grew {growth:.1%} in the last third")
    assert n_answered > SECONDS
    assert growth < 0.03
