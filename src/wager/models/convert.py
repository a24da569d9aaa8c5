"""A model of any source in the weights one asks for: settings, NNCF, and where it came from.

NNCF does the compressing: int8 with one scale per output row, or int4 with one per row and group of inputs (its
``compress_weights``; AWQ 2306.00978, scale estimation as it documents it). Half precision is rounding, done here.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wager.errors import ModelError, OptionError
from wager.home import atomic_folder, is_partial, models_home
from wager.models import catalog
from wager.models.convert_source import FullModel
from wager.models.describe import describe
from wager.models.hub import IR_PATTERNS
from wager.types import JSON

Progress = Callable[[str, int, int], None]
FORMATS = ("f16", "int8", "int4")
GROUPS = (16, 32, 64, 128)  # others the plugin's kernels do not take, or multiply wrongly (low_bit.py)
DEFAULT_GROUP = 64
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_LEFT_BEHIND = ("openvino_model.xml", "openvino_model.bin", "openvino_config.json", "wager.json")
_BYTES_PER_WEIGHT = {"f16": 2.0, "int8": 1.05, "int4": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How weights are stored. ``group_size`` and ``ratio`` (share of them in int4, the rest int8) belong to int4.

    ``awq`` and ``scale_estimation`` look at what the model does with the text in ``calibration``. Raises OptionError
    for what does not go together.
    """

    format: str = "int8"
    group_size: int | None = None
    ratio: float | None = None
    awq: bool = False
    scale_estimation: bool = False
    calibration: Path | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(f"`--weight-format` is `{self.format}`: give one of {', '.join(FORMATS)}")
        if self.format != "int4":
            self._only_for_int4()
        if self.group_size is not None and self.group_size not in GROUPS:
            raise OptionError(f"`--group-size` is {self.group_size}: give one of {', '.join(map(str, GROUPS))}")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise OptionError(f"`--ratio` is {self.ratio}: give the share of int4, above 0 and at most 1")
        if self.is_calibrated and self.calibration is None:
            name = "--awq" if self.awq else "--scale-estimation"
            raise OptionError(f"`{name}` looks at activations: give a text for them with --calibration FILE")
        if self.calibration is not None and not self.is_calibrated:
            raise OptionError(f"`--calibration` is `{self.calibration}` and nothing uses it: add --awq")
        if self.calibration is not None and not self.calibration.is_file():
            raise OptionError(f"`--calibration` is `{self.calibration}`, which is no file: give a text in UTF-8")

    def _only_for_int4(self) -> None:
        given = {"--group-size": self.group_size, "--ratio": self.ratio, "--awq": self.awq or None}
        given |= {"--scale-estimation": self.scale_estimation or None}
        for name, value in given.items():
            if value is not None:
                raise OptionError(f"`{name}` belongs to int4: leave it out, or give --weight-format int4")

    @property
    def is_calibrated(self) -> bool:
        return self.awq or self.scale_estimation

    @property
    def group(self) -> int:
        return DEFAULT_GROUP if self.group_size is None else self.group_size

    @property
    def form(self) -> str:
        """What models call it: f16, int8-channel, int4-64."""
        return {"f16": "f16", "int8": "int8-channel"}.get(self.format, f"int4-{self.group}")

    def to_json(self) -> JSON:
        if self.format != "int4":
            return {"weight_format": self.format}
        settings: JSON = {"weight_format": self.format, "group_size": self.group, "ratio": self.ratio or 1.0}
        settings |= {"awq": self.awq, "scale_estimation": self.scale_estimation}
        return settings | ({"calibration": self.calibration.name} if self.calibration else {})


def target_folder(name: str, *, home: Path | None = None) -> Path:
    """Where the model of this name will be. Raises OptionError for a name that is taken, or is none."""
    if not _NAME.fullmatch(name) or name.endswith(".gguf"):
        raise OptionError(f"`{name}` is no name for a model: give letters, digits, `.`, `-` and `_`, without a slash")
    folder = models_home(home) / name
    if folder.exists() or is_partial(folder):
        raise OptionError(f"`{name}` is there already: give another name, or `wager models --remove {name}` first")
    if name in catalog.entries():
        raise OptionError(f"`{name}` is a name of the catalog: give another one")
    return folder


def check_tools(weights: Weights) -> None:
    """Raise ModelError where the package that compresses is missing."""
    if weights.format != "f16" and find_spec("nncf") is None:
        raise ModelError(
            f"{weights.format} weights are made by nncf, which is not installed: pip install 'wager[convert]'"
        )


def convert(full: FullModel, folder: Path, weights: Weights, *, progress: Progress) -> dict[str, int]:
    """Write ``full`` in ``weights`` to ``folder``, whole or not at all; how many matrices have which form.

    Raises OptionError where the group size divides no matrix, ModelError where weights cannot be stored so,
    CapacityError for a full disk.
    """
    import openvino as ov

    from wager.models.convert_passes import check_groups, forms, to_f16
    from wager.models.gguf import save
    from wager.models.openvino import read_graph

    check_tools(weights)
    model = read_graph(ov.Core(), full.folder)
    n_bytes = (full.folder / "openvino_model.bin").stat().st_size
    with atomic_folder(folder, needed_bytes=int(n_bytes / 4 * _BYTES_PER_WEIGHT[weights.format])) as place:
        progress("compressing", 0, 0)
        if weights.format == "f16":
            to_f16(model)
        else:
            if weights.format == "int4":
                check_groups(model, weights.group)
            model = _compressed(model, weights, full.folder)
        progress("compressing", 1, 1)
        progress("write", 0, 1)
        save(model, place / "openvino_model.xml")
        found = forms(model)
        _copy_rest(full.folder, place)
        _write_provenance(place, full, weights, found)
        progress("write", 1, 1)
    return dict(found)


def _compressed(model: Any, weights: Weights, folder: Path) -> Any:
    """What NNCF makes of it, without zero points: they cost time at every product (docs/quantisation.md)."""
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    mode = nncf.CompressWeightsMode
    silent = io.StringIO()  # NNCF draws bars of its own
    with redirect_stdout(silent):
        if weights.format == "int8":
            return nncf.compress_weights(model, mode=mode.INT8_SYM)
        dataset = _dataset(model, weights.calibration, folder) if weights.calibration else None
        advanced = nncf.AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST)
        return nncf.compress_weights(
            model,
            mode=mode.INT4_SYM,
            ratio=weights.ratio or 1.0,
            group_size=weights.group,
            awq=weights.awq,
            scale_estimation=weights.scale_estimation,
            dataset=dataset,
            advanced_parameters=advanced,
        )


def _dataset(model: Any, calibration: Path, folder: Path) -> Any:
    """Inputs of the stateful graph for pieces of a text, as an ``nncf.Dataset``."""
    import nncf

    from wager.models.convert_passes import inputs_for
    from wager.text import Text

    try:
        text = calibration.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"`--calibration` is `{calibration}`, which is not UTF-8: convert it, e.g. with iconv"
        ) from error
    pieces = inputs_for(model, Text(folder).encode(text))
    if not pieces:
        raise OptionError(f"`--calibration` is `{calibration}`, a text too short to learn from: give a page or more")
    return nncf.Dataset(pieces)


def _copy_rest(source: Path, place: Path) -> None:
    """Tokenizer, configuration and chat template."""
    for file in sorted(source.iterdir()):
        wanted = any(file.match(pattern) for pattern in IR_PATTERNS)
        if file.is_file() and wanted and file.name not in _LEFT_BEHIND and not file.name.endswith(".index.json"):
            shutil.copyfile(file, place / file.name)


def _write_provenance(place: Path, full: FullModel, weights: Weights, found: Counter[str]) -> None:
    info = describe(place)
    packages = ("wager", "openvino", *(("nncf",) if weights.format != "f16" else ()), *full.packages)
    made = {
        "source": full.source,
        "architecture": info.architecture,
        "context_length": info.context_length,
        "vocab_size": info.vocab_size,
        "form": weights.form,
        "matrices": dict(sorted(found.items())),
        "convert": weights.to_json(),
        "versions": {name: version(name) for name in packages},
    }
    (place / "wager.json").write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
