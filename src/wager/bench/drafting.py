"""What drafting costs as the text grows: CPU time of a step, and of the first draft after a prompt."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from wager.bench.report import table
from wager.drafters import DRAFTERS, drafter_named, make_drafter
from wager.errors import OptionError
from wager.machine import cpu
from wager.types import F32, I32, JSON, Draft, Drafter, Limits, Sampling, Seen, Sequence, Verdict, chain

LENGTHS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
MIXTURE = "mixture"
_N_IDS = 49152  # where no model says
_LIMIT = Limits(8, 8)
_ROUND = 8  # accepted tokens a step while a text is played that is not timed
_REPEAT, _ZIPF = 0.9, 1.2  # of the mixture: how often the next token is a copied one; exponent of the others

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Point:
    """``n_history`` tokens; the first draft after so long a prompt; the median and the slowest twentieth of steps, and
    how many tokens they drafted on average.
    """

    drafter: str
    text: str
    n_history: int
    first_s: float
    step_s: float
    slow_s: float
    n_drafted: float


def check(*, longest: int, n_steps: int) -> None:
    """Raises ``OptionError`` for lengths and steps that cannot be measured."""
    if n_steps < 1:
        raise OptionError(f"`--steps` is {n_steps}: give at least 1")
    if longest < LENGTHS[0]:
        raise OptionError(f"`--longest` is {longest}: give at least {LENGTHS[0]}")


def from_text_alone() -> list[str]:
    """Drafters that need nothing but text and what the target said."""
    return [name for name in DRAFTERS if not drafter_named(name).needs_target]


def texts(files: ListLike[Path], model: str, n: int, *, seed: int, progress: Progress) -> tuple[dict[str, I32], int]:
    """The mixture, and what the files say to ``model``, each of at most n tokens; and how many ids there are."""
    if not files:
        return {MIXTURE: mixture(n, _N_IDS, seed)}, _N_IDS
    from wager.corpus import read_corpus
    from wager.models import catalog
    from wager.text import Text

    text = Text(catalog.resolve(model, progress=progress))
    tokens = read_corpus(files, text, progress=progress).tokens
    n_ids = text.vocab_size
    return {"files": tokens[tokens >= 0][:n], MIXTURE: mixture(n, n_ids, seed)}, n_ids


def mixture(n: int, n_ids: int, seed: int) -> I32:
    """Tokens (n,): Zipf-distributed ones, and passages copied from before, ten tokens long on average."""
    rng = np.random.default_rng(seed)
    tokens = np.minimum(rng.zipf(_ZIPF, n), n_ids).astype(np.int32) - 1
    goes_on = rng.random(n) < _REPEAT
    where = rng.random(n)
    source = 0
    for i in range(1, n):
        if goes_on[i]:
            tokens[i] = tokens[source]
            source += 1
        else:
            source = int(where[i] * i)
    return tokens


class Played:
    """A drafter and one text that is said token by token, as the engine would.

    What the target says is noise with the next token on top: (V,) logits a node.
    """

    def __init__(self, drafter: Drafter, text: ListLike[int], logits: F32) -> None:
        self._drafter, self._text, self._logits = drafter, text, logits
        self._seq = Sequence(0, list(text[:1]), 1, Sampling(), seed=0)

    def to(self, n: int) -> None:
        """Go on to n tokens: drafts of another drafter are fed, and all of them are accepted."""
        while len(self._seq.tokens) < n:
            at = len(self._seq.tokens)
            n_draft = min(_ROUND, n - at - 1)
            self._drafter.propose([self._seq], [_LIMIT])
            self._settle(chain(self._text[at : at + n_draft]), tuple(range(n_draft)))

    def step(self) -> tuple[float, int]:
        """CPU seconds of one step, and tokens drafted: all are fed and rejected, and one token is committed."""
        start = time.thread_time()
        draft = self._drafter.propose([self._seq], [_LIMIT])[0]
        proposed = time.thread_time()
        return proposed - start + self._settle(draft, ()), len(draft)

    def _settle(self, draft: Draft, path: tuple[int, ...]) -> float:
        at = len(self._seq.tokens)
        said = self._text[at : at + len(path) + 1]
        rows = np.arange(len(draft) + 1, dtype=np.int32)
        before = self._logits[rows[: len(said)], said]
        self._logits[rows[: len(said)], said] = 100.0
        self._seq.tokens += said
        start = time.thread_time()
        self._drafter.observe([self._seq], [draft], [Verdict(path, said[-1])], [Seen(self._logits, rows)])
        observed = time.thread_time()
        self._logits[rows[: len(said)], said] = before
        return observed - start


def curve(name: str, label: str, text: ListLike[int], lengths: ListLike[int], logits: F32, n_steps: int) -> list[Point]:
    """Points of one drafter: always the same last ``n_steps`` tokens of the text, after more and more before them."""
    points = []
    for n in lengths:
        some = text[len(text) - n_steps - n :]
        played = Played(make_drafter(name, None), some, logits)
        played.to(n)
        steps, drafted = zip(*(played.step() for _ in range(n_steps)), strict=True)
        first_s = _first(make_drafter(name, None), some[:n])
        step_s, slow_s = np.quantile(steps, (0.5, 0.95)).tolist()
        points.append(Point(name, label, n, first_s, step_s, slow_s, float(np.mean(drafted))))
    return points


def _first(drafter: Drafter, prompt: ListLike[int]) -> float:
    seq = Sequence(0, list(prompt), len(prompt), Sampling(), seed=0)
    start = time.thread_time()
    drafter.propose([seq], [_LIMIT])
    return time.thread_time() - start


def measure(
    texts: Mapping[str, I32], n_ids: int, *, longest: int, n_steps: int, seed: int, progress: Progress
) -> list[Point]:
    """Every drafter from text at the end of every text, after each of ``LENGTHS`` that there is room for."""
    logits = np.random.default_rng(seed).standard_normal((_ROUND + 1, n_ids)).astype(np.float32)
    names = from_text_alone()
    points: list[Point] = []
    for i, (label, tokens) in enumerate(texts.items()):
        text = tokens.tolist()
        lengths = [n for n in LENGTHS if n <= min(longest, len(text) - n_steps)]
        for j, name in enumerate(names):
            progress(f"{name} on {label}", i * len(names) + j, len(texts) * len(names))
            points += curve(name, label, text, lengths, logits, n_steps)
    progress("measured", 1, 1)
    return points


def to_json(points: ListLike[Point], settings: JSON) -> JSON:
    versions = {name: version(name) for name in ("wager", "numpy")} | {"python": platform.python_version()}
    return {"cpu": cpu(), "versions": versions, "settings": settings, "points": [asdict(point) for point in points]}


def markdown(points: ListLike[Point]) -> str:
    """Microseconds of a step by drafter, text and length, and those of the first draft for a token of the prompt."""
    lengths = sorted({point.n_history for point in points})
    rows = []
    for name, text in dict.fromkeys((point.drafter, point.text) for point in points):
        line = {point.n_history: point for point in points if (point.drafter, point.text) == (name, text)}
        last = line[max(line)]
        steps = [f"{1e6 * line[n].step_s:.0f}" if n in line else "" for n in lengths]
        rows.append([f"`{name}`", text, *steps, f"{1e6 * last.first_s / last.n_history:.1f}"])
    head = ["drafter", "text", *(f"{n:,}".replace(",", " ") for n in lengths), "first draft, a token"]
    return table(head, rows)


def plot(points: ListLike[Point], path: Path) -> bool:
    """Write the picture; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    texts = list(dict.fromkeys(point.text for point in points))
    figure = Figure(figsize=(5 * len(texts), 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(texts), squeeze=False, sharex=True, sharey="row")
    for i, text in enumerate(texts):
        some = [point for point in points if point.text == text]
        _draw(axes[0][i], some, lambda point: 1e6 * point.step_s)
        _draw(axes[1][i], some, lambda point: 1e3 * point.first_s)
        axes[1][i].set_yscale("log")
        axes[0][i].set_title(text)
        axes[1][i].set_xlabel("tokens before")
    axes[0][0].set_ylim(bottom=0)  # of the whole row, so once all of it is drawn
    axes[0][0].set_ylabel("a step after one committed token, µs")
    axes[1][0].set_ylabel("the first draft after a prompt, ms")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=8, frameon=False)
    figure.savefig(path, dpi=130)
    return True


def _draw(axis: Any, points: list[Point], value: Callable[[Point], float]) -> None:
    for name in dict.fromkeys(point.drafter for point in points):
        some = [point for point in points if point.drafter == name]
        axis.plot([point.n_history for point in some], [value(point) for point in some], marker="o", label=name)
    axis.set_xscale("log")
    axis.grid(alpha=0.3)
