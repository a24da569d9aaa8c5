"""The kernels for this processor, compiled once; where that cannot be, OpenVINO's own are used."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wager.compiled import Code, Progress, compiled
from wager.errors import WagerError
from wager.types import F32

_HERE = Path(__file__).parent
_SOURCES = ("lanes.hpp", "product.hpp", "attention.hpp", "packing.hpp", "ops.cpp")
U8 = npt.NDArray[np.uint8]


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


def _links() -> list[str]:
    import openvino

    home = Path(openvino.__file__).parent
    libraries = [next((home / "libs").glob(pattern), None) for pattern in ("libopenvino.so.*", "libtbb.so.*")]
    if None in libraries or not (home / "include").is_dir():
        raise WagerError("this OpenVINO has no headers or libraries to compile against")
    words = ["-isystem", home / "include", *libraries, "-Xlinker", "-rpath", "-Xlinker", home / "libs"]
    return [str(word) for word in words]


CODE = Code(
    tuple(_HERE / name for name in _SOURCES),
    _HERE / "ops.cpp",
    "compiling kernels for this processor, once",
    uses=version("openvino"),
    links=_links,
)


def kernels(progress: Progress | None = None) -> tuple[Kernels | None, str | None]:
    """The kernels, compiled now where they are not yet (ten seconds), or None and why there are none."""
    try:
        path = compiled(CODE, progress=progress, check=_check)
    except WagerError as error:
        return None, str(error)
    return Kernels(path, path.stem), None


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
