"""Known answers: a library that computes them wrongly is not used. Milliseconds, once a process."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as op

from wager.models.kernels.build import Kernels
from wager.models.kernels.passes import BLOCK, GROUP, U8, Packed, aligned, layout_of
from wager.types import F32, Batch

_MOST_ROWS = 14  # more than are multiplied in one pass
_OUTPUTS, _GROUPS = 32, 2
_HEADS, _KV_HEADS, _SIZE, _WINDOW, _SCALE = 6, 2, 80, 40, 0.3
_N, _N_TREE = 70, 9  # positions, and how many of them are fed as a tree
_NEAR = 1e-4


def fault(kernels: Kernels) -> str | None:
    """What the library computes wrongly; None: nothing."""
    rng = np.random.default_rng(0)
    for bits in (4, 8):
        for offsets in (False, True):
            for half in (False, True):
                if not _multiplies(kernels, rng, bits=bits, offsets=offsets, half=half):
                    return f"products with {bits}-bit weights"
    if not _gates(kernels):
        return "gated products"
    return None if all(_attends(kernels, rng, window) for window in (0, _WINDOW)) else "attention"


def _multiplies(kernels: Kernels, rng: np.random.Generator, *, bits: int, offsets: bool, half: bool) -> bool:
    """Whole numbers that are their own rounding, by scales that are powers of two: the product is exact."""
    shape = (_OUTPUTS, _GROUPS)
    codes = rng.integers(0, 1 << bits, (*shape, GROUP)).astype(np.uint8)
    scale = (2.0 ** rng.integers(0, 2, shape)).astype(np.float32)
    offset = scale * rng.integers(-9, 10, shape).astype(np.float32) if offsets else None
    weights = codes * scale[..., None] + (-(1 << (bits - 1)) * scale if offset is None else offset)[..., None]
    x = rng.integers(-127, 128, (_MOST_ROWS, _GROUPS, GROUP)).astype(np.float32)
    x[..., 0] = 127
    x = x.reshape(_MOST_ROWS, -1)
    expected = x @ weights.reshape(_OUTPUTS, -1).T
    packed = _packed(kernels, codes, scale, offset, bits=bits, half=half)
    product = _product(kernels, packed, x.shape[1], gated=False)
    return all(np.array_equal(_run(product, x[:n]), expected[:n]) for n in range(1, _MOST_ROWS + 1))


def _gates(kernels: Kernels) -> bool:
    """Equal gates, and factors of one, times weights of one: as often silu(gate) as there are inputs."""
    cols = _GROUPS * GROUP
    codes = np.full((_OUTPUTS, _GROUPS, GROUP), 129, np.uint8)
    packed = _packed(kernels, codes, np.ones((_OUTPUTS, _GROUPS), np.float32), None, bits=8, half=True)
    gates = np.linspace(-20, 20, 41, dtype=np.float32)[:, None]
    x = np.concatenate([np.repeat(gates, cols, 1), np.ones((len(gates), cols), np.float32)], 1)
    found = _run(_product(kernels, packed, 2 * cols, gated=True), x)
    return bool(np.allclose(found, cols * gates / (1 + np.exp(-gates)), rtol=1e-5, atol=0))


def _attends(kernels: Kernels, rng: np.random.Generator, window: int) -> bool:
    """A chain against numpy, and its last rows, fed as a tree without branches, against themselves."""
    widths = (_HEADS * _SIZE, _KV_HEADS * _SIZE, _KV_HEADS * _SIZE)
    q, k, v = (rng.normal(size=(_N, width)).astype(np.float16).astype(np.float32) for width in widths)
    caches = [np.full((_N // BLOCK + 1, _KV_HEADS, BLOCK, 2 * _SIZE), 0xFF, np.uint8) for _ in "kv"]  # NaN
    layer = _attention(kernels, caches, window)
    chain = _run(layer, q, k, v, _layout(0, _N, None))
    last = slice(_N - _N_TREE, None)
    mask = np.tri(_N_TREE, dtype=np.uint8)
    tree = _run(layer, q[last], k[last], v[last], _layout(_N - _N_TREE, _N_TREE, mask))
    near = np.abs(chain - _expected(q, k, v, window)).max() < _NEAR
    return bool(near and np.array_equal(tree, chain[last]))


def _expected(q: F32, k: F32, v: F32, window: int) -> F32:
    queries = q.reshape(_N, _KV_HEADS, -1, _SIZE)
    keys, values = (x.reshape(_N, _KV_HEADS, _SIZE) for x in (k, v))
    scores = np.einsum("qhgd,khd->hgqk", queries, keys) * np.float32(_SCALE)
    sees = np.tri(_N, dtype=bool) & (~np.tri(_N, k=-window, dtype=bool) if window else True)
    weights = np.where(sees, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    out: F32 = np.einsum("hgqk,khd->qhgd", weights / weights.sum(-1, keepdims=True), values).reshape(_N, -1)
    return out


def _packed(kernels: Kernels, codes: U8, scale: F32, offset: F32 | None, *, bits: int, half: bool) -> Packed:
    n_numbers = 1 if offset is None else 2
    data = aligned(scale.size * (GROUP * bits // 8 + n_numbers * (2 if half else 4)))
    kernels.pack(codes, scale, offset, bits=bits, half=half, to=data)
    return Packed(data, len(codes), bits, n_numbers == 2, half)


def _product(kernels: Kernels, packed: Packed, width: int, *, gated: bool) -> Any:
    x = op.parameter([-1, width], np.float32)
    node = kernels.make("WagerProduct", [x.output(0)], {**packed.attributes, "gated": int(gated)})
    return ov.Model([node.output(0)], [x]), packed  # which must live as long


def _attention(kernels: Kernels, caches: list[U8], window: int) -> Any:
    widths = (_HEADS * _SIZE, _KV_HEADS * _SIZE, _KV_HEADS * _SIZE)
    inputs = [*(op.parameter([-1, width], np.float32) for width in widths), op.parameter([-1], np.int32)]
    shape = {"heads": _HEADS, "kv_heads": _KV_HEADS, "size": _SIZE, "window": window, "scale": _SCALE}
    keys, values = (int(cache.ctypes.data) for cache in caches)
    about = {**shape, "keys": keys, "values": values}
    node = kernels.make("WagerAttention", [parameter.output(0) for parameter in inputs], about)
    return ov.Model([node.output(0)], inputs), caches


def _layout(past: int, n: int, mask: U8 | None) -> npt.NDArray[np.int32]:
    n_blocks = _N // BLOCK + 1
    none = np.zeros(0, np.int64)
    batch = Batch(
        tokens=none,
        positions=none,
        past=np.array([past], np.int32),
        starts=np.array([0, n], np.int32),
        blocks=np.arange(n_blocks, dtype=np.int32)[::-1],
        block_starts=np.array([0, n_blocks], np.int32),
        rows=none,
        masks=(mask,),
    )
    return layout_of(batch)


def _run(model: Any, *inputs: npt.NDArray[Any]) -> F32:
    """One evaluation outside of any plugin: nothing is compiled."""
    made, _ = model
    out = ov.Tensor(ov.Type.f32, ov.Shape([0, 0]))
    outputs = [out]
    made.evaluate(outputs, [ov.Tensor(np.ascontiguousarray(x)) for x in inputs])
    found: F32 = np.array(outputs[0].data)
    return found
