"""Other engines on the same tokens, each in a process of its own that only works while it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from wager.bench.answer import Answer, MissingPeer, Request, Runner
from wager.bench.methods import Method
from wager.errors import WagerError
from wager.models import catalog
from wager.types import JSON

_HERE = Path(__file__).parent
PEERS_PYTHON = "WAGER_PEERS_PYTHON"
MADE = _HERE.parents[2] / ".venv-peers" / "bin" / "python"  # by make peers, in a source tree


class Worker:
    """A peer's process, spoken to in JSON lines: one request, one answer; it waits on its input in between.

    Raises MissingPeer with the peer's own words where it cannot start or fails.
    """

    def __init__(self, engine: str, options: JSON, *, python: str = sys.executable, env: JSON | None = None) -> None:
        self._process = subprocess.Popen(
            [python, "-P", str(_HERE / "worker.py"), engine, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        try:
            self.settings: JSON = self._answer()
        except BaseException:
            self.close()
            raise

    def run(self, request: Request) -> Answer:
        sampling = request.sampling
        row = self.ask({"tokens": request.tokens, "max_tokens": sampling.max_tokens, "ignore_eos": sampling.ignore_eos})
        return Answer(row["tokens"], row["times_s"], row["finish"])

    def ask(self, question: JSON) -> JSON:
        """One line in, one line out. Raises MissingPeer where the process fails."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(question) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MissingPeer(f"its process ended (exit code {self._process.wait()})") from error
        return self._answer()

    def forget(self) -> None:
        """It keeps nothing from one request to the next."""

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
    """The peer that ``method`` names, on our weights, with our properties unless it is to have its own.

    Raises MissingPeer with the reason and what would help.
    """
    threads = {name: value for name, value in properties.items() if name == "INFERENCE_NUM_THREADS"}
    n_threads = int(next(iter(threads.values()), 0))
    options: JSON = {"mode": method.argument, "n_draft": method.n_draft, "eos_ids": eos_ids, "draft": ""}
    if method.kind == "genai":
        if find_spec("openvino_genai") is None:
            raise MissingPeer("openvino-genai is not installed: pip install openvino-genai")
        own = {"mode": method.argument or "pa", "properties": threads}
        draft = {"draft": str(_folder(method.draft))} if method.draft else {}
        options |= {"ir_dir": str(ir_dir), "properties": properties, **draft, **(own if method.defaults else {})}
        return _weighed(Worker("genai_worker", options), ir_dir / "openvino_model.bin")
    if method.kind == "transformers":
        python = _peers_python()
        draft = {"draft": str(_gguf(_folder(method.draft)))} if method.draft else {}
        options |= {"gguf": str(_gguf(ir_dir)), "n_threads": n_threads, **draft}
        # Threads that spin while they wait take the cores from each other as soon as anything else runs.
        wait = {} if method.defaults else {"OMP_WAIT_POLICY": "PASSIVE"}
        return Worker("transformers_worker", options, python=python, env={"HF_HUB_OFFLINE": "1", **wait})
    from wager.bench.llamacpp import LlamaServer, find_server

    binary = find_server()
    gguf = Path(method.argument) if method.argument else _gguf(ir_dir)
    return _weighed(LlamaServer(binary, gguf, n_threads=n_threads, eos_ids=eos_ids), gguf)


def _weighed(runner: Runner, weights: Path) -> Runner:
    """The same, with the size of its weights among its settings."""
    runner.settings["weights_bytes"] = weights.stat().st_size
    return runner


def _peers_python() -> str:
    """The Python that has transformers: an environment of its own, because torch must not come into ours."""
    chosen = os.environ.get(PEERS_PYTHON)
    if chosen and not os.access(chosen, os.X_OK):
        raise MissingPeer(f"{PEERS_PYTHON} is `{chosen}`, which is no program: give the python of that environment")
    if not chosen and not os.access(MADE, os.X_OK):
        raise MissingPeer(
            "transformers has no environment: make peers in the source tree, or set "
            f"{PEERS_PYTHON} to a python with torch, transformers, accelerate and gguf"
        )
    return chosen or str(MADE)


def _folder(model: str) -> Path:
    try:
        return catalog.resolve(model)
    except WagerError as error:
        raise MissingPeer(f"its draft model cannot be had: {error}") from error


def _gguf(ir_dir: Path) -> Path:
    """The file that a model was imported from: transformers and llama.cpp cannot read an OpenVINO folder."""
    source = catalog.source_of(ir_dir)
    if source is None:
        raise MissingPeer(f"it reads GGUF files, and the one that `{ir_dir.name}` was made from is not here")
    return source
