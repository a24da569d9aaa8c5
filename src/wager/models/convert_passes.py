"""What conversion does to graphs besides NNCF's part, and what it asks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from wager.errors import ModelError, OptionError
from wager.models.low_bit import folded

_PIECE = 256  # tokens that calibration reads at once
_PIECES = 64  # of a text, at most
_FLOATS = ("f32", "f16", "bf16")
_BITS = {"i8": "int8", "u8": "int8", "i4": "int4", "u4": "int4"}


def matrices(model: ov.Model) -> Iterator[tuple[Any, Any, Any]]:
    """(port that reads it, its float node, its Constant) of every matrix of products and look-ups."""
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind not in ("MatMul", "Gather"):
            continue
        port = node.input(1 if kind == "MatMul" else 0)
        value = port.get_source_output().get_node()
        constant = value
        while constant.get_type_name() in ("Convert", "Subtract", "Multiply", "Reshape"):
            constant = constant.input_value(0).get_node()
        shape = port.get_partial_shape()
        if constant.get_type_name() == "Constant" and len(shape) == 2 and port.get_element_type().is_real():
            yield port, value, constant


def forms(model: ov.Model) -> Counter[str]:
    """How many matrices have which form: f32, f16, int8-channel, int4-64, …; one that is read twice counts once."""
    seen: dict[str, str] = {}
    for _, _, constant in matrices(model):
        kind, shape = constant.get_element_type().get_type_name(), list(constant.get_output_shape(0))
        bits = _BITS.get(kind)
        group = f"-{shape[2]}" if len(shape) == 3 else "-channel"
        seen[constant.get_name()] = kind if bits is None else bits + group
    return Counter(seen.values())


def is_full_precision(model: ov.Model) -> bool:
    return all(form in _FLOATS for form in forms(model))


def to_f16(model: ov.Model) -> None:
    """Round every matrix to float16, in place; vectors (gains, biases, frequencies) stay as they are.

    Raises ModelError for a matrix that float16 cannot hold.
    """
    made: dict[str, Any] = {}
    for port, value, constant in list(matrices(model)):
        name = value.get_name()
        if name not in made:
            values = folded(value)
            assert values is not None, value
            largest = float(np.abs(values).max(initial=0))
            if largest > float(np.finfo(np.float16).max):
                raise ModelError(
                    f"`{constant.get_friendly_name()}` holds {largest:.3g}, beyond float16: give --weight-format int8"
                )
            made[name] = op.convert(op.constant(values.astype(np.float16)), "f32")
        port.replace_source_output(made[name].output(0))
    model.validate_nodes_and_infer_types()


def check_groups(model: ov.Model, group: int) -> None:
    """Raise OptionError where ``group`` divides the inputs of no product. NNCF halves it where it fits not all."""
    widths = {
        int(port.get_shape()[1 if port.get_node().get_attributes()["transpose_b"] else 0])
        for port, _, _ in matrices(model)
        if port.get_node().get_type_name() == "MatMul"
    }
    if not any(width % group == 0 for width in widths):
        listed = ", ".join(map(str, sorted(widths)))
        raise OptionError(f"`--group-size` {group} divides none of this model's products ({listed} inputs): give less")


def inputs_for(model: ov.Model, ids: ListLike[int]) -> list[dict[str, Any]]:
    """The stateful graph's inputs for pieces of a text, evenly spread, every one from position 0."""
    pieces = [ids[start : start + _PIECE] for start in range(0, len(ids), _PIECE)]
    whole = [piece for piece in pieces if len(piece) == _PIECE] or [p for p in pieces if len(p) >= _PIECE // 4]
    chosen = [whole[i] for i in np.linspace(0, len(whole) - 1, min(_PIECES, len(whole))).astype(int)] if whole else []
    names = {port.get_any_name() for port in model.inputs}
    return [{name: value for name, value in _inputs(piece).items() if name in names} for piece in chosen]


def _inputs(ids: ListLike[int]) -> dict[str, Any]:
    n = len(ids)
    return {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, n), np.int64),
        "position_ids": np.arange(n, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
