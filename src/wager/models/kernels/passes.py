"""Graph passes that put our kernels in the place of products with quantised weights and of paged attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as op

from wager.models.graph import ROWS, products_with_weights, stored_weights
from wager.models.kernels.build import Kernels
from wager.types import F32, I32, Batch

LAYOUT = "layout"
TILE, GROUP, BLOCK = 16, 32, 32  # as in product.hpp and attention.hpp
_REPLACED = (
    *("past_lens", "subsequence_begins", "block_indices", "block_indices_begins", "max_context_len"),
    *("qq_bias", "qq_bias_begins"),
)
_MOST_SIZE = 256  # of an attention head
_LARGEST_HALF, _SMALLEST_HALF = 65504.0, 2.0**-14  # that keep all bits of half precision

U8 = npt.NDArray[np.uint8]
Stored = tuple[str, int]


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


def own_products(model: ov.Model, kernels: Kernels, packed: dict[Stored, Packed], in_use: I32 | None = None) -> int:
    """Replace products with int8 or int4 weights, in groups of a multiple of 32 inputs or per row; how many.

    ``packed`` holds the weights for all graphs of a model, by name of their product, which need not be its alone, and
    by address of their codes, which clones share; it must live as long as they do. What has another form stays with
    the plugin. ``in_use`` (2,) i32, if given, lives as long, too: of the rows of a graph, and of those that logits are
    asked for, no more than it says are computed.
    """
    count = 0
    for node in products_with_weights(model):
        if any(t.get_element_type() != ov.Type.f32 for t in (node.input_value(0), node.output(0))):
            continue
        stored = node.get_friendly_name(), int(stored_weights(node).get_tensor_view().data.ctypes.data)
        if stored not in packed:
            found = _read(node.input_value(1))
            if found is None:
                continue
            packed[stored] = _pack(found, kernels)
        gated = _gated(node.input_value(0))
        source = node.input_value(0) if gated is None else gated
        rows = 0 if in_use is None else int(in_use[int(_is_of_wanted(node.input_value(0))) :].ctypes.data)
        about = {**packed[stored].attributes, "gated": int(gated is not None), "in_use": rows}
        made = kernels.make("WagerProduct", [source], about)
        _replace(node, made)
        count += 1
    model.validate_nodes_and_infer_types()
    return count


def cache_shapes(model: ov.Model) -> dict[str, list[int]]:
    """Of a block of every K/V input of a paged graph, in bytes that hold f16: (heads, 32, 2 * size).

    Empty where there is an attention that the kernel cannot do.
    """
    found = {}
    for node in _attentions(model):
        shape = _head_shape(node)
        if shape is None:
            return {}
        for cache in node.input_values()[3:5]:
            found[cache.get_any_name()] = [shape["kv_heads"], BLOCK, 2 * shape["size"]]
    return found


def own_attention(model: ov.Model, kernels: Kernels, caches: Mapping[str, int]) -> int:
    """Replace paged attention by ours over K/V at the addresses ``caches``, by name of their input; how many layers.

    K/V are no inputs any more, and one input ``layout`` (``layout_of``) takes the place of those that tell where
    sequences start and lie. Their shapes are ``cache_shapes``.
    """
    layout = op.parameter([-1], np.int32, name=LAYOUT)
    layout.output(0).set_names({LAYOUT})
    model.add_parameters([layout])
    nodes = _attentions(model)
    for node in nodes:
        shape, inputs = _head_shape(node), node.input_values()
        assert shape is not None
        at = {kind: caches[inputs[i].get_any_name()] for i, kind in ((3, "keys"), (4, "values"))}
        _replace(node, kernels.make("WagerAttention", [*inputs[:3], layout.output(0)], {**shape, **at}))
    model.validate_nodes_and_infer_types()
    for parameter in list(model.get_parameters()):
        if parameter.output(0).get_any_name() in (*_REPLACED, *caches):
            model.remove_parameter(parameter)
    return len(nodes)


def layout_of(batch: Batch, size: int | None = None) -> I32:
    """What the attention kernel has to know of a batch (``Layout`` in ops.cpp), padded to ``size`` if that holds it."""
    bits, ends = flat_masks(batch)
    bits = np.concatenate([bits, np.zeros(-len(bits) % 4, np.uint8)]).view(np.int32)
    parts = ([len(batch.past)], batch.past, batch.starts, batch.block_starts, ends, batch.blocks, bits)
    whole = np.concatenate([np.asarray(part, np.int32) for part in parts])
    return np.concatenate([whole, np.zeros(max(0, (size or 0) - len(whole)), np.int32)])


def flat_masks(batch: Batch) -> tuple[U8, I32]:
    """The masks of all subsequences behind each other, and where each starts (B + 1,); none takes no room."""
    masks = batch.masks or (None,) * len(batch.past)
    flat = [np.zeros(0, np.uint8) if m is None else m.reshape(-1) for m in masks]
    return np.concatenate(flat), np.cumsum([0, *(len(m) for m in flat)], dtype=np.int32)


def _is_of_wanted(output: Any) -> bool:
    """Whether it holds the rows that logits are asked for, instead of all."""
    node = output.get_node()
    return node.get_type_name() == "Gather" and ROWS in node.input_value(1).get_names()


def _gated(output: Any) -> Any | None:
    """What is split into x and y where ``output`` is silu(x) * y, two equal halves; None where it is anything else."""
    node = output.get_node()
    if node.get_type_name() != "Multiply":
        return None
    swish, up = node.input_values()[0].get_node(), node.input_value(1)
    if swish.get_type_name() != "Swish" or any(_number(beta) != 1 for beta in swish.input_values()[1:]):
        return None
    gate, split = swish.input_value(0), up.get_node()
    if split.get_type_name() != "VariadicSplit" or gate.get_node().get_name() != split.get_name():
        return None
    last = _number(split.input_value(1)) in (-1, len(up.get_partial_shape()) - 1)
    equal = len(split.outputs()) == 2 and gate.get_partial_shape()[-1] == up.get_partial_shape()[-1]
    in_order = (gate.get_index(), up.get_index()) == (0, 1)
    return split.input_value(0) if last and equal and in_order else None


def _number(output: Any) -> float | None:
    """A constant of one number."""
    value = _value(output)
    return None if value is None or value.size != 1 else float(value.reshape(-1)[0])


def _attentions(model: ov.Model) -> list[Any]:
    return [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]


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
    size = shape[-1]
    if shape[0] != rows or rows % TILE or cols % GROUP or size % GROUP:
        return None
    if not all(_is_per_group(x, shape) for x in (scale, zero) if x is not None):
        return None
    stored = _unpacked(node) if kind in ("u4", "i4") else node.get_tensor_view().data.view(np.uint8)
    scale = _per_group(scale, rows, cols, size)
    offset = None if zero is None else -_per_group(zero, rows, cols, size) * scale
    return _Weights(np.ascontiguousarray(stored).reshape(rows, -1, GROUP), kind, scale, offset)


def _is_per_group(values: npt.NDArray[Any], shape: list[int]) -> bool:
    """Whether they are the same for all inputs of a group of codes of that shape: (rows, cols) or (rows, n, size)."""
    return values.size == 1 or (values.ndim == len(shape) and values.shape[-1] == 1)


def _per_group(values: npt.NDArray[Any], rows: int, cols: int, size: int) -> F32:
    """One value for each 32 inputs (rows, cols / 32) of values that a row's ``size`` inputs share."""
    by_row = values.astype(np.float32).reshape(values.shape[0] if values.ndim else 1, -1)
    wide = np.broadcast_to(by_row, (rows, cols // size))
    return np.repeat(wide, size // GROUP, axis=1)


def _pack(weights: _Weights, kernels: Kernels) -> Packed:
    codes, scale, offset, estimated = weights.codes, weights.scale, weights.offset, False
    bits = 4 if weights.kind in ("u4", "i4") else 8
    if weights.kind == "i8" and offset is None and (found := kernels.levels(codes.view(np.int8))) is not None:
        codes, steps, starts = found  # half the bytes to read, and nearer to what was rounded to eight bits
        bits, scale, offset, estimated = 4, scale * steps, scale * starts, True
    elif weights.kind.startswith("i"):  # stored around zero: the kernel's codes are around the middle
        codes = codes ^ np.uint8(1 << (bits - 1))
        offset = None if offset is None else offset - (1 << (bits - 1)) * scale
    elif offset is None:
        offset = np.zeros_like(scale)
    elif np.array_equal(offset, -(1 << (bits - 1)) * scale):
        offset = None
    numbers = [scale] if offset is None else [scale, offset if estimated else _as_stored(offset)]
    half = all(_fits_half(x, exactly=not estimated) for x in numbers)
    rows, n, _ = codes.shape
    data = aligned(rows * n * (GROUP * bits // 8 + len(numbers) * (2 if half else 4)))
    kept = [np.ascontiguousarray(x, np.float32) for x in numbers]
    kernels.pack(
        np.ascontiguousarray(codes), kept[0], kept[1] if len(kept) == 2 else None, bits=bits, half=half, to=data
    )
    return Packed(data, rows, bits, len(numbers) == 2, half)


def _fits_half(values: F32, *, exactly: bool) -> bool:
    """Whether half precision holds them, or rounds them by no more than its last bit."""
    size = np.abs(values)
    if exactly:
        return bool(
            size.max() <= _LARGEST_HALF and np.array_equal(values.astype(np.float16).astype(np.float32), values)
        )
    return bool(size.max() <= _LARGEST_HALF and size[size > 0].min(initial=1) >= _SMALLEST_HALF)


def _as_stored(offset: F32) -> F32:
    """Offsets that came from half precision, by way of a zero point and a scale, as they were."""
    with np.errstate(over="ignore"):
        half = offset.astype(np.float16).astype(np.float32)
    return half if np.allclose(half, offset, rtol=1e-6, atol=0) else offset


def aligned(n_bytes: int) -> U8:
    """Memory that starts at a cache line."""
    room = np.empty(n_bytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + n_bytes]
