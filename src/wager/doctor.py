"""What this machine and installation look like to wager; works when parts are missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from wager.home import wager_home

if TYPE_CHECKING:
    from wager.types import JSON

PACKAGES = ("numpy", "openvino", "openvino-tokenizers", "openvino-genai", "gguf", "huggingface_hub", "rich", "typer")
MODULES = {"openvino-tokenizers": "openvino_tokenizers", "openvino-genai": "openvino_genai"}
# What each flag is good for is in docs/log.md; names as in /proc/cpuinfo.
CPU_FLAGS = {
    "avx2": "avx2",
    "avx512": "avx512f",
    "avx_vnni": "avx_vnni",
    "avx512_vnni": "avx512_vnni",
    "amx_int8": "amx_int8",
    "amx_bf16": "amx_bf16",
}
MIN_FREE_BYTES = 2 * 10**9


def examine() -> JSON:
    """Everything `wager doctor` shows, JSON-ready; ``problems`` is empty when all is well."""
    packages = {name: package_version(name) for name in PACKAGES}
    problems = [f"`{name}` is not installed: pip install {name}" for name, found in packages.items() if found is None]
    problems += [p for name in PACKAGES if packages[name] is not None and (p := import_problem(name))]
    cpu, home = examine_cpu(), examine_home()
    if packages["openvino"] is not None and not any("`openvino`" in p for p in problems):
        problems += openvino_problems()
    if cpu["flags"] and not cpu["flags"]["avx2"] and platform.machine() in ("x86_64", "AMD64"):
        problems.append("this CPU has no AVX2: expect a small fraction of the usual speed")
    if not home["writable"]:
        problems.append(f"`{home['path']}` cannot be written: set WAGER_HOME to a folder that can")
    if home["free_bytes"] < MIN_FREE_BYTES:
        problems.append(f"`{home['path']}` has {home['free_bytes'] / 1e9:.1f} GB free: make room for models (2 GB)")
    return {
        "wager": package_version("wager"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu,
        "memory": examine_memory(),
        "packages": packages,
        "home": home,
        "problems": problems,
    }


def package_version(name: str) -> str | None:
    """The installed version, None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_problem(name: str) -> str | None:
    """Why an installed package does not work, None when it does."""
    try:
        importlib.import_module(MODULES.get(name, name))
    except Exception as error:  # a broken binary package can raise anything; saying what is the point
        return f"`{name}` is installed but cannot be imported ({error}): reinstall it"
    return None


def openvino_problems() -> list[str]:
    """What OpenVINO lacks that wager needs: the CPU device and the paged-attention transformation."""
    import openvino

    problems = []
    if "CPU" not in openvino.Core().available_devices:
        problems.append("`openvino` finds no CPU device: reinstall openvino")
    try:
        transformations = importlib.import_module("openvino._offline_transformations")
        found = hasattr(transformations, "paged_attention_transformation")
    except ImportError:
        found = False
    if not found:
        problems.append("`openvino` has no paged-attention transformation: install the version wager pins")
    return problems


def examine_cpu() -> JSON:
    """Model name, usable cores (affinity and container limit), and the instruction sets that matter (None: unknown)."""
    info = _read(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", info, re.MULTILINE)
    present = set(flags[1].split()) if flags else None
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": affinity,
        "container_limit": _container_cores(),
        "flags": {name: flag in present for name, flag in CPU_FLAGS.items()} if present is not None else None,
    }


def _container_cores() -> float | None:
    quota, _, period = _read(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() else None


def examine_memory() -> JSON:
    """Total and available bytes (None: unknown)."""
    info = _read(Path("/proc/meminfo"))
    found = {name: re.search(rf"^{name}:\s*(\d+) kB", info, re.MULTILINE) for name in ("MemTotal", "MemAvailable")}
    total, available = (int(m[1]) * 1024 if m else None for m in found.values())
    return {"total_bytes": total, "available_bytes": available}


def examine_home() -> JSON:
    """The folder of models, whether it can be written, and what is free on its disk."""
    home = wager_home()
    place = home.absolute()
    while not place.exists():
        place = place.parent
    return {
        "path": str(home),
        "exists": home.exists(),
        "writable": place.is_dir() and os.access(place, os.W_OK),
        "free_bytes": shutil.disk_usage(place).free,
    }


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
