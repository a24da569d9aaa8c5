"""Which settings there are on this machine for this model."""

from __future__ import annotations

from pathlib import Path

from wager.machine import cpu
from wager.models.kernels import kernels
from wager.models.profiles import PROFILES, profile_named
from wager.models.tuned import Tuned
from wager.tuning.search import KERNELS, MERGED

_PER_CHANNEL = str(2**64 - 1)  # the plugin's largest group: one scale for a whole row of activations
_SMT = Path("/sys/devices/system/cpu/smt/active")
_HYBRID = Path("/sys/devices/cpu_core")


def untuned(profile: str, *, threads: int | None, weights_group: int) -> Tuned:
    return Tuned.of(profile_named(profile, threads=threads, weights_group=weights_group))


def plugin_defaults() -> Tuned:
    """How OpenVINO runs a model that it is told nothing about but to be quick."""
    return Tuned({"PERFORMANCE_HINT": "LATENCY"}, merge_products=False)


def starts(profile: str, *, threads: int | None, weights_group: int) -> list[Tuned]:
    """Settings far from the profile's own, from which a search may go on."""
    if profile != "max":
        return []
    fast = untuned("fast", threads=threads, weights_group=weights_group)
    return [Tuned(fast.properties, widths=PROFILES["max"].widths, kernels=fast.kernels)]


def coordinates(*, threads: int | None, weights_group: int, n_merged: int) -> dict[str, list[str]]:
    """Values by coordinate, what matters most first; one that has no choice here is left out."""
    groups = dict.fromkeys(["0", "32", "64", "128", *([str(weights_group)] if weights_group else []), _PER_CHANNEL])
    found = {
        KERNELS: ["on", "off"] if kernels()[0] is not None else [],
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": list(groups),
        "INFERENCE_PRECISION_HINT": precisions(),
        "KV_CACHE_PRECISION": ["f16", "f32", "u8"],
        "INFERENCE_NUM_THREADS": [str(n) for n in thread_counts()] if threads is None else [],
        "TBB_PARTITIONER": ["STATIC", "AUTO"],
        "CPU_DENORMALS_OPTIMIZATION": ["YES", "NO"],
        "ENABLE_CPU_PINNING": ["YES", "NO"],
        "ENABLE_HYPER_THREADING": ["YES", "NO"] if _SMT.is_file() and _SMT.read_text().strip() == "1" else [],
        "SCHEDULING_CORE_TYPE": ["PCORE_ONLY", "ECORE_ONLY", "ANY_CORE"] if _HYBRID.is_dir() else [],
        MERGED: ["on", "off"] if n_merged else [],
    }
    return {name: values for name, values in found.items() if len(values) > 1}


def precisions() -> list[str]:
    """Of activations, as far as this processor has instructions for them."""
    import openvino

    known = {"FP32": "f32", "BF16": "bf16", "FP16": "f16"}
    capabilities = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return [name for capability, name in known.items() if capability in capabilities]


def thread_counts() -> list[int]:
    n = int(cpu()["n_cores"])
    return sorted({1, max(1, n // 2), max(1, n - 1), n})
