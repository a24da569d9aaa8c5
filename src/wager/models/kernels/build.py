"""Compiles the kernels for this processor, once; where that cannot be, says why, and OpenVINO's own are used."""

from __future__ import annotations

import ctypes
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

import numpy as np
import numpy.typing as npt

from wager.errors import WagerError
from wager.home import wager_home
from wager.machine import cpu
from wager.types import F32

SWITCH = "WAGER_KERNELS"  # "0": do without; else the folder where they are kept
_HERE = Path(__file__).parent
_SOURCES = ("lanes.hpp", "product.hpp", "attention.hpp", "packing.hpp", "ops.cpp")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
_COMPILERS = ("c++", "g++", "clang++")
_NEEDS = ({"avx512f", "avx512_vnni"}, {"avx2", "f16c"})  # either is enough
_LONGEST_S = 300
U8 = npt.NDArray[np.uint8]
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

    def levels(self, codes: npt.NDArray[np.int8]) -> tuple[U8, F32, F32] | None:
        """Eight-bit codes (rows, n, 32) of weights that were rounded to four bits before: their four-bit codes q
        (rows, n, 32), steps and starts (rows, n), codes = start + step * q but for the rounding. None if they were not.
        """
        assert codes.flags.c_contiguous
        q = np.empty(codes.shape, np.uint8)
        steps, starts = np.empty(codes.shape[:2], np.float32), np.empty(codes.shape[:2], np.float32)
        of = _library(self.path).wager_levels(_at(codes), steps.size, _at(q), _at(steps), _at(starts))
        return (q, steps, starts) if of else None

    def pack(self, codes: U8, scale: F32, offset: F32 | None, *, bits: int, half: bool, to: U8) -> None:
        """Codes (rows, n, 32) of ``bits`` bits, scale and offset (rows, n), into the order of product.hpp."""
        rows, n, _ = codes.shape
        arrays: list[npt.NDArray[Any]] = [codes, scale, *([] if offset is None else [offset])]
        assert all(array.flags.c_contiguous for array in arrays)
        zeros = None if offset is None else _at(offset)
        _library(self.path).wager_pack(_at(codes), _at(scale), zeros, rows, n, bits, half, _at(to))


def _at(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)


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
def _library(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    found.wager_levels.argtypes = [pointer, ctypes.c_int64, pointer, pointer, pointer]
    found.wager_pack.argtypes = [pointer] * 3 + [ctypes.c_int] * 4 + [pointer]
    found.wager_pack.restype = None
    return found


@cache
def _factory(path: Path) -> Any:
    from openvino.utils.node_factory import NodeFactory

    factory = NodeFactory()
    factory.add_extension(str(path))
    return factory
