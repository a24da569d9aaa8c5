"""`wager serve` as a process: it starts, answers, stops when told, comes back after kill -9; and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

COMMAND = [sys.executable, "-c", "from wager.cli import main; main()", "serve", "--port", "0", "--kv-cache-gb", "0.1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@contextmanager
def started(
    home, model, *args: str, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process = subprocess.Popen(
        [*COMMAND, "-m", str(model), "--drafter", "lookup", *args],
        stderr=subprocess.PIPE,
        env={**os.environ, "WAGER_HOME": str(home), **(env or {})},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(rb"at (http://\S+)/v1", line)
            if found:
                break
        else:
            raise AssertionError("it ended before it listened")
        yield process, found[1].decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def ask(url: str, body=None, *, key: str | None = None):
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.loads(answer.read())


def test_it_answers_stops_when_told_and_comes_back_after_a_kill(home, tiny_llama):
    body = {"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 8, "seed": 1}
    with started(home, tiny_llama) as (process, url):
        first = ask(f"{url}/v1/chat/completions", body)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with started(home, tiny_llama) as (process, url):
        assert ask(f"{url}/ready")["status"] == "ready"
        again = ask(f"{url}/v1/chat/completions", body)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert again["choices"] == first["choices"]
    assert again["system_fingerprint"] == first["system_fingerprint"]


def test_keys_come_from_a_file_or_the_environment_never_from_the_command_line(home, tiny_llama, tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\ntwo\n")
    for args, env, key in ((("--api-keys", str(file)), {}, "two"), ((), {"WAGER_API_KEYS": "three"}, "three")):
        with started(home, tiny_llama, *args, env=env) as (_, url):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(f"{url}/v1/models")
            assert ask(f"{url}/v1/models", key=key)["object"] == "list"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--host", "0.0.0.0"), "api-keys"),
        (("--api-keys", "no-such-file"), "no-such-file"),
        (("--max-seqs", "0"), "max_seqs"),
        (("--deadline", "0"), "deadline"),
        (("--port", "70000"), "70000"),
        (("--host", "no.such.host.invalid"), "no.such.host.invalid"),
        (("--drafter", "nonsense"), "nonsense"),
        (("--drafters", "lookup,retrieval"), "retrieval"),
        (("--rule", "nonsense"), "nonsense"),
    ],
)
def test_what_it_refuses_it_says_in_a_sentence(wager, tiny_llama, args, says):
    result = wager("serve", "-m", str(tiny_llama), *args)
    assert result.code == 2
    assert says in result.err
    assert result.err.count("\n") == 1
