"""The server against its own description and against raw bytes: whatever comes, nothing is answered with a 500."""

from __future__ import annotations

import random
import socket

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

CHECKED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_bodies_made_from_the_description_get_an_answer_or_a_reason(server, path):
    schema = schemathesis.openapi.from_dict(server.ask("/openapi.json")[2])
    operation = schema[path]["post"]
    statuses: list[int] = []

    @CHECKED
    @given(case=operation.as_strategy())
    def ask(case):
        body = case.body
        if isinstance(body, dict):
            body = {**body, "max_tokens": 4} if not isinstance(body.get("max_completion_tokens"), int) else body
            if len(statuses) % 2 and "messages" in body:  # a conversation made up of anything is hardly ever one
                body["messages"] = [{"role": "user", "content": "hello"}]
        status, _, answer = server.ask(path, body if isinstance(body, dict) else {"prompt": str(body)})
        statuses.append(status)
        assert status < 500, (body, answer)
        assert status == 200 or answer["error"]["message"]

    ask()
    assert {200, 400} <= set(statuses)


def test_raw_bytes_get_an_answer_or_a_closed_connection(server):
    rng = random.Random(0)
    good = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60\r\n\r\n"
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}'
    )
    for i in range(60):
        data = bytearray(good if i % 3 else rng.randbytes(rng.randrange(1, 400)))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(bytes(data))
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        assert not answer.startswith(b"HTTP/1.1 5"), (bytes(data), answer)
    assert server.ask("/health")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
    ],
)
def test_odd_requests_are_answered(server, head):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert b"root:" not in answer
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
