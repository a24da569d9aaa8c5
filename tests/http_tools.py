"""A server on the tiny model, in a thread of this process, and how tests talk to it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wager.llm import LLM
from wager.serve.config import Settings
from wager.serve.run import in_thread
from wager.serve.service import Service


class Server:
    def __init__(self, service: Service, port: int) -> None:
        self.service, self.port = service, port
        self.engine = service.llm.engine
        self.url = f"http://127.0.0.1:{port}/v1"

    def ask(self, path: str, body=None, *, raw: bytes | None = None, headers=(), method: str | None = None):
        """Status, headers and the parsed body (text where it is no JSON)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, value

    def events(self, path: str, body):
        """The parsed events of a stream, [DONE] as it is."""
        status, headers, text = self.ask(path, body)
        assert status == 200, text
        assert headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def settled(self, timeout_s: float = 20.0) -> None:
        """Wait until nothing runs; then every block must be free again."""
        loop, end = self.service.loop, time.monotonic() + timeout_s
        while loop.n_sequences or self.engine.has_work:
            assert time.monotonic() < end, f"{loop.n_sequences} sequences are still there"
            time.sleep(0.01)
        self.engine.cache.check()


@contextmanager
def serving(
    model,
    settings: Settings | None = None,
    *,
    drafter: str = "lookup",
    num_draft_tokens: int | None = 4,
    after_step=None,
    grace_s=0.2,
    kv_cache_gb=0.1,
) -> Iterator[Server]:
    settings = settings or Settings()
    more = {"drafter": drafter, "num_draft_tokens": num_draft_tokens, "max_seqs": settings.limits.max_seqs}
    llm = LLM(model, kv_cache_gb=kv_cache_gb, **more)
    if after_step is not None:
        told = llm.engine.on_step
        llm.engine.on_step = lambda record: (told(record), after_step(llm.engine))
    service = Service(llm, settings)
    with in_thread(service, grace_s=grace_s) as port:
        yield Server(service, port)
