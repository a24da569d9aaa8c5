"""Peers in processes of their own: a stand-in for llama.cpp's server, and openvino-genai on a tiny model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wager.bench import peers
from wager.bench.answer import MissingPeer, Request
from wager.bench.llamacpp import find_server
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
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MissingPeer, match="set LLAMA_CPP"):
        open_llama(gguf)
    (gguf.parent / "bin" / "llama-server").rename(tmp_path / "llama-server")
    assert find_server() == str(tmp_path / "llama-server")


def test_a_server_that_dies_at_once_is_missing(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "llama-server").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(MissingPeer, match="exit code 3"):
        open_llama(gguf)


@pytest.mark.parametrize("mode", ["", "sdpa", "draft:TINY", "lookup:n=2:defaults"])
def test_genai_answers_in_token_ids(tiny_llama: Path, mode: str) -> None:
    method = parse_method(f"genai:{mode}".replace("TINY", str(tiny_llama)) if mode else "genai")
    runner = open_peer(method, ir_dir=tiny_llama, properties=PROPERTIES, eos_ids=[2])
    try:
        one, two = runner.run(ask([5, 6, 7, 5, 6])), runner.run(ask([5, 6, 7, 5, 6], 9))
        assert len(one.tokens) == len(one.times_s) == 5
        assert one.times_s == sorted(one.times_s)
        assert one.times_s[0] > 0
        assert two.tokens[:5] == one.tokens
        assert runner.settings["properties"] == ({} if method.defaults else PROPERTIES)
        assert runner.settings["weights_bytes"] == (tiny_llama / "openvino_model.bin").stat().st_size
    finally:
        runner.close()


def test_genai_that_cannot_load_is_missing_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(MissingPeer, match=r"(?i)(model|find|open|exist)"):
        open_peer(parse_method("genai"), ir_dir=tmp_path / "none", properties={}, eos_ids=[])


def test_a_draft_model_that_cannot_be_had_is_said(tiny_llama: Path) -> None:
    with pytest.raises(MissingPeer, match="its draft model cannot be had: `nowhere` is no model here"):
        open_peer(parse_method("genai:draft:nowhere"), ir_dir=tiny_llama, properties={}, eos_ids=[])


# What transformers_worker.py uses of them. The model counts up from the last token of the prompt, and streams as
# transformers does: the prompt, then one token or several.
FAKES = {
    "torch": """
import os
__version__ = "2.0"
threads = 8
class tensor(list):
    @property
    def shape(self): return (len(self), len(self[0]))
    def flatten(self): return tensor(x for row in self for x in row) if isinstance(self[0], list) else self
    def tolist(self): return list(self)
def ones_like(t): return tensor([[1] * t.shape[1]])
def set_num_threads(n): global threads; threads = n
def get_num_threads(): return threads
""",
    "transformers/__init__": """
import os, torch
__version__ = "5.0"
class logging:
    set_verbosity_error = staticmethod(lambda: None)
class Parameter:
    numel = lambda self: 100
    element_size = lambda self: 4
class Model:
    dtype = "torch.float32"
    class config: vocab_size = 50
    class generation_config: pass
    def eval(self): return self
    def parameters(self): return [Parameter()]
    def generate(self, prompt, *, attention_mask, do_sample, max_new_tokens, eos_token_id, pad_token_id, streamer,
                 prompt_lookup_num_tokens=1, assistant_model=None):
        assert not do_sample and attention_mask == [[1] * prompt.shape[1]] and os.environ["HF_HUB_OFFLINE"] == "1"
        if prompt[0] == [13]: raise RuntimeError("unlucky")
        streamer.put(prompt)
        answer, last = [], prompt[0][-1]
        while len(answer) < max_new_tokens and not (answer and answer[-1] in eos_token_id):
            step = [last + len(answer) + i + 1 for i in range(prompt_lookup_num_tokens)]
            step = step[:max_new_tokens - len(answer)]
            streamer.put(torch.tensor(step))
            answer += step
        return torch.tensor([torch.tensor(prompt[0] + answer)])
class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, *, gguf_file, local_files_only):
        assert (folder / gguf_file).read_bytes() == b"GGUF" and local_files_only
        return Model()
""",
    "transformers/generation/__init__": "",
    "transformers/generation/streamers": "class BaseStreamer: pass",
}


@pytest.fixture
def fake_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder whose GGUF source is known, and an environment with the fakes in it."""
    for name, source in FAKES.items():
        path = tmp_path / "env" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "env"))
    monkeypatch.setenv(peers.PEERS_PYTHON, sys.executable)
    monkeypatch.setattr(peers.catalog, "source_of", lambda folder: tmp_path / "m.gguf")
    return tmp_path


@pytest.mark.parametrize(("mode", "n_together"), [("", 1), (":lookup", 10), (":lookup:n=3", 3)])
def test_transformers_is_fed_and_counted_in_token_ids(fake_transformers: Path, mode: str, n_together: int) -> None:
    method = parse_method(f"transformers{mode}")
    properties = {"INFERENCE_NUM_THREADS": "1", "KV_CACHE_PRECISION": "f16"}
    runner = open_peer(method, ir_dir=fake_transformers, properties=properties, eos_ids=[15])
    try:
        answer = runner.run(ask([7, 9], 12))
        assert answer.tokens == list(range(10, 22)), "the prompt is no part of it, and an end is ignored where asked"
        assert len(set(answer.times_s[:n_together])) == 1
        assert len(set(answer.times_s)) == -(-12 // n_together)
        stopped = runner.run(Request([7, 9], Sampling(max_tokens=12, seed=0)))
        assert (stopped.tokens[-1], stopped.finish) == ((15, "stop") if n_together != 10 else (21, "length"))
        assert runner.settings | {"n_threads": 1, "weights_bytes": 400, "dtype": "torch.float32"} == runner.settings
        with pytest.raises(MissingPeer, match="unlucky"):
            runner.run(ask([13]))
    finally:
        runner.close()


def test_a_missing_transformers_says_what_to_do(
    fake_transformers: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def why(ir_dir: Path = fake_transformers) -> str:
        with pytest.raises(MissingPeer) as missing:
            open_peer(parse_method("transformers"), ir_dir=ir_dir, properties={}, eos_ids=[])
        return str(missing.value)

    monkeypatch.setenv("PYTHONPATH", "")
    assert "No module named 'torch'" in why()
    monkeypatch.setattr(peers.catalog, "source_of", lambda folder: None)
    assert "the one that `tiny-llama` was made from is not here" in why(tiny_llama)
    monkeypatch.setenv(peers.PEERS_PYTHON, "/nowhere/python")
    assert "WAGER_PEERS_PYTHON is `/nowhere/python`" in why()
    monkeypatch.delenv(peers.PEERS_PYTHON)
    monkeypatch.setattr(peers, "MADE", Path("/nowhere"))
    assert "make peers in the source tree, or set WAGER_PEERS_PYTHON" in why()
