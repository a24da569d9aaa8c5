"""Speed at sizes that nobody can ship: random weights, drafts of a prescribed acceptance, and the cost model's word.

Only times mean anything here. Per repeat plain decoding, every draft length, and plain decoding again run on one
prompt, and before each run every width is timed once: what the cost model predicts from is as old as what it is
compared with, and a drifting machine is in all of it alike. Where others use the machine, processor time of one thread
is what repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from wager.bench.replay import Replay, by_depth, tokens_a_step
from wager.bench.report import table
from wager.bench.stats import bootstrap_median, first_difference
from wager.calibrate import forward_seconds
from wager.cost import StepCost
from wager.engine import Engine
from wager.errors import OptionError
from wager.intervals import Interval
from wager.models.openvino import OpenVINOModel, load_model
from wager.models.selfcheck import Exactness, check_exact
from wager.policies.fixed import Fixed
from wager.record import StepRecord
from wager.types import JSON, Sampling

LABEL = "random weights: timing only, the text means nothing"
_LEAST_TOKENS = 8
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """``chances`` by depth (replay.py); ``lengths``: draft lengths, ascending. Raises ``OptionError``."""

    chances: tuple[float, ...]
    lengths: tuple[int, ...]
    n_prompt: int
    n_tokens: int
    repeats: int
    seed: int
    threads: int | None
    clock: str = "wall"

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--prompt-tokens", self.n_prompt, 2),
            ("--max-tokens", self.n_tokens, _LEAST_TOKENS + max(self.lengths, default=0)),
            ("--repeats", self.repeats, 1),
        ):
            if value < least:
                raise OptionError(f"`{name}` is {value}: give at least {least}")
        if self.clock not in CLOCKS:
            raise OptionError(f"`--clock` is `{self.clock}`: give one of {', '.join(CLOCKS)}")
        if not self.lengths or min(self.lengths) < 1 or list(self.lengths) != sorted(set(self.lengths)):
            raise OptionError(f"`--lengths` is {self.lengths}: give whole numbers of at least 1, in ascending order")


@dataclass(frozen=True, slots=True)
class Run:
    """One answer. Steps: those with a full draft after the first decoding one; ``accepted`` and ``tried`` by depth."""

    n_draft: int
    n_steps: int
    n_tokens: int
    seconds: float
    target_s: float
    width: int
    context: float
    accepted: list[int]
    tried: list[int]


Timing = tuple[int, int, float]  # width, context, seconds


@dataclass(frozen=True, slots=True)
class Repeat:
    """All runs on one prompt, and the forwards that were timed between them."""

    runs: list[Run]
    timings: list[Timing]


@dataclass(frozen=True, slots=True)
class Line:
    """One draft length (0: plain). ``ratio``: measured / predicted tokens a second; ``step_ratio``: predicted /
    measured seconds of a forward, in which the luck of drafts has no part. ``acceptance``: realised, by depth.
    """

    n_draft: int
    width: int
    expected_tokens: float
    tokens: float
    predicted_step_s: float
    step_s: float
    predicted_per_s: float
    per_s: float
    ratio: Interval
    step_ratio: Interval
    predicted_speedup: float
    speedup: Interval
    outside_forward: float
    acceptance: list[float]


def parse_lengths(text: str) -> tuple[int, ...]:
    """``1,3,5`` as numbers. Raises ``OptionError`` where one is none."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise OptionError(f"`--lengths` is `{text}`: give whole numbers, as in 1,3,7") from error


def open_model(folder: Path, *, threads: int | None, progress: Progress) -> tuple[OpenVINOModel, Exactness]:
    """The model with all its graphs, and whether its text may be replayed; nothing is kept under WAGER_HOME."""
    progress("loading", 0, 2)
    model = load_model(folder, profile="fast", threads=threads)
    model.warm_up()
    progress("loading", 1, 2)
    exactness = check_exact(model, model.vocab_size, model.profile.rules)
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    progress("loading", 2, 2)
    return model, exactness


def measure(model: OpenVINOModel, options: Options, *, progress: Progress) -> tuple[list[Repeat], int]:
    """Everything that was timed, and how many texts were not plain decoding's."""
    rng = np.random.default_rng(options.seed)
    order = [0, *options.lengths, 0]
    repeats: list[Repeat] = []
    n_different = 0
    for i in range(options.repeats):
        prompt = rng.integers(0, model.vocab_size, options.n_prompt).tolist()
        text: list[int] = []
        repeat = Repeat([], [])
        for j, n in enumerate(order if i % 2 == 0 else [0, *options.lengths[::-1], 0]):
            progress("measuring", i * len(order) + j, options.repeats * len(order))
            repeat.timings.extend(time_widths(model, options))
            said, run = answer(model, prompt, options, seed=options.seed + i, n_draft=n, text=text)
            text = text or said
            n_different += first_difference(text, said) is not None
            repeat.runs.append(run)
        repeats.append(repeat)
    progress("measuring", 1, 1)
    return repeats, n_different


def table_for(model: OpenVINOModel, options: Options) -> StepCost:
    """A cost model of the widths that are used, not calibrated yet."""
    return StepCost([w for w in model.widths if w <= model.width_for(1 + options.lengths[-1])])


def time_widths(model: OpenVINOModel, options: Options) -> list[Timing]:
    """Forwards as ``StepCost.calibrate`` takes them, where answers begin and end. Nobody's K/V survives."""
    model.kv_owner = None
    timings: list[Timing] = []
    contexts = (options.n_prompt, options.n_prompt + options.n_tokens)
    for width, context in table_for(model, options).calibration_plan(contexts=contexts, n_repeats=1):
        forward_seconds(model, width, context)  # prepares the width
        timings.append((width, context, forward_seconds(model, width, context, clock=CLOCKS[options.clock])))
    return timings


def answer(
    model: OpenVINOModel,
    prompt: list[int],
    options: Options,
    *,
    seed: int,
    n_draft: int,
    text: ListLike[int],
) -> tuple[list[int], Run]:
    """One greedy answer, plain or with drafts of ``text``."""
    steps: list[StepRecord] = []
    drafter, clock = Replay(options.chances), CLOCKS[options.clock]
    drafter.know(prompt, text)
    engine = Engine(model, drafter=drafter, policy=Fixed(n_draft), prefix_caching=False, on_step=steps.append)
    sampling = Sampling(max_tokens=options.n_tokens, ignore_eos=True)
    seq = engine.submit(prompt, sampling, seed=seed)
    stats = engine.stats(seq.id)
    seconds: list[float] = []
    while engine.has_work:
        start = clock()
        engine.step()
        seconds.append(clock() - start)
    decoding = range(2, len(steps))  # the first reads the prompt, and the second changes the width
    most = max(steps[i].n_rows for i in decoding)
    full = [i for i in decoding if steps[i].n_rows == most]
    total_s = sum(seconds[i] for i in full)
    in_forward = sum(steps[i].target_s for i in full) / sum(steps[i].total_s for i in full)
    run = Run(
        n_draft,
        len(full),
        sum(steps[i].n_committed for i in full),
        total_s,
        total_s * in_forward,
        steps[full[0]].width,
        mean(steps[i].context for i in full),
        [accepted for accepted, _ in stats.accepted_by_depth],
        [tried for _, tried in stats.accepted_by_depth],
    )
    return seq.output, run


def summarise(cost: StepCost, repeats: ListLike[Repeat], options: Options) -> list[Line]:
    """A line per draft length, plain first, with intervals over repeats; ``cost`` is calibrated with all timings.

    Ratios are of each repeat to what the timings of that very repeat predict.
    """
    by_repeat = []
    for repeat in repeats:
        cost.calibrate(repeat.timings)
        by_repeat.append({n: _sums(cost, repeat.runs, n) for n in (0, *options.lengths)})
    cost.calibrate([timing for repeat in repeats for timing in repeat.timings])
    runs = [run for repeat in repeats for run in repeat.runs]
    plain_s = _sums(cost, runs, 0).predicted_s
    return [
        _line(n, _sums(cost, runs, n), [sums[n] for sums in by_repeat], [sums[0] for sums in by_repeat], plain_s,
              tokens_a_step(options.chances, n) if n else 1.0, [run for run in runs if run.n_draft == n])
        for n in (0, *options.lengths)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sums:
    """Runs of one draft length together; ``predicted_s``: of a forward."""

    tokens: int
    steps: int
    seconds: float
    target_s: float
    predicted_s: float


def _sums(cost: StepCost, runs: ListLike[Run], n: int) -> _Sums:
    some = [run for run in runs if run.n_draft == n]
    return _Sums(
        sum(run.n_tokens for run in some),
        sum(run.n_steps for run in some),
        sum(run.seconds for run in some),
        sum(run.target_s for run in some),
        cost.predict(1 + n, 1, round(mean(run.context for run in some))),
    )


def _line(
    n: int,
    all_: _Sums,
    sums: ListLike[_Sums],
    plain: ListLike[_Sums],
    plain_s: float,
    expected: float,
    runs: ListLike[Run],
) -> Line:
    per_s = np.array([s.tokens / s.seconds for s in sums])
    return Line(
        n,
        runs[0].width,
        expected,
        all_.tokens / all_.steps,
        all_.predicted_s,
        all_.target_s / all_.steps,
        expected / all_.predicted_s,
        all_.tokens / all_.seconds,
        bootstrap_median(per_s * np.array([s.predicted_s for s in sums]) / expected),
        bootstrap_median(np.array([s.predicted_s * s.steps / s.target_s for s in sums])),
        expected / all_.predicted_s * plain_s,
        bootstrap_median(per_s / np.array([s.tokens / s.seconds for s in plain])),
        1 - all_.target_s / all_.seconds,
        realised(runs, n),
    )


def realised(runs: ListLike[Run], n: int) -> list[float]:
    """By depth 1 … n: how often a token was right where those before it were; NaN where that never was."""
    accepted = [sum(run.accepted[d] for run in runs if d < len(run.accepted)) for d in range(n)]
    reached = [sum(run.tried[0] for run in runs if run.tried), *accepted]
    return [a / r if r else float("nan") for a, r in zip(accepted, reached, strict=False)]


def to_json(lines: ListLike[Line], settings: JSON, cost: StepCost, circumstances: JSON) -> JSON:
    """Everything, labelled."""
    return {
        "label": LABEL,
        **circumstances,
        "settings": settings,
        "cost": cost.to_json(),
        "lines": [asdict(line) for line in lines],
    }


def markdown(lines: ListLike[Line], options: Options, name: str, size: str) -> str:
    """The table, labelled; predictions stand before what was measured."""
    head = ["draft", "rows", "tokens a step", "ms a forward", "tokens/s", "measured / predicted"]
    head += ["forward predicted / measured", "speed-up", "outside forward"]
    rows = [
        [
            str(line.n_draft) if line.n_draft else "plain",
            str(line.width),
            f"{line.expected_tokens:.2f} → {line.tokens:.2f}",
            f"{1e3 * line.predicted_step_s:.1f} → {1e3 * line.step_s:.1f}",
            f"{line.predicted_per_s:.1f} → {line.per_s:.1f}",
            str(line.ratio),
            str(line.step_ratio),
            f"{line.predicted_speedup:.2f} → {line.speedup}",
            f"{line.outside_forward:.1%}",
        ]
        for line in lines
    ]
    deepest = lines[-1]
    wanted = ", ".join(f"{chance:.2f}" for chance in by_depth(options.chances, deepest.n_draft))
    got = ", ".join(f"{chance:.2f}" for chance in deepest.acceptance)
    return "\n".join(
        [
            f"**{name}, {size}; {LABEL}.**",
            "",
            table(head, rows),
            "",
            f"Predicted → measured, in {options.clock} seconds. Acceptance by depth, given that the tokens before were "
            f"right: {wanted} prescribed, "
            f"{got} realised at the longest draft.",
        ]
    )
