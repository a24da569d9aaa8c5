"""Other engines on the same tokens, each in a process of its own that only works while it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from wager.bench.answer import Answer, MissingPeer, Request, Runner
from wager.bench.methods import Method
from wager.types import JSON


class Worker:
    """A peer's process, spoken to in JSON lines: one request, one answer; it waits on its input in between.

    Raises MissingPeer with the peer's own words where it cannot start or fails.
    """

    def __init__(self, module: str, options: JSON) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.settings: JSON = self._answer()
        except BaseException:
            self.close()
            raise

    def run(self, request: Request) -> Answer:
        sampling = request.sampling
        question = {
            "tokens": request.tokens,
            "max_tokens": sampling.max_tokens,
            "ignore_eos": sampling.ignore_eos,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(question) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MissingPeer(f"its process ended (exit code {self._process.wait()})") from error
        row = self._answer()
        return Answer(row["tokens"], row["times_s"], row["finish"])

    def close(self) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answer(self) -> JSON:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MissingPeer(f"its process ended (exit code {self._process.wait()})")
        row: JSON = json.loads(line)
        if "error" in row:
            raise MissingPeer(row["error"])
        return row


def open_peer(method: Method, *, ir_dir: Path, properties: dict[str, str], eos_ids: list[int]) -> Runner:
    """The peer that ``method`` names, on our IR folder with our properties. Raises MissingPeer with the reason."""
    if method.kind == "genai":
        if find_spec("openvino_genai") is None:
            raise MissingPeer("openvino-genai is not installed: pip install openvino-genai")
        options = {"ir_dir": str(ir_dir), "mode": method.argument, "properties": properties, "eos_ids": eos_ids}
        return Worker("wager.bench.genai_worker", options)
    from wager.bench.llamacpp import LlamaServer

    return LlamaServer(method.argument, n_threads=int(properties.get("INFERENCE_NUM_THREADS", 0)), eos_ids=eos_ids)
