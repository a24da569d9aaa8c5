"""The target without some of its attentions and MLPs drafts for it, over the target's own K/V.

What is left out is a set of modules (module 2i is the attention of layer i, 2i + 1 its MLP; first and last layer stay):
``wager tune MODEL --drafter skip`` finds one for a model, ``skip`` uses it (SWIFT 2410.06916).
"""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wager.drafters.base import DrafterInfo
from wager.drafters.scratch import ScratchDrafter
from wager.errors import OptionError
from wager.machine import measurements_path
from wager.types import JSON

FORMAT = 2  # of what tuning saves: raise it when what is measured changes, the clock of costs included
RATIO = 0.45  # of the modules, where nobody says which: SWIFT's
_KINDS = ("attn", "mlp")
_OF_A_FILE = "for `drafter` skip:… give a ratio, or a file that `wager tune MODEL --drafter skip` wrote"


def module_name(module: int) -> str:
    return f"{_KINDS[module % 2]}.{module // 2}"


def module_number(name: str, n_modules: int) -> int:
    """Raises OptionError for what is no module, or must stay."""
    kind, _, layer = name.partition(".")
    if kind not in _KINDS or not layer.isdecimal() or not 0 < int(layer) < n_modules // 2 - 1:
        raise OptionError(
            f"`{name}` cannot be skipped: name attn.LAYER or mlp.LAYER with a layer in 1 … {n_modules // 2 - 2}"
        )
    return 2 * int(layer) + _KINDS.index(kind)


def alternating(n_modules: int, ratio: float) -> list[int]:
    """Both modules of layers spread evenly, about ``ratio`` of all: where SWIFT's search starts."""
    n_layers = n_modules // 2
    n_free = max(0, n_layers - 2)
    n = min(n_free, round(ratio * n_layers))
    layers = [1 + (2 * i + 1) * n_free // (2 * n) for i in range(n)]
    return [2 * layer + part for layer in layers for part in (0, 1)]


def saved_key(model_hash: str) -> str:
    """Where the set found for a model is kept (``machine.save_measurements``)."""
    return f"skip-{model_hash[:12]}-{version('openvino').split('-')[0]}"


def modules_of(path: Path, found: JSON, n_modules: int, remedy: str) -> list[int]:
    """The set in what ``_read`` found at ``path``. Raises OptionError where it is of another model."""
    try:
        return sorted({module_number(name, n_modules) for name in found["skip"]})
    except OptionError as error:
        raise OptionError(f"`{path}` holds no set of modules of this model ({error}): {remedy}") from error


def chosen(argument: str, target: Any) -> list[int]:
    """The modules that ``skip:ARGUMENT`` leaves out: a ratio, a file, or "" for what was tuned."""
    n_modules: int = target.model.n_modules
    if argument and (ratio := _as_ratio(argument)) is not None:
        return alternating(n_modules, ratio)
    if argument:
        path = Path(argument)
        return modules_of(path, _read(path, _OF_A_FILE), n_modules, _OF_A_FILE)
    from wager.models import catalog

    tune = f"`wager tune {target.ir_dir.name} --drafter skip`"
    path = measurements_path(saved_key(catalog.model_hash(target.ir_dir)))
    why = "nothing was tuned for this model"
    if path.is_file():
        remedy = f"have it measured again with {tune}"
        found = _read(path, remedy)
        if found.get("format") == FORMAT:
            return modules_of(path, found, n_modules, remedy)
        why = "what was tuned for this model was measured by another version"
    logging.getLogger("wager").warning("skip: %s, so every other layer is left out; %s finds a better set", why, tune)
    return alternating(n_modules, RATIO)


def check(argument: str) -> None:
    """Raises OptionError for what is neither a ratio nor a file."""
    if argument and _as_ratio(argument) is None:
        _read(Path(argument), _OF_A_FILE)


def _as_ratio(argument: str) -> float | None:
    try:
        ratio = float(argument)
    except ValueError:
        return None
    if not 0 <= ratio < 1:
        raise OptionError(f"`drafter` is {'skip:' + argument!r}: give a ratio in [0, 1)")
    return ratio


def _read(path: Path, remedy: str) -> JSON:
    """What `wager tune` saved: ``skip`` in it is a list of names. Raises OptionError where it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"`{path}` cannot be read ({error}): {remedy}") from error
    names = found.get("skip") if isinstance(found, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f'`{path}` is damaged, for it has no {{"skip": ["attn.3", …]}}: {remedy}')
    return dict(found)


def make(argument: str, target: Any) -> ScratchDrafter:
    """For the registry: the target's graph without the chosen modules, over the same K/V memory."""
    from wager.models import skipping

    modules = chosen(argument, target)
    if target.progress is not None:
        target.progress("leaving modules out", 0, 1)
    model = target.model.variant(lambda graph: skipping.skip(graph, modules))
    if target.progress is not None:
        target.progress("leaving modules out", 1, 1)
    return ScratchDrafter(
        model,
        n_valid_ids=target.n_valid_ids,
        eos_ids=target.text.eos_ids,
        drawing=target.drawing,
        name=f"skip:{argument}" if argument else "skip",
    )


DRAFTER = DrafterInfo(
    make=make,
    family="target",
    drafts="with the target without some of its attentions and MLPs, reading the target's K/V; `skip:0.3` leaves out "
    "about that share, `skip:FILE` what a file names",
    needs="`wager tune MODEL --drafter skip`, for a good choice of them",
    remembers="which were chosen, on disk (below `WAGER_HOME`, per model)",
    costs="a forward of what is left per token",
    source="SWIFT, Xia et al. 2410.06916; ConfLayers 2604.14612; Draft on the Fly 2410.01028",
    trees=False,
    check=check,
)
