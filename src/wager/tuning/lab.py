"""Where settings are tried: compiles them, times their forwards, and compares what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from wager.calibrate import forward_seconds
from wager.errors import OptionError
from wager.models import catalog, graph
from wager.models.fidelity import divergence, probe_ids
from wager.models.openvino import OpenVINOModel, read_graph
from wager.models.selfcheck import Exactness, check_exact
from wager.models.tuned import Tuned
from wager.pack import Feed, Slots, pack
from wager.types import F32, RowsRule, Sampling, Sequence

_CHUNK = 32  # rows of the probe a forward reads
_N_PROBE = 256
_NUMERIC = ("INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION")
_SCHEDULING = (
    *("INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING", "ENABLE_HYPER_THREADING", "SCHEDULING_CORE_TYPE"),
    *("TBB_PARTITIONER", "CPU_DENORMALS_OPTIMIZATION"),
)


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean KL(reference profile || this) in nats, and share of positions with the same most likely token."""

    kl: float
    agreement: float


class Lab(Protocol):
    """What the search asks about settings. ``effective`` raises OptionError for one that the plugin refuses."""

    def effective(self, setting: Tuned) -> tuple[str, ...]: ...
    def quality(self, setting: Tuned) -> Quality: ...
    def exactness(self, setting: Tuned) -> Exactness: ...
    def widths(self, setting: Tuned) -> tuple[int, ...]: ...
    def seconds(self, setting: Tuned, n_rows: int, context: int) -> float: ...
    def keep(self, *settings: Tuned) -> None: ...


class OpenVINOLab:
    """``Lab`` over an IR folder in a profile. ``keep`` frees all models but those of the given settings."""

    def __init__(self, ir_dir: Path, profile: str) -> None:
        self._ir_dir, self._profile = ir_dir, profile
        self._context_length = catalog.describe(ir_dir).context_length
        self._models: dict[str, OpenVINOModel] = {}
        self._rules: dict[str, RowsRule] = {}
        self._found: dict[tuple[str, ...], Quality] = {}
        self._ids = probe_ids(ir_dir)[:_N_PROBE]
        self._ids = self._ids[: max(len(self._ids) // _CHUNK, 1) * _CHUNK]
        self._reference: F32 | None = None

    def model(self, setting: Tuned) -> OpenVINOModel:
        """Compiled on first use. Raises OptionError where the plugin refuses it."""
        name = str(setting)
        if name not in self._models:
            profile = setting.profile(self._profile)
            try:
                model = OpenVINOModel(self._ir_dir, profile=profile, context_length=self._context_length)
            except RuntimeError as error:
                raise OptionError(f"the plugin refuses {said(setting)}: {str(error).splitlines()[-1][:120]}") from error
            model.rows_rule = self._rules.get(name, model.rows_rule)
            self._models[name] = model
        return self._models[name]

    def effective(self, setting: Tuned) -> tuple[str, ...]:
        """What the plugin makes of it: settings that are equal here are the same."""
        model = self.model(setting)
        numeric = tuple(model.effective(name) for name in _NUMERIC)
        if model.kernels is not None:  # what computes is ours, whatever the plugin would do
            numeric = (model.kernels, *("" for _ in _NUMERIC[1:]))
        scheduling = tuple(model.effective(name) for name in _SCHEDULING)
        return (*numeric, *scheduling, str(model.passes["merge_products"]), str(setting.widths))

    def quality(self, setting: Tuned) -> Quality:
        """On the first tokens of the probe, read in narrow forwards as decoding does."""
        key = self.effective(setting)[: len(_NUMERIC)]
        if key not in self._found:
            if self._reference is None:
                self._reference = _logits(self._of_reference(), self._ids)
            logits = _logits(self.model(setting), self._ids)
            kl = np.concatenate(
                [
                    divergence(self._reference[i : i + _CHUNK], logits[i : i + _CHUNK])
                    for i in range(0, len(self._ids), _CHUNK)
                ]
            )
            same = self._reference.argmax(-1) == logits.argmax(-1)
            self._found[key] = Quality(float(kl.mean()), float(same.mean()))
        return self._found[key]

    def exactness(self, setting: Tuned) -> Exactness:
        """The self-check; forwards are laid out by the rule that it found from then on."""
        model = self.model(setting)
        found = check_exact(model, model.vocab_size, model.profile.rules, budget_s=0.0)
        model.rows_rule = self._rules[str(setting)] = found.rule
        return found

    def widths(self, setting: Tuned) -> tuple[int, ...]:
        return self.model(setting).widths

    def seconds(self, setting: Tuned, n_rows: int, context: int) -> float:
        """Of a forward, the width being prepared before."""
        model = self.model(setting)
        forward_seconds(model, n_rows, context)
        return forward_seconds(model, n_rows, context)

    def keep(self, *settings: Tuned) -> None:
        kept = {str(setting) for setting in settings}
        self._models = {name: model for name, model in self._models.items() if name in kept}

    @property
    def context_length(self) -> int:
        return self._context_length

    def graph_facts(self) -> tuple[int, int]:
        """Input channels that share a scale in the weights, and products that could be merged."""
        import openvino

        network = read_graph(openvino.Core(), self._ir_dir)
        return graph.weights_group(network), graph.merge_products(network)

    def _of_reference(self) -> OpenVINOModel:
        return OpenVINOModel(self._ir_dir, profile="reference", context_length=self._context_length)


def _logits(model: OpenVINOModel, ids: list[int]) -> F32:
    """(len(ids), V) of a prompt, in the model's first blocks."""
    rows = []
    size = model.block_size
    table = range(-(-len(ids) // size) + 1)
    for start in range(0, len(ids), _CHUNK):
        seq = Sequence(0, ids, len(ids), Sampling(), 0, n_cached=start)
        feed = Feed(seq, min(start + _CHUNK, len(ids)), rule=model.rows_rule)
        pads = range(len(table), len(table) + 2)
        packed = pack([feed], [Slots(table)], width_for=model.width_for, pad_blocks=pads, block_size=size)
        wanted = np.arange(feed.stop - start, dtype=np.int64)
        rows.append(model.forward(replace(packed.batch, rows=wanted)).logits.copy())
    return np.concatenate(rows)


def said(setting: Tuned, *, since: Tuned | None = None) -> str:
    """A setting in words, or what it changes in another."""
    before: Mapping[str, str] = {} if since is None else since.properties
    parts = [f"{name}={value}" for name, value in setting.properties.items() if before.get(name) != value]
    parts += [f"{name} as the plugin likes" for name in before if name not in setting.properties]
    if since is None or setting.kernels != since.kernels:
        parts.append("own kernels" if setting.kernels else "the plugin's kernels")
    if since is None or setting.merge_products != since.merge_products:
        parts.append("products merged" if setting.merge_products else "products apart")
    if since is None or setting.widths != since.widths:
        parts.append("widths " + ", ".join(map(str, setting.widths)))
    return ", ".join(parts) or "no change"
