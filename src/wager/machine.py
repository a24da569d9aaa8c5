"""What a measurement is valid for: this machine, model, graph, settings and versions; and where it is kept."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from functools import cache
from importlib.metadata import version
from pathlib import Path

from wager.home import wager_home, write_text
from wager.types import JSON

FORMAT = 4  # of the measurements file: raise it whenever what is measured, or how it is kept, changes
_FLAGS = ("avx2", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "amx_tile")


@cache
def cpu() -> JSON:
    """Model name, the instruction sets that matter here, and usable cores."""
    name, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"name": name, "flags": [f for f in _FLAGS if f in flags], "n_cores": n_cores}


def fingerprint(
    model_hash: str,
    passes: Mapping[str, int],
    properties: Mapping[str, str],
    *,
    widths: ListLike[int],
    kernels: str | None = None,
) -> str:
    """12 hex digits: within one fingerprint, text is the same for the same prompt, options and seed."""
    parts = {
        "model": model_hash,
        "passes": dict(sorted(passes.items())),
        "properties": dict(sorted(properties.items())),
        "widths": list(widths),
        "kernels": kernels,
        "openvino": version("openvino"),
        "cpu": cpu(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def load_measurements(key: str) -> JSON | None:
    """What was measured under this fingerprint; None if nothing was, or the file is damaged (it is measured again)."""
    path = measurements_path(key)
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text())
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def save_measurements(key: str, data: JSON) -> None:
    write_text(measurements_path(key), json.dumps(data, indent=1))


def measurements_path(key: str) -> Path:
    return wager_home() / "machines" / f"{key}-{FORMAT}.json"
