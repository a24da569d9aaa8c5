"""What `wager tune --drafter skip` does: score sets of modules on texts of the target, and keep the best.

A set is scored on one gated graph (compiling takes seconds a set), by the speed that drafting with it would have: what
it gets right from measured texts, and what its forwards cost from measured times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from wager.calibrate import forward_seconds
from wager.drafters.skip import FORMAT, RATIO, alternating, module_name
from wager.drafters.skip_search import METHODS, Modules, conf, cosine, free_modules, swift
from wager.engine import Engine
from wager.errors import OptionError
from wager.models import skipping
from wager.models.openvino import OpenVINOModel
from wager.replay import SPAN, Replay, Written
from wager.text import Text
from wager.types import I64, JSON, Sampling

Progress = Callable[[str, int, int], None]
_USABLE = 0.5  # share of drafts whose first token is right, below which a set is no drafter
_ALL_TRIED = 500  # proposals in a row that were scored before
_LABEL = "trying sets of modules"
_CONTEXT = 128  # of forwards that are timed
_REPEATS = 7
_N_OUTPUT = 33  # tokens the target writes to each prompt: eight drafts of four, and the one before them
_LONGEST = 512  # longer prompts are left out: reading them takes longer than searching


def write_texts(
    target: OpenVINOModel, text: Text, prompts: ListLike[str], *, progress: Progress | None = None
) -> list[Written]:
    """What the target answers, greedily. Raises OptionError where no answer is long enough to draft for."""
    read = [text.chat([{"role": "user", "content": p}]) if text.has_chat_template else text.encode(p) for p in prompts]
    asked = [tokens for tokens in read if len(tokens) <= _LONGEST] or [min(read, key=len)]
    n_valid = min(text.vocab_size, target.vocab_size)
    engine = Engine(target, eos_ids=sorted(text.eos_ids), n_valid_ids=n_valid)
    texts = []
    for i, tokens in enumerate(asked):
        if progress is not None:
            progress("writing texts", i, len(asked))
        seq = engine.submit(tokens, Sampling(max_tokens=_N_OUTPUT), seed=0)
        while engine.has_work:
            engine.step()
        if seq.n_output > SPAN:
            texts.append(Written(seq.tokens, seq.n_prompt))
    if progress is not None:
        progress("writing texts", len(asked), len(asked))
    if not texts:
        raise OptionError(f"`prompts`: no answer has more than {SPAN} tokens, give prompts that ask for more")
    return texts


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: ``target_s[n]`` of a target forward of n + 1 rows, ``draft_s`` of one row without skipping anything,
    and what every skipped attention and MLP saves of that.
    """

    target_s: tuple[float, ...]
    draft_s: float
    attention_s: float
    mlp_s: float

    def draft(self, modules: Modules) -> float:
        """Seconds of one drafted token."""
        n_attentions = sum(m % 2 == 0 for m in modules)
        saved_s = n_attentions * self.attention_s + (len(modules) - n_attentions) * self.mlp_s
        return max(self.draft_s - saved_s, 0.02 * self.draft_s)

    def speed(self, accepted: I64, token_s: float) -> tuple[float, int]:
        """Tokens a second over plain's where a drafted token takes ``token_s``, and the draft length (at least 1) that
        gives most; without what changing widths and drawing cost.
        """
        speeds = []
        for n in range(1, SPAN + 1):
            n_tokens = 1 + float(np.minimum(accepted, n).mean())
            speeds.append(n_tokens * self.target_s[0] / (n * token_s + self.target_s[n]))
        best = int(np.argmax(speeds))
        return speeds[best], best + 1


def measure_costs(target: OpenVINOModel) -> Costs:
    """Time forwards in turns, by the processor's clock. Compiles four graphs for it; uses the first blocks."""
    target.kv_owner = None
    inner = free_modules(target.n_modules)
    attentions, mlps = [m for m in inner if m % 2 == 0], [m for m in inner if m % 2]
    sets = [[], attentions, mlps, list(inner)]
    graphs = [target.variant(partial(skipping.skip, modules=modules)) for modules in sets]
    asked = [*((target, target.width_for(n + 1)) for n in range(SPAN + 1)), *((graph, 1) for graph in graphs)]
    times: list[list[float]] = [[] for _ in asked]
    for _ in range(_REPEATS):
        for (model, n_rows), found in zip(asked, times, strict=True):
            found.append(_processor_seconds(model, n_rows))
    least = [min(found) for found in times]
    n = len(attentions)
    saved = np.array([[1, 0, 0], [1, -n, 0], [1, 0, -n], [1, -n, -n]])
    whole_s, attention_s, mlp_s = np.linalg.lstsq(saved, np.array(least[-4:]), rcond=None)[0].tolist()
    return Costs(tuple(least[:-4]), whole_s, max(0.0, attention_s), max(0.0, mlp_s))


def measure_rounds(target: OpenVINOModel, draft: OpenVINOModel, costs: Costs) -> tuple[Costs, float]:
    """Costs of verifying, and seconds of a drafted token, where both take turns as when drafting: each graph pushes
    the other's weights out of the processor's caches.
    """
    target_s, draft_s = [costs.target_s[0]], 0.0
    for n in range(1, SPAN + 1):
        rounds = [_round_seconds(target, draft, n) for _ in range(1 + _REPEATS)][1:]
        draft_s += min(drafting for drafting, _ in rounds)
        target_s.append(min(verifying for _, verifying in rounds))
    return replace(costs, target_s=tuple(target_s)), draft_s / sum(range(1, SPAN + 1))


def _round_seconds(target: OpenVINOModel, draft: OpenVINOModel, n: int) -> tuple[float, float]:
    """Of drafting ``n`` tokens, and of verifying them."""
    widths = [(draft, 1)] * n + [(target, target.width_for(n + 1))]
    *drafting, verifying = (forward_seconds(model, w, _CONTEXT, clock=time.process_time) for model, w in widths)
    return sum(drafting), verifying


def _processor_seconds(model: OpenVINOModel, n_rows: int) -> float:
    """Of one forward. Only ratios count, and what else runs on the machine changes these little."""
    forward_seconds(model, n_rows, _CONTEXT)  # prepares the width
    return forward_seconds(model, n_rows, _CONTEXT, clock=time.process_time)


@dataclass(frozen=True, slots=True)
class Scored:
    """A set: the ``speed`` over plain's that drafting ``n_draft`` tokens with it would have, and of how many such
    drafts the first token is ``right``.
    """

    modules: Modules
    speed: float
    n_draft: int
    n_accepted: float
    right: float

    @property
    def key(self) -> tuple[bool, float]:
        """Faster is better; but what is seldom right is only fast because it is nothing: then nearer to right is."""
        usable = self.right >= _USABLE
        return usable, self.speed if usable else self.right


def score(accepted: I64, costs: Costs, modules: Modules, *, token_s: float | None = None) -> Scored:
    """``accepted`` as from ``Replay``; ``token_s`` where the graph was measured."""
    speed, n_draft = costs.speed(accepted, costs.draft(modules) if token_s is None else token_s)
    mean = float(np.minimum(accepted, n_draft).mean())
    return Scored(modules, speed, n_draft, mean, float((accepted > 0).mean()))


def search(
    replay: Replay, costs: Costs, *, method: str, budget_s: float, seed: int = 0, progress: Progress | None = None
) -> tuple[Scored, int]:
    """The best of the sets that ``method`` proposes, SWIFT's start first, until the budget ends or there are no more;
    and how many were scored. Same seed and scores, same proposals.
    """
    start = time.perf_counter()
    first = frozenset(alternating(replay.n_modules, RATIO))
    best = [score(replay.accepted(first), costs, first)]
    tried, n_again = {first}, 0
    total = max(1, int(budget_s))
    for modules in _proposals(replay, method, lambda: best[0].modules, seed):
        spent = int(time.perf_counter() - start)
        if spent >= budget_s:
            break
        if progress is not None:
            progress(_LABEL, min(spent, total - 1), total)
        n_again = n_again + 1 if modules in tried else 0
        if n_again > _ALL_TRIED:
            break
        if not n_again:
            tried.add(modules)
            best[0] = max(best[0], score(replay.accepted(modules), costs, modules), key=lambda found: found.key)
    if progress is not None:
        progress(_LABEL, total, total)
    return best[0], len(tried)


def _proposals(replay: Replay, method: str, best: Callable[[], Modules], seed: int) -> Iterator[Modules]:
    if method == "swift":
        return swift(replay.n_modules, best, seed=seed)
    confidences, similarities = replay.measures()
    return conf(confidences) if method == "conf" else cosine(similarities)


def tune(
    target: OpenVINOModel,
    texts: ListLike[Written],
    *,
    method: str,
    budget_s: float,
    seed: int = 0,
    progress: Progress | None = None,
) -> JSON:
    """Search on two thirds of ``texts``, compile the best set, and say what it does on the others.

    What is returned may be saved (``drafters.skip.chosen`` reads it). Raises OptionError for an unknown method and
    for a model without modules to leave out.
    """
    if method not in METHODS:
        raise OptionError(f"`method` is {method!r}: give one of {', '.join(METHODS)}")
    if not free_modules(target.n_modules):
        raise OptionError(
            f"this model has {target.n_modules // 2} layers: it needs three, the first and last must stay"
        )
    if progress is not None:
        progress("timing graphs", 0, 1)
    costs = measure_costs(target)
    if progress is not None:
        progress("timing graphs", 1, 1)
    held_out = texts[2::3] or texts
    replay = Replay(target, [text for i, text in enumerate(texts) if i % 3 < 2])
    best, n_tried = search(replay, costs, method=method, budget_s=budget_s, seed=seed, progress=progress)
    matchness = replay.matchness(best.modules)
    draft, memory = _compiled(target, best.modules)
    costs, token_s = measure_rounds(target, draft, costs)
    found = score(Replay(target, held_out).accepted(best.modules), costs, best.modules, token_s=token_s)
    return {
        "format": FORMAT,
        "skip": [module_name(module) for module in sorted(best.modules)],
        "n_modules": target.n_modules,
        "method": method,
        "seed": seed,
        "n_tried": n_tried,
        "speed": found.speed,
        "n_draft": found.n_draft,
        "n_accepted": found.n_accepted,
        "right": found.right,
        "matchness": matchness,
        "cost_ratio": token_s / costs.target_s[0],
        "memory_bytes": memory,
    }


def _compiled(target: OpenVINOModel, modules: Modules) -> tuple[OpenVINOModel, int]:
    """The target without ``modules``, and the bytes that it takes."""
    before = resident_bytes()
    draft = target.variant(partial(skipping.skip, modules=modules))
    forward_seconds(draft, 1, _CONTEXT)
    return draft, resident_bytes() - before


def resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.is_file() else 0
