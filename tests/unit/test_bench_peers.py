"""Peers in processes of their own: a stand-in for llama.cpp's server, and openvino-genai on a tiny model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wager.bench.answer import MissingPeer, Request
from wager.bench.methods import parse_method
from wager.bench.peers import open_peer
from wager.types import Sampling

PROPERTIES = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"}
SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply({{"build_info": "b123"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["prompt"] == [666]:
            sys.exit(1)
        assert asked["temperature"] == 0 and asked["ignore_eos"] and not asked["cache_prompt"], asked
        n = asked["n_predict"]
        timings = {{"prompt_ms": 500.0, "predicted_ms": 100.0 * (n - 1), "predicted_n": n}}
        self.reply({{"tokens": [asked["prompt"][0]] * n, "timings": timings}})

    def log_message(self, *args):
        pass

assert "-m" in sys.argv
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def ask(tokens: list[int], n: int = 5) -> Request:
    return Request(tokens, Sampling(max_tokens=n, ignore_eos=True, seed=0))


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to serve, and a server on LLAMA_CPP."""
    server = tmp_path / "bin" / "llama-server"
    server.parent.mkdir()
    server.write_text(SERVER.format(python=sys.executable))
    server.chmod(0o755)
    monkeypatch.setenv("LLAMA_CPP", str(server.parent))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path


def open_llama(gguf: Path) -> object:
    return open_peer(parse_method(f"llamacpp:{gguf}"), ir_dir=gguf, properties={}, eos_ids=[])


def test_llama_cpp_is_timed_by_its_own_clock(gguf: Path) -> None:
    runner = open_peer(parse_method(f"llamacpp:{gguf}"), ir_dir=gguf, properties={}, eos_ids=[])
    try:
        answer = runner.run(ask([9, 8]))
        assert runner.settings == {"engine": "llama.cpp b123", "gguf": "m.gguf", "weights_bytes": 4}
        assert answer.tokens == [9] * 5
        assert answer.times_s == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
        with pytest.raises(MissingPeer, match="failed at /completion"):
            runner.run(ask([666]))
    finally:
        runner.close()


def test_a_missing_llama_cpp_says_what_to_do(gguf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(MissingPeer, match=r"llamacpp:FILE\.gguf"):
        open_llama(tmp_path / "none.gguf")
    monkeypatch.setenv("LLAMA_CPP", str(tmp_path))
    with pytest.raises(MissingPeer, match="no llama-server"):
        open_llama(gguf)
    monkeypatch.delenv("LLAMA_CPP")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPeer, match="set LLAMA_CPP"):
        open_llama(gguf)


def test_a_server_that_dies_at_once_is_missing(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "llama-server").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(MissingPeer, match="exit code 3"):
        open_llama(gguf)


@pytest.mark.parametrize("mode", ["", "sdpa", "lookup"])
def test_genai_answers_in_token_ids(tiny_llama: Path, mode: str) -> None:
    method = parse_method(f"genai:{mode}" if mode else "genai")
    runner = open_peer(method, ir_dir=tiny_llama, properties=PROPERTIES, eos_ids=[2])
    try:
        one, two = runner.run(ask([5, 6, 7, 5, 6])), runner.run(ask([5, 6, 7, 5, 6], 9))
        assert len(one.tokens) == len(one.times_s) == 5
        assert one.times_s == sorted(one.times_s)
        assert one.times_s[0] > 0
        assert two.tokens[:5] == one.tokens
        assert runner.settings["properties"] == PROPERTIES
    finally:
        runner.close()


def test_genai_that_cannot_load_is_missing_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(MissingPeer, match=r"(?i)(model|find|open|exist)"):
        open_peer(parse_method("genai"), ir_dir=tmp_path / "none", properties={}, eos_ids=[])
