"""How fast this machine reads memory, and what that allows: decoding reads every weight once a token."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from wager.types import JSON

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_REPEATS = 7
_FAR_LARGER = 8  # than the last cache
_LEAST, _MOST = 256 << 20, 2 << 30
_CHUNK = 1 << 20  # bytes a call reads: numpy releases the lock inside


def last_cache_bytes() -> int:
    """Size of the largest cache; 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [path.read_text().strip() for path in _CACHES.glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=0)


def buffer_bytes() -> int:
    """Of a buffer that no cache holds, and that this machine has room for."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(min(max(_FAR_LARGER * last_cache_bytes(), _LEAST), _MOST, available // 4))


def read_rate(n_bytes: int, *, n_threads: int, repeats: int = _REPEATS) -> float:
    """Bytes a second that ``n_threads`` read of a buffer together: the median, after a first read."""
    buffer = np.ones(max(n_bytes, _CHUNK) // 8, np.uint64)
    step = _CHUNK // 8
    chunks = [buffer[i : i + step] for i in range(0, len(buffer), step)]
    with ThreadPoolExecutor(n_threads) as pool:
        seconds = []
        for _ in range(1 + repeats):
            start = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, chunks))
            seconds.append(time.perf_counter() - start)
    return float(buffer.nbytes / np.median(seconds[1:]))


def measure(model_bytes: int, *, n_threads: int) -> JSON:
    """Bytes a second of a buffer that no cache holds, and of one as large as the model's weights."""
    large = buffer_bytes()
    return {
        "n_threads": n_threads,
        "large_bytes": large,
        "large_bytes_per_s": read_rate(large, n_threads=n_threads),
        "model_bytes": model_bytes,
        "model_bytes_per_s": read_rate(model_bytes, n_threads=n_threads),
    }


def roofline(bytes_per_s: float, *, weight_bytes: int, kv_bytes_per_token: int, context: int) -> float:
    """Tokens a second that plain decoding cannot exceed: every weight and the whole K/V are read once a token."""
    return bytes_per_s / (weight_bytes + kv_bytes_per_token * context)
