"""Graph passes that put our kernels in the place of products with quantised weights and of paged attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as op

from wager.models.graph import products_with_weights
from wager.models.kernels.build import Kernels
from wager.types import F32, I32, Batch

LAYOUT = "layout"
TILE, GROUP, BLOCK = 16, 32, 32  # as in product.hpp and attention.hpp
_REPLACED = (
    *("past_lens", "subsequence_begins", "block_indices", "block_indices_begins", "max_context_len"),
    *("qq_bias", "qq_bias_begins"),
)
_MOST_SIZE = 256  # of an attention head

U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Weights (rows, …) in the order that product.hpp reads: see ``Form`` there. ``data`` starts at a cache line."""

    data: U8
    rows: int
    bits: int
    offsets: bool
    half: bool

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "weights": int(self.data.ctypes.data),
            "rows": self.rows,
            "bits": self.bits,
            "offsets": int(self.offsets),
            "half": int(self.half),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """``w = codes * scale + offset``: codes (rows, n, 32) u8 as they are stored in ``kind``; the others (rows, n)."""

    codes: U8
    kind: str
    scale: F32
    offset: F32 | None


def own_products(model: ov.Model, kernels: Kernels, packed: dict[str, Packed]) -> int:
    """Replace products with int8 or int4 weights, in groups of a multiple of 32 inputs or per row; how many.

    ``packed`` holds the weights by name of their product, for all graphs of a model; it must live as long as they do.
    What has another form stays with the plugin.
    """
    count = 0
    for node in products_with_weights(model):
        if any(t.get_element_type() != ov.Type.f32 for t in (node.input_value(0), node.output(0))):
            continue
        name = node.get_friendly_name()
        if name not in packed:
            found = _read(node.input_value(1))
            if found is None:
                continue
            packed[name] = _pack(found)
        made = kernels.make("WagerProduct", [node.input_value(0)], packed[name].attributes)
        _replace(node, made)
        count += 1
    model.validate_nodes_and_infer_types()
    return count


def own_attention(model: ov.Model, kernels: Kernels) -> int:
    """Replace paged attention, all of it or none; how many layers. K/V become (blocks, heads, 32, 2 * size) u8.

    One input ``layout`` (``layout_of``) takes the place of those that tell where sequences start and lie.
    """
    nodes = [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]
    shapes = [_head_shape(node) for node in nodes]
    if not nodes or any(shape is None for shape in shapes):
        return 0
    layout = op.parameter([-1], np.int32, name=LAYOUT)
    layout.output(0).set_names({LAYOUT})
    model.add_parameters([layout])
    for node, shape in zip(nodes, shapes, strict=True):
        assert shape is not None
        inputs = node.input_values()
        for cache in (inputs[3].get_node(), inputs[4].get_node()):
            cache.set_element_type(ov.Type.u8)
            cache.set_partial_shape(ov.PartialShape([-1, shape["kv_heads"], BLOCK, 2 * shape["size"]]))
        _replace(node, kernels.make("WagerAttention", [*inputs[:5], layout.output(0)], shape))
    model.validate_nodes_and_infer_types()
    for parameter in list(model.get_parameters()):
        if parameter.output(0).get_any_name() in _REPLACED:
            model.remove_parameter(parameter)
    return len(nodes)


def layout_of(batch: Batch, size: int | None = None) -> I32:
    """What the attention kernel has to know of a batch (``Layout`` in ops.cpp), padded to ``size`` if that holds it."""
    masks = batch.masks or (None,) * len(batch.past)
    flat = [np.zeros(0, np.uint8) if m is None else np.asarray(m, np.uint8).reshape(-1) for m in masks]
    ends = np.cumsum([0, *(len(m) for m in flat)])
    bits = np.concatenate(flat)
    bits = np.concatenate([bits, np.zeros(-len(bits) % 4, np.uint8)]).view(np.int32)
    parts = ([len(batch.past)], batch.past, batch.starts, batch.block_starts, ends, batch.blocks, bits)
    whole = np.concatenate([np.asarray(part, np.int32) for part in parts])
    return np.concatenate([whole, np.zeros(max(0, (size or 0) - len(whole)), np.int32)])


def _replace(node: Any, made: Any) -> None:
    made.set_friendly_name(node.get_friendly_name())
    for reader in node.output(0).get_target_inputs():
        reader.replace_source_output(made.output(0))


def _head_shape(node: Any) -> dict[str, Any] | None:
    """Attributes of our kernel for a node of paged attention; None where it cannot do what is asked."""
    inputs, info = node.input_values(), node.get_rt_info()
    sizes = [int(info[name].value) for name in ("num_k_heads", "k_head_size", "v_head_size") if name in info]
    scale, window = (_value(inputs[i]) for i in (9, 10))
    plain = all(i.get_partial_shape().is_static and 0 in list(i.get_shape()) for i in (inputs[11], inputs[20]))
    width = inputs[0].get_partial_shape()[-1]
    if len(sizes) < 3 or scale is None or window is None or not plain or not width.is_static:
        return None
    kv_heads, size, value_size = sizes
    heads = width.get_length() // size
    if size != value_size or size % TILE or size > _MOST_SIZE or heads % kv_heads:
        return None
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "size": size,
        "window": abs(int(window.reshape(-1)[0])),
        "scale": float(scale.reshape(-1)[0]),
    }


def _value(output: Any) -> npt.NDArray[Any] | None:
    """The numbers of a constant, or of what conversions and products make of constants; None if it is none."""
    node, kind = output.get_node(), output.get_node().get_type_name()
    if kind == "Constant":
        element = node.get_element_type().get_type_name()
        if element not in ("u4", "i4"):
            return np.asarray(node.get_tensor_view().data)
        codes = _unpacked(node).astype(np.int8)
        return np.where(codes > 7, codes - 16, codes) if element == "i4" else codes
    if kind not in ("Convert", "Multiply", "Reshape", "Squeeze", "Unsqueeze"):
        return None
    first = _value(node.input_value(0))
    if first is None or kind == "Multiply":
        second = None if first is None else _value(node.input_value(1))
        return None if first is None or second is None else first * second
    return first if kind == "Convert" else first.reshape(node.get_output_shape(0))


def _unpacked(constant: Any) -> U8:
    """Codes of u4 or i4, low nibble first, as they are stored: i4 in two's complement of four bits."""
    raw = np.ascontiguousarray(constant.get_tensor_view().data).view(np.uint8).reshape(-1)
    shape = list(constant.get_output_shape(0))
    return np.stack([raw & 15, raw >> 4], -1).reshape(-1)[: int(np.prod(shape))].reshape(shape)


def _read(output: Any) -> _Weights | None:
    """Weights (rows, cols) behind a product's second input; None for a form that the kernel does not know."""
    rows, cols = output.get_shape()
    node = output.get_node()
    while node.get_type_name() in ("Reshape", "Convert"):
        node = node.input_value(0).get_node()
    if node.get_type_name() != "Multiply":
        return None
    scale = _value(node.input_value(1))
    node = node.input_value(0).get_node()
    zero = None
    if node.get_type_name() == "Subtract":
        zero = _value(node.input_value(1))
        if zero is None:
            return None
        node = node.input_value(0).get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    kind = node.get_element_type().get_type_name()
    if scale is None or node.get_type_name() != "Constant" or kind not in ("u4", "i4", "u8", "i8"):
        return None
    shape = list(node.get_output_shape(0))
    size = shape[2] if len(shape) == 3 else cols
    if rows % TILE or cols % GROUP or size % GROUP:
        return None
    stored = _unpacked(node) if kind in ("u4", "i4") else node.get_tensor_view().data.view(np.uint8)
    scale = _per_group(scale, rows, cols, size)
    offset = None if zero is None else -_per_group(zero, rows, cols, size) * scale
    return _Weights(np.ascontiguousarray(stored).reshape(rows, -1, GROUP), kind, scale, offset)


def _per_group(values: npt.NDArray[Any], rows: int, cols: int, size: int) -> F32:
    """One value for each 32 inputs (rows, cols / 32) of values that a row's ``size`` inputs share."""
    by_row = values.astype(np.float32).reshape(values.shape[0] if values.ndim else 1, -1)
    wide = np.broadcast_to(by_row, (rows, cols // size))
    return np.repeat(wide, size // GROUP, axis=1)


def _pack(weights: _Weights) -> Packed:
    codes, scale, offset = weights.codes, weights.scale, weights.offset
    rows, n, _ = codes.shape
    bits = 4 if weights.kind in ("u4", "i4") else 8
    middle = 1 << (bits - 1)
    if weights.kind.startswith("i"):  # stored around zero: the kernel's codes are around the middle
        codes = (codes ^ np.uint8(middle)).astype(np.uint8)
        offset = None if offset is None else offset - middle * scale
    elif offset is None:
        offset = np.zeros_like(scale)
    elif np.array_equal(offset, -middle * scale):
        offset = None
    tiles: U8 = codes.reshape(rows // TILE, TILE, n, GROUP // 4, 4).transpose(0, 2, 3, 1, 4)
    if bits == 4:
        tiles = (tiles[:, :, : GROUP // 8] | tiles[:, :, GROUP // 8 :] << 4).astype(np.uint8)
    numbers = [scale] if offset is None else [scale, _as_stored(offset)]
    half = all(np.array_equal(x.astype(np.float16).astype(np.float32), x) for x in numbers)
    parts = [np.ascontiguousarray(tiles).reshape(rows // TILE, n, -1)]
    for values in numbers:
        by_tile = values.reshape(rows // TILE, TILE, n).transpose(0, 2, 1)
        kept = np.ascontiguousarray(by_tile.astype(np.float16 if half else np.float32))
        parts.append(kept.view(np.uint8).reshape(rows // TILE, n, -1))
    return Packed(_aligned(np.concatenate(parts, -1)), rows, bits, offset is not None, half)


def _as_stored(offset: F32) -> F32:
    """Offsets that came from half precision, by way of a zero point and a scale, as they were."""
    with np.errstate(over="ignore"):
        half = offset.astype(np.float16).astype(np.float32)
    return half if np.allclose(half, offset, rtol=1e-6, atol=0) else offset


def _aligned(data: U8) -> U8:
    """A copy that starts at a multiple of 64 bytes."""
    room = np.empty(data.size + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + data.size] = data.reshape(-1)
    return room[start : start + data.size]
