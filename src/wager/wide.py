"""Passes over a row as long as the vocabulary, compiled (``wide.cpp``): a few times as fast as array by array.

Where nothing can be compiled numpy does the same.
"""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wager.compiled import Code, Progress, compiled
from wager.errors import WagerError
from wager.types import F32, F64, I64

CODE = Code(
    (Path(__file__).with_suffix(".cpp"),),
    Path(__file__).with_suffix(".cpp"),
    "compiling sampling for this processor, once",
    flags=("-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-ffp-contract=fast"),
)
LONG = 2048  # shorter rows are done with in numpy before a library is called
_CHUNK = 16384  # larger temporaries are given back to the system and cost more in page faults than in arithmetic
_FOLDS = 64
PART = 256  # entries that are summed together, as in wide.cpp
SLACK = 1e-2  # far more than float32 and a short logarithm lose where a winner can be
_ROOM = 4096  # entries that may win: a handful, unless almost all are equal
_N_CHECKED = 10007  # no multiple of what a processor does at once
_STEEPEST = 1e300  # of 1 / temperature


def prepare(progress: Progress | None = None) -> str | None:
    """Compile now what is missing (a second); why there is nothing to use, or None."""
    try:
        _library(compiled(CODE, progress=progress, check=_check))
    except WagerError as error:
        return str(error)
    return None


def exponentials(x: F64 | F32, *, temperature: float = 1.0) -> tuple[F64, float]:
    """exp((x - max x) / temperature) (V,), temperature > 0, and their sum. Not compiled, in long rows what
    is below e^-8 of the best is right to 1e-5 of itself (float32, three times as fast): 1e-7 of the mass together.
    """
    out = np.empty(len(x))
    if len(x) >= LONG and (total := _exponentials(x, temperature, out)) is not None:
        return out, total
    top = float(x.max())
    with np.errstate(over="ignore", under="ignore"):  # a tiny temperature leaves the best alone
        if len(x) < LONG:
            np.exp(np.subtract(x, top, dtype=np.float64) / temperature, out=out)
            return out, float(out.sum())
        short = np.empty(_CHUNK, np.float32)
        for part in chunks(len(x)):
            some, weights = x[part], out[part]
            y = np.subtract(some, top, out=short[: len(some)], casting="same_kind")
            y *= min(1 / temperature, 1e38)
            large = np.flatnonzero(y > -8.0)
            weights[:] = np.exp(y, out=y)
            weights[large] = np.exp(np.subtract(some[large], top, dtype=np.float64) / temperature)
    return out, float(out.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Of w = e^y for y = (x - ``top``) / temperature, x (V,) with the largest value ``top``: ``total`` sum w, ``logs``
    sum w y, ``parts`` (ceil(V / PART),) sum w over every PART entries. In long rows what is below e^-8 of the best is
    right to 1e-6 of itself (float32, three times as fast): 1e-7 of the mass together.
    """

    top: float
    total: float
    logs: float
    parts: F64

    @property
    def entropy(self) -> float:
        """Of the law softmax(x / temperature), nats: log Z - sum w log w / Z."""
        return math.log(self.total) - self.logs / self.total


def sums(x: F64 | F32, *, temperature: float = 1.0) -> Sums:
    """Of a row (V,), temperature > 0."""
    found = _sums(x, temperature) if len(x) >= LONG else None
    if found is not None:
        return found
    weights, total = exponentials(x, temperature=temperature)
    return Sums(float(x.max()), total, _log_sum(weights, x) / temperature, np.add.reduceat(weights, _starts(len(x))))


def log_partition(x: F64 | F32, *, temperature: float = 1.0) -> float:
    """log of the sum of the ``exponentials`` of x (V,)."""
    return math.log(sums(x, temperature=temperature).total)


def entropy(x: F64 | F32, *, temperature: float = 1.0) -> float:
    """Of the law softmax(x / temperature), x (V,), temperature > 0, nats."""
    return sums(x, temperature=temperature).entropy


@cache
def _starts(n: int) -> I64:
    return np.arange(0, n, PART)


def _log_sum(weights: F64, x: F64 | F32) -> float:
    """sum w (x - max x); where x is -inf, w is 0."""
    total, top = 0.0, float(x.max())
    for part in chunks(len(x)):
        logs = np.maximum(x[part] - top, -1e30)  # 0 times -inf is no number
        total += float(np.einsum("i,i->", weights[part], logs))  # @ would wake the threads of BLAS
    return total


def top_indices(x: F64 | F32, k: int) -> I64:
    """Ids (k,) of the k largest values, best first; equal values by lowest id."""
    k = min(k, len(x))
    if k == 0:
        return np.empty(0, np.int64)
    some = _largest(x, k) if len(x) >= LONG else None
    if some is not None:
        return some
    # Of the largest values of disjoint parts, the k-th bounds the k-th of all from below, at a third of the price.
    n = len(x) // _FOLDS
    tops = x if n <= k else np.maximum.reduce(x[: n * _FOLDS].reshape(_FOLDS, n), axis=0)
    ids = np.flatnonzero(x >= np.partition(tops, len(tops) - k)[len(tops) - k])
    return ids[np.lexsort((ids, -x[ids]))][:k]


def chunks(n: int) -> list[slice]:
    return [slice(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]


def shortlist(x: F64 | F32, temperature: float, key: int) -> I64 | None:
    """Ids, rising, of all tokens that may have the largest x / temperature - log E, temperature > 0.

    E = -log u of the uniforms behind ``key`` (``sampling.Noise.token_key``) is at least 1 - u: that bounds every entry
    by one float32 logarithm. None: not compiled, x is not made of numbers, or too many may win.
    """
    library = _ready()
    if library is None:
        return None
    x = _whole(x)
    bounds, ids = _DESK.room(len(x))
    n = library.wager_shortlist(*_row(x), key, _steep(temperature), SLACK, bounds.ctypes.data, ids.ctypes.data, _ROOM)
    return ids[:n].copy() if n >= 0 else None


def _exponentials(x: F64 | F32, temperature: float, out: F64) -> float | None:
    """``out`` (V,) gets e^y for y = (x - max x) / temperature, right to about y 2^-52 of themselves, 0 below e^-708;
    their sum. None: not compiled, or x is not made of numbers.
    """
    library = _ready()
    if library is None:
        return None
    x, total = _whole(x), ctypes.c_double()
    fine = library.wager_exponentials(*_row(x), _steep(temperature), out.ctypes.data, ctypes.byref(total))
    return total.value if fine else None


def _sums(x: F64 | F32, temperature: float) -> Sums | None:
    """``sums`` of a row. None: not compiled, or x is not made of numbers."""
    library = _ready()
    if library is None:
        return None
    x, parts, found = _whole(x), np.empty(-(-len(x) // PART)), (ctypes.c_double * 3)()
    fine = library.wager_sums(*_row(x), _steep(temperature), parts.ctypes.data, found)
    return Sums(found[2], found[0], found[1], parts) if fine else None


def _whole(x: F64 | F32) -> F64 | F32:
    return x if x.flags.c_contiguous else x.copy()


def _row(x: F64 | F32) -> tuple[int, bool, int]:
    """How libraries are told of a row, which must outlive the call."""
    return x.ctypes.data, x.dtype == np.float64, len(x)


def _largest(x: F64 | F32, k: int) -> I64 | None:
    """Ids (k,) of the k largest values of x (V,), best first; equal ones by lowest id. None: not compiled."""
    library = _ready()
    if library is None:
        return None
    x, ids = _whole(x), np.empty(k, np.int64)
    n = library.wager_largest(*_row(x), k, ids.ctypes.data)
    return ids[:n]


def _steep(temperature: float) -> float:
    return min(1 / max(temperature, 1 / _STEEPEST), _STEEPEST)


@cache
def _ready() -> ctypes.CDLL | None:
    """The library, looked for once a process: that takes longer than what it does."""
    try:
        return _library(compiled(CODE, check=_check))
    except WagerError:
        return None


def _check(path: Path) -> None:
    """Raises WagerError where a library just loaded does not compute what it should."""
    x = np.linspace(-800, 3, _N_CHECKED)
    out, total, library = np.empty(len(x)), ctypes.c_double(), _library(path)
    library.wager_exponentials(*_row(x), 1.0, out.ctypes.data, ctypes.byref(total))
    expected = np.where(x - 3 > -708, np.exp(x - 3), 0)
    near = np.allclose(out, expected, rtol=1e-13, atol=0) and np.isclose(total.value, expected.sum(), rtol=1e-12)
    parts, found = np.empty(len(_starts(len(x)))), (ctypes.c_double * 3)()
    library.wager_sums(*_row(x), 1.0, parts.ctypes.data, found)
    near = near and np.allclose(parts, np.add.reduceat(expected, _starts(len(x))), rtol=1e-5, atol=1e-36)
    if not near:
        raise WagerError(f"`{path}` computes exponentials wrongly: name another compiler in CXX")


@cache
def _library(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    row: list[Any] = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_int64]
    to: list[Any] = [ctypes.c_double, ctypes.c_void_p, ctypes.POINTER(ctypes.c_double)]
    for name in ("wager_exponentials", "wager_sums"):
        function = getattr(found, name)
        function.argtypes, function.restype = [*row, *to], ctypes.c_bool
    numbers: list[Any] = [ctypes.c_uint64, ctypes.c_double, ctypes.c_double]
    found.wager_shortlist.argtypes = [*row, *numbers, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.wager_shortlist.restype = ctypes.c_int64
    found.wager_largest.argtypes = [*row, ctypes.c_int64, ctypes.c_void_p]
    found.wager_largest.restype = ctypes.c_int64
    return found


class _Desk(threading.local):
    """Room to work in, of one thread: to ask the system for it anew costs more than the work."""

    def __init__(self) -> None:
        self.bounds = np.empty(0, np.float32)
        self.ids = np.empty(_ROOM, np.int64)

    def room(self, n: int) -> tuple[F32, I64]:
        if len(self.bounds) < n:
            self.bounds = np.empty(n, np.float32)
        return self.bounds, self.ids


_DESK = _Desk()
