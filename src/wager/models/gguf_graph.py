"""A stateful OpenVINO graph for a llama-family GGUF: few nodes, in the shapes the CPU plugin fuses.

One product for q/k/v and one for gate/up (where their forms agree), RMS normalisation and rotary embedding as the
plugin's matchers know them, attention as ``ScaledDotProductAttention`` over ReadValue → Gather(beam_idx) → Concat →
Assign, which ``paged_attention_transformation`` turns into paged attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo

from wager.models.gguf_read import Shape, Special
from wager.models.weights import GROUP, I8, REFERENCE_FORM, Stored
from wager.types import F32

Value = Any  # an ov.Node with one output, or an ov.Output
Step = Callable[[str, int, int], None]
_LARGE_NEGATIVE = np.float32(np.finfo(np.float32).min)  # not -inf: a row that sees nothing must stay finite

_SMALL = 16  # numbers: shapes, axes, scalars


class Weights(Protocol):
    """Where the graph's numbers come from: ``gguf_read.Source``, or ``random_ir.RandomWeights``."""

    @property
    def architecture(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def special(self) -> Special: ...

    def stored(self, names: list[str], rows: list[int], cols: int, form: str, *, gathered: bool) -> list[Stored]:
        """The matrices as one (rows of all), or one each where their forms differ. ``gathered``: rows are looked up."""
        ...

    def vector(self, name: str, size: int) -> F32:
        """(size,) the gain of a norm."""
        ...

    def bias(self, name: str, size: int) -> F32 | None:
        """(size,) in the order of the matrix's rows; None where there is none."""
        ...


def build(source: Weights, form: str, step: Step) -> tuple[ov.Model, Counter[str]]:
    """The model, and how many matrices became which form. ``step(what, done, total)`` is told the progress."""
    builder = _Builder(source, form)
    shape = source.shape
    params = _inputs()
    ids, mask, positions, beam = params
    step("weights", 0, shape.n_layers + 1)
    embedding = builder.decompressed(builder.stored(["token_embd.weight"], [shape.vocab], shape.hidden, gathered=True))
    x = op.gather(embedding, ids, _i64(0))
    if shape.is_gemma:
        x = op.multiply(x, op.constant(np.float32(shape.embedding_scale)))
    views = [_View(*_rotations(positions, shape.inv_freq), _causal_mask(ids, mask))]
    if shape.local_inv_freq is not None:
        views.append(_View(*_rotations(positions, shape.local_inv_freq), _window_mask(ids, mask, shape.window)))
    context = _Attention(builder, views, beam, _empty_cache(ids, shape.n_kv_heads, shape.head_dim))
    for layer in range(shape.n_layers):
        norm = partial(builder.layer_norm, layer)
        x = op.add(x, norm(context.attend(layer, norm(x, "attn_norm")), "post_attention_norm"))
        x = op.add(x, norm(_mlp(builder, layer, norm(x, "ffn_norm")), "post_ffw_norm"))
        step("weights", layer + 1, shape.n_layers + 1)
    x = builder.norm(x, "output_norm.weight", shape.hidden)
    if shape.tied:
        logits = op.matmul(x, embedding, False, True)
    else:
        logits = builder.product(x, builder.stored(["output.weight"], [shape.vocab], shape.hidden))
    logits = _named(logits, "logits")
    logits.output(0).set_names({"logits"})
    step("weights", shape.n_layers + 1, shape.n_layers + 1)
    model = ov.Model([op.result(logits)], context.sinks, params, source.architecture)
    _share_constants(model)
    return model, builder.forms


class _Builder:
    """Reads matrices of one source in one form and makes nodes of them. Counts the forms used."""

    def __init__(self, source: Weights, form: str) -> None:
        self.source, self.form = source, form
        self.forms: Counter[str] = Counter()

    def stored(self, names: list[str], rows: list[int], cols: int, *, gathered: bool = False) -> list[Stored]:
        parts = self.source.stored(names, rows, cols, self.form, gathered=gathered)
        for part in parts:
            self.forms[part.form] += 1
        return parts

    def decompressed(self, parts: list[Stored]) -> Value:
        (part,) = parts
        return _matrix(part)

    def product(self, x: Value, parts: list[Stored]) -> Value:
        """x @ W.T for (joined) matrices: (B, n, rows of all)."""
        results = []
        for part in parts:
            y = op.matmul(x, _matrix(part), False, True)
            if part.offset is not None:
                sums = op.reduce_sum(op.reshape(x, _i64s(0, 0, part.cols // GROUP, GROUP), True), _i64s(3), False)
                y = op.add(y, op.matmul(sums, op.constant(part.offset), False, True))
            results.append(y)
        return results[0] if len(results) == 1 else op.concat(results, -1)

    def biased(self, y: Value, names: list[str], rows: list[int]) -> Value:
        """y + biases, where there are any."""
        parts = [self.source.bias(name, n) for name, n in zip(names, rows, strict=True)]
        if all(part is None for part in parts):
            return y
        filled = [np.zeros(n, np.float32) if part is None else part for part, n in zip(parts, rows, strict=True)]
        return op.add(y, op.constant(np.concatenate(filled).reshape(1, 1, -1)))

    def layer_norm(self, layer: int, x: Value, part: str) -> Value:
        """``norm`` with a layer's gain, where models of this kind have one."""
        name = f"blk.{layer}.{part}.weight"
        wanted = self.source.shape.is_gemma or not part.startswith("post_")
        return self.norm(x, name, self.source.shape.hidden) if wanted else x

    def norm(self, x: Value, name: str, size: int) -> Value:
        """x / sqrt(mean(x²) + eps) * gain over the last axis."""
        gain = self.source.vector(name, size)
        mean = op.reduce_mean(op.power(x, op.constant(np.float32(2))), _i64s(-1), True)
        root = op.sqrt(op.add(mean, op.constant(np.float32(self.source.shape.eps))))
        return op.multiply(op.multiply(x, op.divide(op.constant(np.float32(1)), root)), op.constant(gain))


class _View(NamedTuple):
    """Rotations (B, 1, n, head_dim) and mask (B, 1, n, total) of the layers that see the same part of the text."""

    cos: Value
    sin: Value
    mask: Value


class _Attention:
    """Self-attention of all layers: shares rotations, masks and the empty cache; collects the Assign nodes.

    ``views``: of the layers that see the whole text, then of those with a window.
    """

    def __init__(self, builder: _Builder, views: list[_View], beam: Value, empty: Value) -> None:
        self._builder, self._views = builder, views
        self._beam, self._empty = beam, empty
        self.sinks: list[Any] = []

    def attend(self, layer: int, x: Value) -> Value:
        """(B, n, hidden) normalised input to the layer's attention output, same shape."""
        builder, shape = self._builder, self._builder.source.shape
        widths = [shape.n_heads * shape.head_dim, *[shape.n_kv_heads * shape.head_dim] * 2]
        names = [f"blk.{layer}.attn_{part}" for part in "qkv"]
        y = builder.product(x, builder.stored([f"{n}.weight" for n in names], widths, shape.hidden))
        y = _named(builder.biased(y, [f"{n}.bias" for n in names], widths), f"layer.{layer}.qkv")
        q, k, v = op.variadic_split(y, _i64(-1), _i64s(*widths)).outputs()
        view = self._views[shape.is_local(layer)]
        q = self._rotated(self._heads(q, shape.n_heads, layer, "q"), view)
        k = self._rotated(self._heads(k, shape.n_kv_heads, layer, "k"), view)
        v = self._heads(v, shape.n_kv_heads, layer, "v")
        keys = self._cached(k, f"past_key_values.{layer}.keypresent.{layer}.key")
        values = self._cached(v, f"past_key_values.{layer}.valuepresent.{layer}.value")
        attended = op.scaled_dot_product_attention(q, keys, values, view.mask)
        flat = op.reshape(op.transpose(attended, _i64s(0, 2, 1, 3)), _i64s(0, 0, widths[0]), True)
        y = builder.product(flat, builder.stored([f"blk.{layer}.attn_output.weight"], [shape.hidden], widths[0]))
        return builder.biased(y, [f"blk.{layer}.attn_output.bias"], [shape.hidden])

    def _heads(self, x: Value, n_heads: int, layer: int, part: str) -> Value:
        """(B, n, heads * head_dim) to (B, heads, n, head_dim), normalised per head in qwen3 and gemma3."""
        head_dim = self._builder.source.shape.head_dim
        x = op.reshape(x, _i64s(0, 0, n_heads, head_dim), True)
        if part != "v" and self._builder.source.shape.head_norms:
            x = self._builder.norm(x, f"blk.{layer}.attn_{part}_norm.weight", head_dim)
        return op.transpose(x, _i64s(0, 2, 1, 3))

    def _rotated(self, x: Value, view: _View) -> Value:
        half = self._builder.source.shape.head_dim // 2
        first, second = op.variadic_split(x, _i64(3), _i64s(half, half)).outputs()
        turned = op.concat([op.multiply(second, op.constant(np.full((1, 1, 1, 1), -1, np.float32))), first], -1)
        return op.add(op.multiply(x, view.cos), op.multiply(turned, view.sin))

    def _cached(self, new: Value, name: str) -> Value:
        """Past and new rows, (B, heads, past + n, head_dim), repeated for grouped-query attention."""
        shape = self._builder.source.shape
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, shape.n_kv_heads, -1, shape.head_dim])
        info.data_type = ov.Type.f32
        info.variable_id = name
        variable = Variable(info)
        past = op.gather(ov.op.read_value(self._empty, variable), self._beam, _i64(0))
        rows = op.concat([past, new], 2)
        self.sinks.append(ov.op.assign(rows, variable))
        repeats = shape.n_heads // shape.n_kv_heads
        if repeats == 1:
            return rows
        each = op.broadcast(op.unsqueeze(rows, _i64(2)), _i64s(1, 1, repeats, 1, 1), broadcast_spec="BIDIRECTIONAL")
        return op.reshape(each, _i64s(0, shape.n_heads, -1, shape.head_dim), True)


def _mlp(builder: _Builder, layer: int, x: Value) -> Value:
    shape = builder.source.shape
    names = [f"blk.{layer}.ffn_gate.weight", f"blk.{layer}.ffn_up.weight"]
    y = _named(builder.product(x, builder.stored(names, [shape.ffn] * 2, shape.hidden)), f"layer.{layer}.gate_up")
    gate, up = op.variadic_split(y, _i64(-1), _i64s(shape.ffn, shape.ffn)).outputs()
    inner = op.multiply(op.gelu(gate, "tanh") if shape.is_gemma else op.swish(gate), up)
    return builder.product(inner, builder.stored([f"blk.{layer}.ffn_down.weight"], [shape.hidden], shape.ffn))


def _inputs() -> list[Any]:
    names = {"input_ids": [-1, -1], "attention_mask": [-1, -1], "position_ids": [-1, -1], "beam_idx": [-1]}
    params = []
    for name, shape in names.items():
        param = op.parameter(shape, np.int32 if name == "beam_idx" else np.int64, name=name)
        param.output(0).set_names({name})
        params.append(param)
    return params


def _rotations(positions: Value, inv_freq: F32) -> tuple[Value, Value]:
    """cos and sin (B, 1, n, head_dim) of position * inv_freq, both halves alike."""
    moments = op.convert(op.unsqueeze(positions, _i64s(2)), "f32")
    angles = op.multiply(moments, op.constant(inv_freq.reshape(1, 1, -1)))
    angles = op.concat([angles, angles], -1)
    return op.unsqueeze(op.cos(angles), _i64s(1)), op.unsqueeze(op.sin(angles), _i64s(1))


def _causal_mask(ids: Value, mask: Value) -> Value:
    """(B, 1, n, total): 0 where row total - n + i sees column j <= it that is not padding, else very negative."""
    rows, columns, real = _places(ids, mask)
    seen = op.logical_and(op.less_equal(columns, rows), real)
    return op.select(seen, op.constant(np.float32(0)), op.constant(_LARGE_NEGATIVE))


def _window_mask(ids: Value, mask: Value, window: int) -> Value:
    """``_causal_mask`` for rows that see ``window`` columns, their own the last one.

    Spelled, with conditions that always hold, as the export of gpt-oss is: ``paged_attention_transformation`` knows no
    other form, and would drop the window without a word.
    """
    rows, columns, real = _places(ids, mask)
    always = op.constant(np.array(True))
    near = op.bitwise_and(always, op.greater(columns, op.add(rows, _i64(-window))))
    near_and_causal = op.bitwise_and(near, op.less_equal(columns, rows))
    seen = op.bitwise_and(op.bitwise_and(always, near_and_causal), real)
    total = op.shape_of(mask)
    n = op.gather(op.shape_of(ids), _i64s(1), _i64(0))
    batch, length = (op.gather(total, _i64s(i), _i64(0)) for i in (0, 1))
    seen = op.broadcast(seen, op.concat([batch, _i64s(1), n, length], 0))
    chosen = op.select(seen, op.constant(np.float32(0)), op.constant(_LARGE_NEGATIVE))
    return op.slice(chosen, _i64s(0), length, _i64s(1), _i64s(3))


def _places(ids: Value, mask: Value) -> tuple[Value, Value, Value]:
    """Positions in the cache of rows (n, 1) and of columns (total,), and which columns (B, 1, 1, total) are real."""
    total = op.gather(op.shape_of(mask), _i64(1), _i64(0))
    n = op.gather(op.shape_of(ids), _i64(1), _i64(0))
    columns = op.range(_i64(0), total, _i64(1), "i64")
    rows = op.unsqueeze(op.range(op.subtract(total, n), total, _i64(1), "i64"), _i64s(1))
    return rows, columns, op.unsqueeze(op.not_equal(mask, _i64(0)), _i64s(1, 2))


def _empty_cache(ids: Value, n_heads: int, head_dim: int) -> Value:
    batch = op.gather(op.shape_of(ids), _i64s(0), _i64(0))
    return op.broadcast(op.constant(np.float32(0)), op.concat([batch, _i64s(n_heads, 0, head_dim)], 0))


def _matrix(part: Stored) -> Value:
    """A node of float32 (rows, cols) that the plugin recognises as compressed weights."""
    if part.kind == REFERENCE_FORM:
        return op.constant(part.codes)
    if part.kind == "f16":
        return op.convert(op.constant(part.codes), "f32")
    assert part.scale is not None
    value = op.convert(_int8(part, part.codes) if part.kind == "i8" else _nibble_constant(part), "f32")
    if part.zero is not None:
        value = op.subtract(value, op.constant(part.zero))
    n = part.scale.shape[1]
    if n == 1 and part.kind == "i8":  # one group per row needs no third axis
        flat = op.convert(_int8(part, part.codes.reshape(part.rows, part.cols)), "f32")
        return op.multiply(flat, op.constant(part.scale.reshape(part.rows, 1), shared_memory=part.kept))
    return op.reshape(
        op.multiply(value, op.constant(part.scale, shared_memory=part.kept)), _i64s(part.rows, part.cols), False
    )


def _int8(part: Stored, codes: I8) -> Value:
    return op.constant(codes, shared_memory=part.kept)


def _nibble_constant(part: Stored) -> Value:
    rows, n, n_bytes = part.codes.shape
    kind, shape = ov.Type.i4 if part.kind == "i4" else ov.Type.u4, ov.Shape([rows, n, 2 * n_bytes])
    return ov.op.Constant(ov.Tensor(np.ascontiguousarray(part.codes), shape, kind), shared_memory=part.kept)


def _share_constants(model: ov.Model) -> None:
    """Equal small constants become one node: a third fewer nodes, which is what compiling pays for."""
    first: dict[tuple[str, tuple[int, ...], bytes], Any] = {}
    for node in model.get_ordered_ops():
        for port in node.inputs():
            constant = port.get_source_output().get_node()
            if constant.get_type_name() == "Constant" and constant.data.size <= _SMALL:
                key = (str(constant.get_element_type()), tuple(constant.get_output_shape(0)), constant.data.tobytes())
                port.replace_source_output(first.setdefault(key, constant).output(0))


def _i64(value: int) -> Value:
    return op.constant(np.int64(value))


def _i64s(*values: int) -> Value:
    return op.constant(np.array(values, np.int64))


def _named(node: Value, name: str) -> Value:
    node.set_friendly_name(name)
    return node
