"""Compiles the kernels for this processor, once; where that cannot be, says why, and OpenVINO's own are used."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wager.errors import WagerError
from wager.home import wager_home
from wager.machine import cpu

SWITCH = "WAGER_KERNELS"  # "0": do without; else the folder where they are kept
_HERE = Path(__file__).parent
_SOURCES = ("lanes.hpp", "product.hpp", "attention.hpp", "ops.cpp")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
_COMPILERS = ("c++", "g++", "clang++")
_NEEDS = ({"avx512f", "avx512_vnni"}, {"avx2", "f16c"})  # either is enough
_LONGEST_S = 300
_DOING = "compiling kernels for this processor, once"


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled library, and what names its code: sources, compiler, processor and version of OpenVINO."""

    path: Path
    key: str

    def extend(self, core: Any) -> None:
        """Let an ``ov.Core`` know the operations."""
        core.add_extension(str(self.path))

    def make(self, kind: str, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        """A node of the operation ``kind``."""
        return _factory(self.path).create(kind, inputs, attributes)


def kernels(progress: Callable[[str, int, int], None] | None = None) -> tuple[Kernels | None, str | None]:
    """The kernels, compiled now where they are not yet (ten seconds), or None and why there are none."""
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0"
    flags = set(cpu()["flags"])
    if not any(needed <= flags for needed in _NEEDS):
        return None, "this processor has neither AVX-512 VNNI nor AVX2"
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None, "there is no C++ compiler: install g++ for about twice the speed"
    try:
        return _compiled(compiler, progress), None
    except (OSError, ImportError, WagerError, subprocess.SubprocessError) as error:
        return None, str(error)


def _compiled(compiler: str, progress: Callable[[str, int, int], None] | None) -> Kernels:
    key = _key(compiler)
    path = Path(os.environ.get(SWITCH) or wager_home() / "kernels") / f"{key}.so"
    if not path.is_file():
        if progress is not None:
            progress(_DOING, 0, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            compile_to(made, compiler)
            made.replace(path)
        if progress is not None:
            progress(_DOING, 1, 1)
    return Kernels(path, key)


def compile_to(path: Path, compiler: str, *, march: str = "native") -> None:
    """Compile the library for processors like ``march``. Raises WagerError with the compiler's first complaint."""
    import openvino

    home = Path(openvino.__file__).parent
    libraries = [next((home / "libs").glob(pattern), None) for pattern in ("libopenvino.so.*", "libtbb.so.*")]
    if None in libraries or not (home / "include").is_dir():
        raise WagerError("this OpenVINO has no headers or libraries to compile against")
    command = [
        compiler,
        *_FLAGS,
        f"-march={march}",
        "-isystem",
        str(home / "include"),
        str(_HERE / "ops.cpp"),
        "-o",
        str(path),
    ]
    command += [*map(str, libraries), f"-Wl,-rpath,{home / 'libs'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise WagerError(f"{compiler} cannot compile the kernels ({complaint.strip()[:200]}): install a newer g++")


@cache
def _key(compiler: str) -> str:
    asked = [compiler, "--version"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=_LONGEST_S, check=True).stdout
    sources = [_HERE.joinpath(name).read_text() for name in _SOURCES]
    parts = [*sources, *_FLAGS, told, str(cpu()), version("openvino")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _factory(path: Path) -> Any:
    from openvino.utils.node_factory import NodeFactory

    factory = NodeFactory()
    factory.add_extension(str(path))
    return factory
