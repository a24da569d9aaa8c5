"""The whole of `wager tune MODEL`: search, measure what was found, and keep it, whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wager.bench.stats import bootstrap_median
from wager.calibrate import switch_seconds
from wager.cost import StepCost
from wager.intervals import Interval
from wager.machine import cpu, save_measurements
from wager.measured import fingerprint_of, known_widths
from wager.measured import to_json as measured_json
from wager.models import tuned
from wager.models.openvino import OpenVINOModel
from wager.models.profiles import Profile
from wager.models.selfcheck import check_exact
from wager.models.tuned import Tuned
from wager.tuning import bandwidth, space
from wager.tuning.curve import Point, affordable_pairs, curve, drafting, slopes, useful_widths
from wager.tuning.lab import OpenVINOLab
from wager.tuning.law import SUPPORTS, first_chances
from wager.tuning.search import CONTEXTS, Race, Search, race
from wager.types import JSON

Progress = Callable[[str, int, int], None]
_SEARCH_SHARE = 0.55  # of the budget; the rest measures what was found
_CURVE_SHARE = 0.85
_FINAL_ROUNDS = 15
_ROOFLINE_CONTEXTS = (64, 1024)


def tune(
    ir_dir: Path,
    *,
    profile: str = "fast",
    budget_s: float = 120.0,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> JSON:
    """Find how the model runs fastest here in ``profile``, measure that, and keep it; what was kept.

    Nothing is written before all is measured. Raises OptionError for an unknown profile.
    """
    start, rng = time.monotonic(), np.random.default_rng(seed)
    load = load_per_core()
    lab = OpenVINOLab(ir_dir, profile)
    base, search = _search(lab, profile, threads, start + _SEARCH_SHARE * budget_s, rng, progress)
    quality = lab.quality(search.best)
    versus = _versus(lab, base, search.best, rng=rng, progress=progress)
    versus_plugin = _versus(lab, space.plugin_defaults(), search.best, rng=rng, progress=progress)
    model = lab.model(search.best)
    exactness = check_exact(model, model.vocab_size, model.profile.rules)
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    model.warm_up()
    points = curve(model, rng=rng, deadline=start + _CURVE_SHARE * budget_s, progress=progress)
    best = replace(search.best, widths=_widths(model, points))
    model.profile = _as_loaded(best.profile(profile), model)
    result: JSON = {
        "load_per_core": load,
        "untuned": replace(base, widths=_as_loaded(base.profile(profile), model).widths).to_json(),
        "law": {"supports": [0, *SUPPORTS], "first_chances": first_chances(), "contexts": list(search.contexts)},
        "candidates": [tried.to_json() for tried in search.tried],
        "n_left": search.n_left,
        "quality": {"kl": quality.kl, "argmax_agreement": quality.agreement},
        "versus_untuned": versus,
        "versus_plugin": versus_plugin,
        "rows_rule": exactness.rule,
        "exactness": exactness.reason,
        "curve": [point.to_json() for point in points],
        **_limits(model, points, left_s=start + budget_s - time.monotonic(), rng=rng, seed=seed, progress=progress),
    }
    cost = _cost(model, points)
    tuned.save(ir_dir, profile, best, {**result, "seconds": time.monotonic() - start})
    save_measurements(fingerprint_of(model, ir_dir), measured_json(exactness, cost))
    record, _ = tuned.read(ir_dir, profile)
    assert record is not None
    return record


def load_per_core() -> float | None:
    """Threads a core that wanted to run in the last minute; None where the system does not tell."""
    return os.getloadavg()[0] / int(cpu()["n_cores"]) if hasattr(os, "getloadavg") else None


def _limits(
    model: OpenVINOModel,
    points: list[Point],
    *,
    left_s: float,
    rng: np.random.Generator,
    seed: int,
    progress: Progress | None,
) -> JSON:
    """Slopes of the forwards, what drafting takes, and what memory allows."""
    found = slopes(model, n_pairs=affordable_pairs(points, left_s), rng=rng, progress=progress)
    if progress is not None:
        progress("reading memory", 0, 1)
    rates = bandwidth.measure(model.weight_bytes, n_threads=int(model.effective("INFERENCE_NUM_THREADS")))
    drafters = drafting(seed=seed)
    if progress is not None:
        progress("reading memory", 1, 1)
    return {
        "slopes": {name: _slope_json(interval) for name, interval in found.items()},
        "bandwidth": rates,
        "roofline": _roofline(model, rates),
        "drafting_ms": drafters,
    }


def _search(
    lab: OpenVINOLab,
    profile: str,
    threads: int | None,
    deadline: float,
    rng: np.random.Generator,
    progress: Progress | None,
) -> tuple[Tuned, Search]:
    if progress is not None:
        progress("trying settings", 0, 1)
    group, n_merged = lab.graph_facts()
    base = space.untuned(profile, threads=threads, weights_group=group)
    contexts = [c for c in CONTEXTS if c + 64 < lab.context_length] or [16]
    search = Search(lab, base, profile != "max", contexts, deadline, rng, [])
    search.run(
        space.starts(profile, threads=threads, weights_group=group),
        space.coordinates(threads=threads, weights_group=group, n_merged=n_merged),
        progress=progress,
    )
    return base, search


def _versus(
    lab: OpenVINOLab, base: Tuned, best: Tuned, *, rng: np.random.Generator, progress: Progress | None
) -> JSON | None:
    """Time of the tuned setting over another's, by width, measured in turns; None where they are the same."""
    if best == base:
        return None
    done: Race | None = None
    for done in race(lab, base, best, contexts=CONTEXTS[:1], rng=rng):
        if progress is not None:
            progress("comparing with what was", done.n_rounds, _FINAL_ROUNDS)
        if done.n_rounds == _FINAL_ROUNDS:
            break
    lab.keep(best)
    assert done is not None
    first, second = (np.array(times) for times in done.forwards)
    ratios = [bootstrap_median(second[:, i] / first[:, i]) for i in range(len(done.cells))]
    per_token = bootstrap_median(np.divide(done.per_token[1], done.per_token[0]))
    forwards = [
        {"n_rows": rows, "context": context, **_ratio_json(r)}
        for (rows, context), r in zip(done.cells, ratios, strict=True)
    ]
    return {"per_token": _ratio_json(per_token), "forwards": forwards}


def _ratio_json(found: Interval) -> JSON:
    return {"ratio": found.value, "low": found.low, "high": found.high, "n": found.n}


def _slope_json(found: Interval) -> JSON:
    """Unbounded ends are None."""
    ends = [end if np.isfinite(end) else None for end in (found.low, found.high)]
    return {"value": found.value, "low": ends[0], "high": ends[1], "n_pairs": found.n}


def _widths(model: OpenVINOModel, points: list[Point]) -> tuple[int, ...]:
    kept = useful_widths(points, model.widths)
    return tuple(w for w in model.profile.widths if w in kept or w not in model.widths)


def _as_loaded(profile: Profile, model: OpenVINOModel) -> Profile:
    """What a load makes of a profile: what was measured is kept under the name that a load will look for."""
    return profile if model.kernels is None else profile.with_kernels()


def _cost(model: OpenVINOModel, points: list[Point]) -> StepCost:
    """The cost model's table from the curve: better than the few seconds at a first load can give."""
    cost = StepCost(known_widths(model))
    single = [p for p in points if p.n_seqs == 1 and p.n_rows in cost.widths]
    cost.calibrate(
        [(p.n_rows, p.context, seconds) for p in single for seconds in p.seconds],
        switch_s=switch_seconds(model, cost.widths),
    )
    return cost


def _roofline(model: OpenVINOModel, rates: JSON) -> list[JSON]:
    """Plain decoding's bound by context, at the rate at which a buffer of the model's size is read again and again."""
    kv = model.kv_bytes_per_token
    return [
        {
            "context": context,
            "weight_bytes": model.weight_bytes,
            "kv_bytes": kv * context,
            "tokens_per_s": bandwidth.roofline(
                rates["model_bytes_per_s"],
                weight_bytes=model.weight_bytes,
                kv_bytes_per_token=kv,
                context=context,
            ),
        }
        for context in _ROOFLINE_CONTEXTS
    ]
