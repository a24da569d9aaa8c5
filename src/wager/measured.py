"""What is measured of a model on this machine, once: it is kept under ``WAGER_HOME``, and taken from there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from wager.calibrate import calibrate
from wager.cost import StepCost
from wager.errors import WagerError
from wager.machine import fingerprint, load_measurements, save_measurements
from wager.models.describe import model_hash
from wager.models.openvino import OpenVINOModel
from wager.models.selfcheck import Exactness, check_exact
from wager.text import Text
from wager.types import JSON

_WIDER = (24, 32)  # widths the cost model knows beyond the held ones


def measured(
    model: OpenVINOModel,
    key: str,
    n_valid_ids: int,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Exactness, StepCost]:
    """Self-check and step times: from the file of fingerprint ``key``, or measured now, before an engine uses it."""
    known = _parsed(load_measurements(key))
    if known is not None:
        return known
    if progress is not None:
        progress("checking that speculation cannot change text here", 0, 1)
    exactness = check_exact(model, n_valid_ids, model.profile.rules)
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    if model.lanes_are_cheap:
        model.warm_up()  # so that widths are timed as they will run
    cost = StepCost(known_widths(model))
    calibrate(model, cost, progress=progress)
    _remember(key, to_json(exactness, cost))
    return exactness, cost


def fingerprint_of(model: OpenVINOModel, ir_dir: Path) -> str:
    """Of a loaded model and all that its text may depend on."""
    return fingerprint(
        model_hash(ir_dir), model.passes, model.properties, widths=model.profile.widths, kernels=model.kernels
    )


def to_json(exactness: Exactness, cost: StepCost) -> JSON:
    """What is kept under a fingerprint."""
    return {"exactness": exactness.to_json(), "cost": cost.to_json()}


def known_widths(model: OpenVINOModel) -> list[int]:
    """Widths that the cost model has times of."""
    return [w for w in sorted({*model.widths, *_WIDER}) if w <= model.max_rows]


def loaded_text(ir_dir: Path) -> Text:
    """The tokenizer, with what its vocabulary has to be decoded for: half a second, so it is remembered."""
    text = Text(ir_dir)
    assert text.vocab_size > 0
    key = f"text-{model_hash(ir_dir)[:12]}"
    try:
        text.take_facts(load_measurements(key) or {})
    except (KeyError, TypeError, ValueError):
        _remember(key, text.facts())
    return text


def _remember(key: str, data: JSON) -> None:
    """Keep measurements for the next start; where that cannot be, say so and go on: they are only time."""
    try:
        save_measurements(key, data)
    except WagerError as error:
        logging.getLogger("wager").warning("measured again next time: %s", error)


def _parsed(saved: JSON | None) -> tuple[Exactness, StepCost] | None:
    """Measurements from their file; None where there are none, or not in a form we know: they are taken again."""
    try:
        return None if saved is None else (Exactness(**saved["exactness"]), StepCost.from_json(saved["cost"]))
    except (KeyError, TypeError, ValueError):
        return None
