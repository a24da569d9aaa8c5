"""From the options of `wager bench` to a measurement ready to run: models, peers, prompts, provenance."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ListLike
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wager.bench import ours, peers
from wager.bench.answer import MissingPeer, Runner
from wager.bench.journal import Journal
from wager.bench.methods import Method, check_methods, parse_methods
from wager.bench.run import EncodedPrompt, Measurement, Progress
from wager.bench.suite import Prompt, choose, listed, load_suite, sha256, suite_path
from wager.errors import OptionError
from wager.llm import LLM
from wager.machine import cpu
from wager.tuning import bandwidth
from wager.types import JSON, Sampling

FORMAT = 2
_PACKAGES = ("wager", "openvino", "openvino-genai", "openvino-tokenizers", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `wager bench`, by the names they have there."""

    model: str
    methods: str
    suite: str
    per_task: int | None
    tasks: str
    max_tokens: int
    temperature: float
    ignore_eos: bool
    repeats: int
    seed: int
    threads: int | None
    out: Path


@contextmanager
def opened(options: Options, *, say: Callable[[str], None], progress: Progress) -> Iterator[Measurement]:
    """Everything loaded and open, and closed again at the end."""
    methods = parse_methods(options.methods)
    check_methods(methods, temperature=options.temperature)
    if options.repeats < 1:
        raise OptionError(f"`--repeats` is `{options.repeats}`: give at least 1")
    sampling = Sampling(
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        ignore_eos=options.ignore_eos,
        seed=options.seed,
    )
    path = suite_path(options.suite)
    prompts = choose(load_suite(path), per_task=options.per_task, tasks=listed(options.tasks))
    llms: dict[str, LLM] = {}
    for profile in dict.fromkeys(method.profile for method in methods):
        llms[profile] = ours.load(options.model, profile, threads=options.threads, progress=progress)
    journal = Journal(options.out, provenance(options, methods, path, llms))
    runners: dict[str, Runner] = {}
    try:
        for i, method in enumerate(methods):
            progress("loading", i, len(methods))
            _open_runner(method, options, llms[method.profile], runners, journal, say)
        progress("loading", len(methods), len(methods))
        first = next(iter(llms.values()))
        encoded = encode(prompts, first, sampling.max_tokens, journal, say)
        if not encoded:
            raise OptionError(f"no prompt of `{options.suite}` fits the model's context: give another --suite")
        exact = frozenset(name for name, runner in runners.items() if isinstance(runner, ours.Ours) and runner.is_exact)
        yield Measurement(journal, methods, runners, encoded, sampling, options.repeats, exact, say, progress)
    finally:
        for runner in runners.values():
            runner.close()
        for llm in llms.values():
            llm.close()
        journal.close()


def _open_runner(
    method: Method,
    options: Options,
    llm: LLM,
    runners: dict[str, Runner],
    journal: Journal,
    say: Callable[[str], None],
) -> None:
    try:
        if method.is_ours:
            runner: Runner = ours.Ours(llm, method)
        else:
            properties = {str(k): str(v) for k, v in llm.info["properties"].items()}
            eos_ids = sorted(llm.text.eos_ids)
            runner = peers.open_peer(method, ir_dir=llm.ir_dir, properties=properties, eos_ids=eos_ids)
    except MissingPeer as reason:
        journal.add({"kind": "missing", "method": method.name, "reason": str(reason)})
        say(f"`{method.name}` is missing: {reason}")
    else:
        runners[method.name] = runner
        journal.add({"kind": "method", "method": method.name, "settings": runner.settings})


def encode(
    prompts: ListLike[Prompt], llm: LLM, max_tokens: int, journal: Journal, say: Callable[[str], None]
) -> list[EncodedPrompt]:
    """Token ids in the model's chat template, where it has one. What does not fit with its answer is left out, said."""
    encoded: list[EncodedPrompt] = []
    room = int(llm.info["context_length"]) - max_tokens
    for prompt in prompts:
        if llm.text.has_chat_template:
            tokens = llm.text.chat([{"role": "user", "content": prompt.text}])
        else:
            tokens = llm.text.encode(prompt.text)
        if len(tokens) <= room:
            encoded.append(EncodedPrompt(prompt.id, prompt.task, tokens))
            continue
        reason = f"{len(tokens)} tokens and an answer of {max_tokens} do not fit the context"
        journal.add({"kind": "skipped", "prompt_id": prompt.id, "task": prompt.task, "reason": reason})
        say(f"prompt `{prompt.id}` ({prompt.task}) is left out: {reason}")
    return encoded


def provenance(options: Options, methods: ListLike[Method], suite: Path, llms: dict[str, LLM]) -> JSON:
    """Everything needed to know what the numbers mean; ``settings`` must agree for a measurement to be continued."""
    first = next(iter(llms.values()))
    settings = {
        "model": first.info["model"],
        "fingerprints": {profile: llm.fingerprint for profile, llm in llms.items()},
        "methods": [method.name for method in methods],
        "suite": suite.name,
        "suite_sha256": sha256(suite),
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "ignore_eos": options.ignore_eos,
        "seed": options.seed,
        "threads": options.threads,
    }
    weights_bytes = (first.ir_dir / "openvino_model.bin").stat().st_size
    return {
        **circumstances(),
        "bandwidth": bandwidth.measure(weights_bytes, n_threads=options.threads or cpu()["n_cores"]),
        "profiles": {profile: llm.info for profile, llm in llms.items()},
        "settings": settings,
    }


def circumstances() -> JSON:
    """When, where, and with what versions this runs."""
    return {
        "format": FORMAT,
        "command": sys.argv[1:],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "git": _git_revision(),
        "system": platform.platform(),
        "cpu": cpu(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_revision() -> str | None:
    """Commit of the source tree this runs from, with "+" where files were changed; None where it is not from one."""
    folder = Path(__file__).parent

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    revision = git("rev-parse", "HEAD")
    return revision and revision + ("+" if git("status", "--porcelain", "-uno") else "")
