"""What a quantisation costs and gains: perplexity, divergence, speed and bytes side by side.

Divergence is KL(reference ‖ model) of next-token laws, in nats a token, with the arg-max agreement beside it: both on
the same text, read by the engine's own forwards, so that a profile's activations and K/V count too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ListLike
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from wager.bench import ours
from wager.bench.answer import Request
from wager.bench.methods import parse_method
from wager.bench.report import table as table_of
from wager.bench.suite import SHIPPED, choose, load_suite, suite_path
from wager.errors import OptionError
from wager.llm import LLM
from wager.models import catalog
from wager.models.fidelity import PROBE, log_softmax
from wager.models.openvino import OpenVINOModel, load_model
from wager.models.profiles import profile_named
from wager.pack import Feed, Slots, pack
from wager.text import Text
from wager.types import F32, JSON, Sampling, Sequence

Progress = Callable[[str, int, int], None]
Subject = tuple[Path, str]  # folder and profile
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
TEXT = SHIPPED / "quality.txt"
WINDOW = 512  # tokens, each window read from position 0
_CHUNK = 128  # rows whose logits are held at a time
_READING = "comparing with the reference"
_TIMING = "timing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model in one profile. ``kl`` is in nats a token. Speeds are None where they were not measured, and
    ``same_text`` then too: whether speculation gave the same tokens as plain decoding."""

    model: str
    profile: str
    weights: str
    n_bytes: int
    kv_bytes_per_token: int
    perplexity: float
    kl: float
    agreement: float
    plain_tokens_per_s: float | None = None
    spec_tokens_per_s: float | None = None
    same_text: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``perplexity`` is the reference's; ``n_tokens`` were scored; speeds are by ``clock``."""

    reference: str
    perplexity: float
    text: str
    n_tokens: int
    clock: str
    rows: list[Row]

    def to_json(self) -> JSON:
        return asdict(self)


def measure(
    models: ListLike[str],
    *,
    profiles: ListLike[str] = ("fast",),
    reference: str | None = None,
    text: Path | None = None,
    n_prompts: int = 4,
    max_tokens: int = 64,
    threads: int | None = None,
    clock: str = "wall",
    progress: Progress,
) -> Table:
    """Compare every model in every profile with the ``reference`` profile of ``reference`` (default: the first model).

    All of them are in memory at once. ``n_prompts`` 0 leaves the timing out; ``clock``: "wall", or "cpu" for seconds of
    the processor, which other work on the machine changes little. Raises OptionError for a text that is too short, and
    for models of different vocabularies.
    """
    _check(models, profiles, n_prompts, max_tokens, clock)
    folders = [catalog.resolve(model, progress=progress) for model in models]
    base = folders[0] if reference is None else catalog.resolve(reference, progress=progress)
    for folder in folders:
        _same_vocabulary(base, folder)
    path = TEXT if text is None else text
    windows = _windows(base, path)
    subjects = [(folder, profile) for folder in folders for profile in profiles]
    with Reader(base, "reference", threads) as exact, ExitStack() as stack:
        others = [stack.enter_context(Reader(folder, profile, threads)) for folder, profile in subjects]
        sums = _compare(exact, others, windows, progress)
        n_bytes = [other.model.kv_bytes_per_token for other in others]
    rows = [_row(*found) for found in zip(subjects, sums, n_bytes, strict=True)]
    if n_prompts:
        rows = _timed(rows, subjects, Timing(n_prompts, max_tokens, threads, clock), progress)
    return Table(
        reference=catalog.describe(base).name,
        perplexity=math.exp(sums[0].reference_nll / sums[0].n_tokens),
        text=path.name,
        n_tokens=sums[0].n_tokens,
        clock=clock,
        rows=rows,
    )


def markdown(table: Table) -> str:
    """The table for people; the reference's perplexity is said above it."""
    head = ["model", "weights", "profile", "size", "K/V a token", "perplexity", "KL", "same arg-max"]
    timed = any(row.plain_tokens_per_s is not None for row in table.rows)
    cells = [[*_cells(row), *(_speeds(row) if timed else [])] for row in table.rows]
    intro = (
        f"{table.n_tokens} tokens of {table.text}; {table.reference} in profile reference: "
        f"perplexity {table.perplexity:.2f}"
    )
    if timed and table.clock == "cpu":
        intro += "; speeds per second of processor time"
    return f"{intro}\n\n{table_of([*head, *(['plain tok/s', 'with drafts', 'same text'] if timed else [])], cells)}"


def _cells(row: Row) -> list[str]:
    sizes = [f"{row.n_bytes / 1e6:.1f} MB", f"{row.kv_bytes_per_token / 1e3:.1f} kB"]
    return [
        row.model,
        row.weights,
        row.profile,
        *sizes,
        f"{row.perplexity:.2f}",
        f"{row.kl:.2g}",
        f"{row.agreement:.1%}",
    ]


def _speeds(row: Row) -> list[str]:
    if row.plain_tokens_per_s is None or row.spec_tokens_per_s is None:
        return ["", "", ""]
    same = {True: "yes", False: "no", None: ""}[row.same_text]
    return [f"{row.plain_tokens_per_s:.0f}", f"{row.spec_tokens_per_s:.0f}", same]


# -- the comparison ----------------------------------------------------------------------------------------------


class Reader:
    """A model that reads a text from position 0 and gives the logits after every token."""

    def __init__(self, folder: Path, profile: str, threads: int | None) -> None:
        self.model: OpenVINOModel = load_model(folder, profile=profile, threads=threads)
        if self.model.n_blocks * self.model.block_size < WINDOW + self.model.block_size:
            raise OptionError(f"`{folder}` has too little K/V memory for {WINDOW} tokens: free some memory")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        del self.model

    def logits(self, ids: ListLike[int]) -> Iterator[F32]:
        """(n, V) float32 after each of the first len(ids) - 1 tokens, n <= 128 at a time, overwritten by the next."""
        model, seq = self.model, Sequence(0, list(ids), len(ids), Sampling(), 0)
        table = [Slots(range(1, 2 + len(ids) // model.block_size))]
        while seq.n_cached < len(ids) - 1:
            stop = min(seq.n_cached + _CHUNK, len(ids) - 1)
            feed = Feed(seq, stop, rule=model.rows_rule)
            packed = pack([feed], table, width_for=lambda n: n, pad_blocks=range(1), block_size=model.block_size)
            n_fed = len(packed.batch.tokens) - feed.n_padding
            rows = np.arange(n_fed - (stop - seq.n_cached), n_fed, dtype=np.int64)
            yield model.forward(replace(packed.batch, rows=rows)).logits
            seq.n_cached = stop


@dataclass(slots=True)
class _Sums:
    """Over scored tokens; ``nll`` is the negative log-likelihood."""

    n_tokens: int = 0
    n_same: int = 0
    kl: float = 0.0
    nll: float = 0.0
    reference_nll: float = 0.0


def _compare(
    exact: Reader, others: ListLike[Reader], windows: ListLike[ListLike[int]], progress: Progress
) -> list[_Sums]:
    found = [_Sums() for _ in others]
    n_scored, done = sum(len(window) - 1 for window in windows), 0
    for ids in windows:
        progress(_READING, done, n_scored)
        start = 1
        for p_logits, *logits in zip(exact.logits(ids), *(other.logits(ids) for other in others), strict=True):
            p, best = log_softmax(p_logits), p_logits.argmax(-1)
            here = np.arange(len(p)), np.asarray(ids[start : start + len(p)])
            for sums, q_logits in zip(found, logits, strict=True):
                q = log_softmax(q_logits)
                sums.kl += float((np.exp(p) * (p - q)).sum())
                sums.n_same += int((best == q_logits.argmax(-1)).sum())
                sums.nll -= float(q[here].sum())
                sums.reference_nll -= float(p[here].sum())
                sums.n_tokens += len(p)
            start += len(p)
        done += len(ids) - 1
    progress(_READING, n_scored, n_scored)
    return found


def _row(subject: Subject, sums: _Sums, kv_bytes_per_token: int) -> Row:
    folder, profile = subject
    info = catalog.describe(folder)
    return Row(
        model=info.name,
        profile=profile,
        weights=info.quantisation,
        n_bytes=info.n_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        perplexity=math.exp(sums.nll / sums.n_tokens),
        kl=sums.kl / sums.n_tokens,
        agreement=sums.n_same / sums.n_tokens,
    )


def _windows(folder: Path, path: Path) -> list[list[int]]:
    """The text as token ids, in windows; each begins with BOS where the tokenizer puts one before a text."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"`--text` is `{path}`, which cannot be read as UTF-8 ({error}): give a text file") from error
    text = Text(folder)
    ids = text.encode(content)
    begin = ids[:1] if text.bos_id is not None and ids[:1] == [text.bos_id] else []
    body = ids[len(begin) :]
    step = min(WINDOW, catalog.describe(folder).context_length) - len(begin)
    windows = [[*begin, *body[start : start + step]] for start in range(0, len(body), step)]
    windows = [window for window in windows if len(window) >= 3]
    if not windows:
        raise OptionError(f"`--text` is `{path}`, a text of {len(ids)} tokens: give a longer one")
    return windows


def _same_vocabulary(base: Path, folder: Path) -> None:
    counts = [catalog.describe(each).vocab_size for each in (base, folder)]
    if counts[0] != counts[1] or Text(base).encode(PROBE) != Text(folder).encode(PROBE):
        raise OptionError(f"`{folder.name}` has another vocabulary than `{base.name}`: measure it alone")


# -- the timing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    n_prompts: int
    max_tokens: int
    threads: int | None
    clock: str


def _timed(rows: ListLike[Row], subjects: ListLike[Subject], timing: Timing, progress: Progress) -> list[Row]:
    """Plain and speculative decoding of every model, prompt by prompt in turns: a drifting machine drifts for all."""
    with ExitStack() as stack:
        llms = [
            stack.enter_context(closing(ours.load(str(folder), profile, threads=timing.threads, progress=progress)))
            for folder, profile in subjects
        ]
        clock = CLOCKS[timing.clock]
        runners = [[ours.Ours(llm, parse_method(name), clock=clock) for name in ("plain", "auto")] for llm in llms]
        prompts = _prompts(llms[0], timing.n_prompts)
        spent = np.zeros((len(llms), 2, 2))  # model, method, (seconds, tokens)
        same = [True] * len(llms)
        sampling = Sampling(max_tokens=timing.max_tokens, ignore_eos=True, seed=0)
        for n, tokens in enumerate(prompts):
            for i, pair in enumerate(runners):
                progress(_TIMING, n * len(llms) + i, len(prompts) * len(llms))
                order = (0, 1) if (n + i) % 2 == 0 else (1, 0)
                answers = {m: pair[m].run(Request(tokens, sampling)).to_json() for m in order}
                for m, answer in answers.items():
                    spent[i, m] += (answer["decode_s"], answer["n_tokens"] - answer["n_tokens_first"])
                same[i] &= answers[0]["tokens"] == answers[1]["tokens"]
        progress(_TIMING, 1, 1)
    speeds = spent[..., 1] / spent[..., 0]
    return [
        replace(row, plain_tokens_per_s=float(s[0]), spec_tokens_per_s=float(s[1]), same_text=bool(ok))
        for row, s, ok in zip(rows, speeds, same, strict=True)
    ]


def _prompts(llm: LLM, n_prompts: int) -> list[list[int]]:
    """One of each task of the mixed suite, the first so many that fit; in the chat template where there is one."""
    texts = [prompt.text for prompt in choose(load_suite(suite_path("mixed")), per_task=1, tasks=())]
    room = int(llm.info["context_length"]) // 2
    encoded = [
        llm.text.chat([{"role": "user", "content": t}]) if llm.text.has_chat_template else llm.text.encode(t)
        for t in texts
    ]
    return [tokens for tokens in encoded if len(tokens) <= room][:n_prompts] or [min(encoded, key=len)[:room]]


def _check(models: ListLike[str], profiles: ListLike[str], n_prompts: int, max_tokens: int, clock: str) -> None:
    if not models:
        raise OptionError("`MODEL` is missing: name at least one model")
    for profile in profiles:
        profile_named(profile)
    if n_prompts < 0:
        raise OptionError(f"`--prompts` is {n_prompts}: give 0 (no timing) or more")
    if max_tokens < 2:
        raise OptionError(f"`--max-tokens` is {max_tokens}: give at least 2")
    if clock not in CLOCKS:
        raise OptionError(f"`--clock` is `{clock}`: give one of {', '.join(CLOCKS)}")
