"""Compiles the kernels for this processor, once; where that cannot be, says why, and OpenVINO's own are used."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wager.errors import WagerError
from wager.home import scratch_folder, wager_home
from wager.machine import cpu
from wager.types import F32

SWITCH = "WAGER_KERNELS"  # "0": do without; else the folder where they are kept
_HERE = Path(__file__).parent
_SOURCES = ("lanes.hpp", "product.hpp", "attention.hpp", "packing.hpp", "ops.cpp")
_FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
_COMPILERS = ("c++", "g++", "clang++")
_NEEDS = ({"avx512f", "avx512_vnni"}, {"avx2", "f16c"})  # either is enough
_LONGEST_S = 200
_DIGEST_BYTES = 32
_REFUSED: dict[tuple[str, Path], str] = {}  # what this process tried in vain, by compiler and folder
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
    folder = Path(os.environ.get(SWITCH) or wager_home() / "kernels").absolute()
    if (compiler, folder) in _REFUSED:
        return None, _REFUSED[compiler, folder]
    try:
        return _compiled(compiler, folder, progress), None
    except (OSError, ImportError, RuntimeError, ValueError, WagerError) as error:  # ValueError: an open quote in CXX
        reason = _REFUSED[compiler, folder] = " ".join(str(error).split())[:300]
        return None, reason


def _compiled(compiler: str, folder: Path, progress: Callable[[str, int, int], None] | None) -> Kernels:
    key = _key(compiler)
    path = folder / f"{key}.so"
    if not _is_whole(path):
        if progress is not None:
            progress(_DOING, 0, 1)
        with scratch_folder(path) as scratch:
            made = scratch / path.name
            compile_to(made, compiler)
            made.replace(path)
        if progress is not None:
            progress(_DOING, 1, 1)
    _check(path)
    return Kernels(path, key)


def compile_to(path: Path, compiler: str, *, march: str = "native") -> None:
    """Compile the library for processors like ``march``, and seal it: its digest follows it in the file.

    Raises WagerError with the compiler's first complaint.
    """
    import openvino

    home = Path(openvino.__file__).parent
    libraries = [next((home / "libs").glob(pattern), None) for pattern in ("libopenvino.so.*", "libtbb.so.*")]
    if None in libraries or not (home / "include").is_dir():
        raise WagerError("this OpenVINO has no headers or libraries to compile against")
    asked = [*_FLAGS, f"-march={march}", "-isystem", home / "include", _HERE / "ops.cpp", "-o", path]
    asked += [*libraries, "-Xlinker", "-rpath", "-Xlinker", home / "libs"]
    code, _, complaints = _said(compiler, *map(str, asked))
    if code:
        complaint = next((line for line in complaints.splitlines() if "error" in line), complaints[:200])
        raise WagerError(f"{compiler} cannot compile the kernels ({complaint.strip()[:200]}): install a newer g++")
    path.write_bytes(sealed(path.read_bytes()))


def sealed(library: bytes) -> bytes:
    """A library and the digest of it: the loader reads no further than the first ends."""
    return library + hashlib.sha256(library).digest()


def _is_whole(path: Path) -> bool:
    """Whether a sealed library is there as it was made: the loader would crash on half of one."""
    found = path.read_bytes() if path.is_file() else b""
    return len(found) > _DIGEST_BYTES and sealed(found[:-_DIGEST_BYTES]) == found


def _said(compiler: str, *asked: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of a compiler, which may be a command of several words (`ccache g++`).

    Raises WagerError where it is not there, or takes so long that it was ended with all that it started.
    """
    words = shlex.split(compiler)
    if not words or shutil.which(words[0]) is None:
        raise WagerError(f"there is no compiler `{compiler}`: install g++, or name another in CXX")
    with subprocess.Popen(
        [*words, *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    ) as process:
        try:
            output, complaints = process.communicate(timeout=_LONGEST_S)
        except BaseException as error:  # Ctrl-C too: what it started would hold the pipes open
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise WagerError(f"{compiler} took more than {_LONGEST_S} s: name another in CXX") from error
            raise
    return process.returncode, output, complaints


@cache
def _key(compiler: str) -> str:
    code, told, complaints = _said(compiler, "--version")
    if code:
        raise WagerError(f"{compiler} does not run ({complaints.strip()[:200]}): install g++, or name another in CXX")
    sources = [_HERE.joinpath(name).read_text() for name in _SOURCES]
    parts = [*sources, *_FLAGS, *shlex.split(compiler)[1:], told, str(cpu()), version("openvino")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _check(path: Path) -> None:
    """Raises WagerError where a library just loaded does not compute what it should."""
    from wager.models.kernels.check import fault

    wrong = fault(Kernels(path, path.stem))
    if wrong is not None:
        raise WagerError(f"the kernels in `{path}` compute {wrong} wrongly: name another compiler in CXX")


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
