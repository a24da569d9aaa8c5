"""Speed at sizes that nobody can ship: random weights, drafts of a prescribed acceptance, and the cost model's word.

Only times mean anything here. Per repeat: every width is timed for the cost model, then plain decoding, every draft
length, and plain decoding again run on one prompt, so that a drifting machine is in all of them alike.
"""

from __future__ import annotations

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

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--prompt-tokens", self.n_prompt, 2),
            ("--max-tokens", self.n_tokens, _LEAST_TOKENS + max(self.lengths, default=0)),
            ("--repeats", self.repeats, 1),
        ):
            if value < least:
                raise OptionError(f"`{name}` is {value}: give at least {least}")
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

    @property
    def tokens_per_s(self) -> float:
        return self.n_tokens / self.seconds


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


def measure(model: OpenVINOModel, options: Options, *, progress: Progress) -> tuple[StepCost, list[list[Run]], int]:
    """The cost model as this very time calibrates it, the runs of each repeat, and how many texts were not plain's."""
    cost = StepCost([w for w in model.widths if w <= model.width_for(1 + options.lengths[-1])])
    rng = np.random.default_rng(options.seed)
    timings: list[tuple[int, int, float]] = []
    repeats: list[list[Run]] = []
    n_different = 0
    for repeat in range(options.repeats):
        progress("measuring", repeat, options.repeats)
        prompt = rng.integers(0, model.vocab_size, options.n_prompt).tolist()
        timings += time_widths(model, cost, (options.n_prompt, options.n_prompt + options.n_tokens))
        text, plain = answer(model, prompt, options, repeat=repeat)
        runs = [plain]
        for n in options.lengths[:: 1 if repeat % 2 == 0 else -1]:
            other, run = answer(model, prompt, options, repeat=repeat, n_draft=n, text=text)
            n_different += first_difference(text, other) is not None
            runs.append(run)
        repeats.append([*runs, answer(model, prompt, options, repeat=repeat)[1]])
    progress("measuring", options.repeats, options.repeats)
    cost.calibrate(timings)
    return cost, repeats, n_different


def time_widths(model: OpenVINOModel, cost: StepCost, contexts: tuple[int, int]) -> list[tuple[int, int, float]]:
    """(width, context, seconds) of forwards as ``StepCost.calibrate`` takes them. Nobody's K/V survives."""
    model.kv_owner = None
    timings = []
    for width, context in cost.calibration_plan(contexts=contexts, n_repeats=1):
        forward_seconds(model, width, context)  # prepares the width
        timings += [(width, context, forward_seconds(model, width, context)) for _ in range(3)]
    return timings


def answer(
    model: OpenVINOModel,
    prompt: list[int],
    options: Options,
    *,
    repeat: int,
    n_draft: int = 0,
    text: ListLike[int] | None = None,
) -> tuple[list[int], Run]:
    """One greedy answer, plain or with drafts of ``text``."""
    steps: list[StepRecord] = []
    drafter = None
    if text is not None:
        drafter = Replay(options.chances)
        drafter.know(prompt, text)
    policy = None if drafter is None else Fixed(n_draft)
    engine = Engine(model, drafter=drafter, policy=policy, prefix_caching=False, on_step=steps.append)
    sampling = Sampling(max_tokens=options.n_tokens, ignore_eos=True)
    seq = engine.submit(prompt, sampling, seed=options.seed + repeat)
    stats = engine.stats(seq.id)
    while engine.has_work:
        engine.step()
    decoding = steps[2:]  # the first reads the prompt, and the second changes the width
    full = [step for step in decoding if step.n_rows == max(other.n_rows for other in decoding)]
    run = Run(
        n_draft,
        len(full),
        sum(step.n_committed for step in full),
        sum(step.total_s for step in full),
        sum(step.target_s for step in full),
        full[0].width,
        mean(step.context for step in full),
        [accepted for accepted, _ in stats.accepted_by_depth],
        [tried for _, tried in stats.accepted_by_depth],
    )
    return seq.output, run


def summarise(cost: StepCost, repeats: ListLike[ListLike[Run]], options: Options) -> list[Line]:
    """A line per draft length, plain first, with intervals over repeats."""
    plain_runs = [[run for run in runs if run.n_draft == 0] for runs in repeats]
    plain_per_s = np.array([sum(r.n_tokens for r in runs) / sum(r.seconds for r in runs) for runs in plain_runs])
    predicted_plain_s = cost.predict(1, 1, round(mean(run.context for runs in plain_runs for run in runs)))
    lines = []
    for n in (0, *options.lengths):
        by_repeat = [[run for run in runs if run.n_draft == n] for runs in repeats]
        runs = [run for some in by_repeat for run in some]
        tokens, seconds, steps = (np.array([sum(getattr(r, name) for r in some) for some in by_repeat], float)
                                  for name in ("n_tokens", "seconds", "n_steps"))  # fmt: skip
        target_s = np.array([sum(run.target_s for run in some) for some in by_repeat])
        expected = tokens_a_step(options.chances, n) if n else 1.0
        predicted_s = cost.predict(1 + n, 1, round(mean(run.context for run in runs)))
        lines.append(
            Line(
                n,
                runs[0].width,
                expected,
                float(tokens.sum() / steps.sum()),
                predicted_s,
                float(target_s.sum() / steps.sum()),
                expected / predicted_s,
                float(tokens.sum() / seconds.sum()),
                bootstrap_median(tokens / seconds / (expected / predicted_s)),
                bootstrap_median(predicted_s / (target_s / steps)),
                expected / predicted_s * predicted_plain_s,
                bootstrap_median(tokens / seconds / plain_per_s),
                float(1 - target_s.sum() / seconds.sum()),
                realised(runs, n),
            )
        )
    return lines


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
    head += ["speed-up", "outside forward"]
    rows = [
        [
            str(line.n_draft) if line.n_draft else "plain",
            str(line.width),
            f"{line.expected_tokens:.2f} → {line.tokens:.2f}",
            f"{1e3 * line.predicted_step_s:.1f} → {1e3 * line.step_s:.1f}",
            f"{line.predicted_per_s:.1f} → {line.per_s:.1f}",
            str(line.ratio),
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
            f"Predicted → measured. Acceptance by depth, given that the tokens before were right: {wanted} prescribed, "
            f"{got} realised at the longest draft.",
        ]
    )
