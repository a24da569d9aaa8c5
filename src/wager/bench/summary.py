"""From the rows of a measurement to numbers: every one follows from the JSON lines alone (docs/numbers.md)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

import numpy as np

from wager.bench.answer import s_per_token
from wager.bench.journal import runs
from wager.bench.methods import Method, parse_method
from wager.bench.stats import Percentiles, bootstrap_median, paired_ratios, percentiles, share
from wager.intervals import Interval
from wager.record import summed_by_depth
from wager.types import JSON

MIN_DECODED = 8  # answers with fewer tokens after the first are too short to time
PARTS = ("draft", "target", "host")
Pairs = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Line:
    """One method over all prompts. Ratios are plain / method in the same profile; None where plain was not run.

    What only our engine tells is None for peers: counts of forwards, and ``split_ms``, milliseconds a token inside the
    drafter, inside the target's forward and elsewhere.
    """

    method: str
    n_requests: int
    speed_up: Interval | None
    end_to_end: Interval | None
    ms_per_token: float
    tokens_per_s: float
    first_token_ms: Percentiles | None
    gap_ms: Percentiles | None  # None too where a peer tells no time per token
    total_s: Percentiles | None
    n_same: int | None  # answers identical to plain's, of n_compared
    n_compared: int
    tokens_per_forward: float | None = None
    acceptance_rate: float | None = None
    accepted_by_depth: list[list[int]] | None = None
    outside_share: float | None = None
    split_ms: dict[str, float] | None = None
    weights_bytes: int | None = None
    roofline_ms: float | None = None
    of_roofline: float | None = None


@dataclass(slots=True)
class Summary:
    provenance: JSON
    lines: list[Line] = field(default_factory=list)
    tasks: dict[str, dict[str, Interval]] = field(default_factory=dict)  # task -> method -> speed-up
    peers: dict[str, dict[str, Interval]] = field(default_factory=dict)  # ours -> peer -> peer's time / ours
    missing: list[JSON] = field(default_factory=list)
    skipped: list[JSON] = field(default_factory=list)
    mismatches: list[JSON] = field(default_factory=list)
    keep_replayed: list[str] = field(default_factory=list)  # methods that know a prompt again when it is repeated
    n_short: int = 0


def summarise(rows: ListLike[JSON]) -> Summary:
    """``rows`` as read from runs.jsonl, provenance first."""
    summary = Summary(rows[0])
    done = runs(rows)
    timed = [row for row in done if row["n_tokens"] > MIN_DECODED]
    summary.n_short = len(done) - len(timed)
    names = [name for name in rows[0]["settings"]["methods"] if any(row["method"] == name for row in done)]
    methods = {name: parse_method(name) for name in names}
    last = {row["method"]: row for row in rows if row["kind"] in ("method", "missing")}
    settings = {row["method"]: row["settings"] for row in rows if row["kind"] == "method"}
    for name in names:
        base = _plain_of(methods[name], methods)
        bandwidth = rows[0].get("bandwidth", {}).get("large_bytes_per_s")
        weights = settings.get(name, {}).get("weights_bytes")
        summary.lines.append(_line(methods[name], base, done, timed, weights, bandwidth))
        if base is not None and base != name:
            for task in dict.fromkeys(row["task"] for row in timed):
                ratio = _ratio([row for row in timed if row["task"] == task], base, name, s_per_token)
                if ratio is not None:
                    summary.tasks.setdefault(task, {})[name] = ratio
    for mine in (name for name in names if methods[name].is_ours and methods[name].kind != "oracle"):
        for peer in (name for name in names if not methods[name].is_ours):
            ratio = _ratio(timed, peer, mine, s_per_token)
            if ratio is not None:
                summary.peers.setdefault(mine, {})[peer] = ratio
    summary.skipped = list({row["prompt_id"]: row for row in rows if row["kind"] == "skipped"}.values())
    summary.missing = [row for row in last.values() if row["kind"] == "missing"]
    summary.mismatches = [row for row in rows if row["kind"] == "mismatch"]
    if any(row["repeat"] for row in done):
        summary.keep_replayed = [name for name in names if not settings.get(name, {}).get("forgets", True)]
    return summary


def _plain_of(method: Method, methods: dict[str, Method]) -> str | None:
    return next((n for n, m in methods.items() if m.kind == "plain" and m.profile == method.profile), None)


def _line(
    method: Method,
    base: str | None,
    done: list[JSON],
    timed: list[JSON],
    weights_bytes: int | None,
    bandwidth: float | None,
) -> Line:
    name = method.name
    mine = [row for row in timed if row["method"] == name]
    others = base is not None and base != name
    n_same, n_compared = _same(done, base, name) if others else (None, 0)
    decode_s = sum(row["decode_s"] for row in mine)
    n_decoded = sum(row["n_tokens"] - 1 for row in mine)
    ms_per_token = float(np.median([1e3 * s_per_token(row) for row in mine])) if mine else 0.0
    roofline_ms = 1e3 * weights_bytes / bandwidth if weights_bytes and bandwidth else None
    gaps = [gap for row in mine for gap in _gaps(row["times_s"])] if method.kind != "llamacpp" else []
    return Line(
        method=name,
        n_requests=len(mine),
        speed_up=_ratio(timed, base, name, s_per_token) if base is not None and others else None,
        end_to_end=_ratio(timed, base, name, _total_s) if base is not None and others else None,
        ms_per_token=ms_per_token,
        tokens_per_s=n_decoded / decode_s if decode_s > 0 else 0.0,
        first_token_ms=percentiles([1e3 * row["first_token_s"] for row in mine]),
        gap_ms=percentiles([1e3 * gap for gap in gaps]),
        total_s=percentiles([row["total_s"] for row in mine]),
        n_same=n_same,
        n_compared=n_compared,
        weights_bytes=weights_bytes,
        roofline_ms=roofline_ms,
        of_roofline=roofline_ms / ms_per_token if roofline_ms and ms_per_token else None,
        **_told_by_ours([row for row in mine if "n_forwards" in row]),
    )


def _told_by_ours(own: list[JSON]) -> JSON:
    """What follows from the counts and clocks of our engine; nothing of a peer."""
    if not own:
        return {}
    n_decoded = sum(row["n_tokens"] - 1 for row in own)
    split_ms = {part: 1e3 * sum(row[f"decode_{part}_s"] for row in own) / max(1, n_decoded) for part in PARTS}
    return {
        "tokens_per_forward": share([r["n_tokens"] for r in own], [r["n_forwards"] for r in own]),
        "acceptance_rate": share([r["n_accepted"] for r in own], [r["n_drafted"] for r in own]),
        "accepted_by_depth": summed_by_depth([r["accepted_by_depth"] for r in own]),
        "outside_share": 1 - share([r["decode_target_s"] for r in own], [r["decode_s"] for r in own]),
        "split_ms": split_ms,
    }


def _same(done: list[JSON], base: str | None, name: str) -> tuple[int, int]:
    """Answers of ``name`` that are those of ``base``, and how many could be compared."""
    texts = {(r["prompt_id"], r["repeat"]): r["tokens"] for r in done if r["method"] == base}
    keys = [(r["tokens"], (r["prompt_id"], r["repeat"])) for r in done if r["method"] == name]
    same = [tokens == texts[key] for tokens, key in keys if key in texts]
    return sum(same), len(same)


def _gaps(times_s: ListLike[float]) -> list[float]:
    """Seconds between arrivals; tokens of one step arrive together."""
    return list(map(float, np.diff(np.unique(times_s))))


def _total_s(row: JSON) -> float:
    return float(row["total_s"]) / int(row["n_tokens"])


def _ratio(rows: ListLike[JSON], base: str, name: str, value: Callable[[JSON], float]) -> Interval | None:
    """Median over prompts of value(base) / value(name); None where no prompt has both."""

    def pairs(method: str) -> Pairs:
        return {(row["prompt_id"], row["repeat"]): value(row) for row in rows if row["method"] == method}

    ratios = paired_ratios(pairs(base), pairs(name))
    return bootstrap_median(ratios) if len(ratios) else None
