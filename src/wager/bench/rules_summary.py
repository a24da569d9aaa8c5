"""From the rows of `wager rules` to its table: every number follows from the JSON lines alone (docs/numbers.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence as ListLike
from dataclasses import asdict, dataclass, field

import numpy as np

from wager.bench.journal import runs
from wager.bench.rules_plan import PLAIN, Setting
from wager.bench.stats import bootstrap_median, first_difference, paired_ratios, share
from wager.bench.summary import MIN_DECODED
from wager.intervals import Interval
from wager.record import summed_by_depth
from wager.types import F64, JSON, DraftKind

_SINGLE: tuple[DraftKind, ...] = ("iid", "coupled", "without_replacement")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Tokens that had to be those of plain decoding and were not."""

    setting: str
    temperature: float
    prompt_id: str
    at: int

    def __str__(self) -> str:
        return (
            f"NOT IDENTICAL: prompt `{self.prompt_id}`, temperature {self.temperature:g}: token {self.at} under "
            f"`{self.setting}` is not plain decoding's"
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One setting at one temperature. ``optimum`` is None where drafts have no law, and ``is_bound`` whether this rule
    cannot be above it. Times are ms a token, after the first tokens.
    """

    rule: str
    k: int
    depth: int
    trunk: int
    temperature: float
    drafts: str | None
    n_prompts: int
    tokens_per_forward: Interval
    speed_up: Interval | None
    first_acceptance: float | None
    optimum: float | None
    is_bound: bool
    accepted_by_depth: list[float]
    children: float
    drawn: float
    fed: float
    ms_per_token: float
    draft_ms: float
    target_ms: float
    rule_ms: float
    host_ms: float
    kl: float | None
    tv: float | None
    n_same: int


@dataclass(slots=True)
class Summary:
    provenance: JSON
    lines: list[Line] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    skipped: list[JSON] = field(default_factory=list)

    def to_json(self) -> JSON:
        lines = [asdict(line) for line in self.lines]
        for line in lines:
            if line["kl"] == math.inf:  # JSON has no infinity
                line["kl"] = "inf"
        found = [asdict(mismatch) for mismatch in self.mismatches]
        return {"provenance": self.provenance, "lines": lines, "mismatches": found, "skipped": self.skipped}


def summarise(rows: ListLike[JSON]) -> Summary:
    """``rows`` as read from runs.jsonl, provenance first."""
    done = runs(rows)
    summary = Summary(rows[0])
    for temperature in sorted({row["temperature"] for row in done}):
        here = [row for row in done if row["temperature"] == temperature]
        plain = {row["prompt_id"]: row for row in here if row["rule"] == PLAIN}
        for name in dict.fromkeys(row["setting"] for row in sorted(here, key=_order)):
            summary.lines.append(_line([row for row in here if row["setting"] == name], plain))
    summary.mismatches = mismatches(rows, rows[0]["exactness"] == "bit-identical")
    summary.skipped = list({row["prompt_id"]: row for row in rows if row["kind"] == "skipped"}.values())
    return summary


def _order(row: JSON) -> tuple[int, int]:
    """By depth, plain first; within it as the settings were given."""
    return row["rule"] != PLAIN, row["depth"]


def mismatches(rows: ListLike[JSON], exact: bool) -> list[Mismatch]:
    """Greedy text must be plain decoding's under every rule, sampled text under the walk; neither if not ``exact``."""
    found = []
    done = runs(rows) if exact else []
    plain = {(row["temperature"], row["prompt_id"]): row["tokens"] for row in done if row["rule"] == PLAIN}
    for row in done:
        key = (row["temperature"], row["prompt_id"])
        bound = row["temperature"] == 0 or Setting(row["rule"]).info.coupled
        at = first_difference(plain[key], row["tokens"]) if bound and key in plain else None
        if at is not None:
            found.append(Mismatch(row["setting"], *key, at))
    return found


def _line(rows: list[JSON], plain: dict[str, JSON]) -> Line:
    first = rows[0]
    tally = {name: [row["tally"][name] for row in rows] for name in first["tally"]}
    n_optima, n_rounds, n_contexts = (sum(tally[name]) for name in ("n_optima", "n_rounds", "n_contexts"))
    n_decoded = [row["n_tokens"] - row["n_tokens_first"] for row in rows]
    n_forwards = [row["n_forwards"] for row in rows]

    def ms(name: str) -> float:
        return 1e3 * share([row[name] for row in rows], n_decoded)

    return Line(
        **{name: first[name] for name in ("rule", "k", "depth", "trunk", "temperature", "drafts")},
        n_prompts=len(rows),
        tokens_per_forward=ratio_of_sums([row["n_tokens"] for row in rows], n_forwards),
        speed_up=_speed_up(rows, plain) if first["rule"] != PLAIN else None,
        first_acceptance=sum(tally["n_first"]) / n_rounds if n_rounds else None,
        optimum=sum(tally["optimum"]) / n_optima if n_optima else None,
        is_bound=_is_bound(first),
        accepted_by_depth=_by_depth(rows),
        children=share(tally["n_children"], [n_rounds]),
        drawn=share(tally["n_drawn"], n_forwards),
        fed=share([row["n_drafted"] for row in rows], n_forwards),
        ms_per_token=ms("decode_s"),
        draft_ms=ms("draft_s"),
        target_ms=ms("target_s"),
        rule_ms=ms("rule_s"),
        host_ms=ms("host_s"),
        kl=sum(tally["kl"]) / n_contexts if n_contexts else None,
        tv=sum(tally["tv"]) / n_contexts if n_contexts else None,
        n_same=sum(row["tokens"] == plain.get(row["prompt_id"], {}).get("tokens") for row in rows),
    )


def _is_bound(row: JSON) -> bool:
    """alpha*_k bounds lossless rules on k i.i.d. draws; a single draw is one of those however it was made."""
    k = 1 if row["trunk"] else row["k"]
    kinds: tuple[str, ...] = _SINGLE if k == 1 else ("iid",)
    return Setting(row["rule"]).info.lossless and row["drafts"] in kinds


def _speed_up(rows: list[JSON], plain: dict[str, JSON]) -> Interval | None:
    """Median over prompts of plain seconds per token over this setting's; texts may differ, so per token."""

    def pace(some: list[JSON]) -> dict[tuple[str, int], float]:
        counts = {row["prompt_id"]: row["n_tokens"] - row["n_tokens_first"] for row in some}
        return {(r["prompt_id"], 0): r["decode_s"] / n for r in some if (n := counts[r["prompt_id"]]) >= MIN_DECODED}

    ratios = paired_ratios(pace(list(plain.values())), pace(rows))
    return bootstrap_median(ratios) if len(ratios) else None


def _by_depth(rows: list[JSON]) -> list[float]:
    """Share of the rounds whose draft reached depth 1, 2, … that accepted as deep."""
    return [share([a], [n]) for a, n in summed_by_depth([row["accepted_by_depth"] for row in rows])]


def ratio_of_sums(
    parts: ListLike[float], wholes: ListLike[float], *, level: float = 0.95, n_resamples: int = 4000, seed: int = 0
) -> Interval:
    """Sum of parts over sum of wholes (n,), n >= 1, with the percentile bootstrap interval over the n prompts."""
    a, b = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert b.min() > 0, "a prompt without forwards"
    picked = np.random.default_rng(seed).integers(0, len(a), (n_resamples, len(a)))
    ratios: F64 = a[picked].sum(axis=1) / b[picked].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(a.sum() / b.sum()), float(low), float(high), len(a))
