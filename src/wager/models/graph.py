"""Graph passes over OpenVINO models: each takes a graph, changes it in place, and says how often it applied.

A pass whose pattern is absent leaves the graph alone and returns 0; ``wager inspect`` shows the counts. None of them
changes a logit (tests/model and tests/unit compare bits).
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

ROWS = "rows"
HIDDEN = "hidden"
_ELEMENTWISE = {"Convert", "Add", "Multiply", "Divide", "Tanh", "Reshape", "Squeeze", "Unsqueeze"}


def paged_attention(model: ov.Model, *, masks: bool = True) -> int:
    """Turn a stateful IR into a graph over flat tokens and K/V blocks that the caller owns.

    New inputs: ``past_lens`` (B,), ``subsequence_begins`` (B+1,), ``block_indices``, ``block_indices_begins`` (B+1,),
    ``max_context_len`` (scalar), ``key_cache.i``/``value_cache.i``, and with ``masks`` ``qq_bias`` u8 and
    ``qq_bias_begins``. The only use of OpenVINO's private import. Returns the number of attention layers.
    """
    from openvino._offline_transformations import paged_attention_transformation

    if not model.get_variables():  # not stateful: nothing to page
        return 0
    paged_attention_transformation(model, False, False, False, False, False, False, masks)
    return sum(node.get_type_name() == "PagedAttentionExtension" for node in model.get_ops())


def page(model: ov.Model, *, masks: bool) -> dict[str, int]:
    """The passes that make a stateful IR the engine's graph, in order; how often each applied, by name."""
    return {
        "paged_attention": paged_attention(model, masks=masks),
        "logits_for_rows": logits_for_rows(model),
        "expose_hidden": expose_hidden(model),
    }


def merge_products(model: ov.Model) -> int:
    """Merge products that read the same input (q/k/v, gate/up) into one product and a split; bit-identical.

    Weights may be plain or compressed (Convert, Subtract of a zero point, Multiply by a scale, Reshape), any type.
    Returns the number of merged groups.
    """
    groups: dict[tuple[str, int], list[Any]] = collections.defaultdict(list)
    for node in products_with_weights(model):
        source = node.input_value(0)
        groups[source.get_node().get_name(), source.get_index()].append(node)
    merged = sum(_merge(products) for products in groups.values() if len(products) > 1)
    if merged:
        model.validate_nodes_and_infer_types()
    return merged


def logits_for_rows(model: ov.Model) -> int:
    """Add an input ``rows`` (R,) i64: the head is computed for those rows of the flat paged graph only.

    Reading a prompt then costs no (T, V) logits. Needs the paged graph (tokens on axis 0). Returns 1 or 0.
    """
    head = _head(model)
    if head is None:
        return 0
    rows = op.parameter([-1], np.int64, name=ROWS)
    rows.output(0).set_names({ROWS})
    picked = op.gather(head.input_value(0), rows, op.constant(np.array(0, np.int64)))
    head.input(0).replace_source_output(picked.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return 1


def expose_hidden(model: ov.Model) -> int:
    """Add an output ``hidden``: the head's input (after the last norm; after ``logits_for_rows``: those rows)."""
    head = _head(model)
    if head is None:
        return 0
    result = op.result(op.convert(head.input_value(0), "f32"))
    result.output(0).set_names({HIDDEN})
    model.add_results([result])
    model.validate_nodes_and_infer_types()
    return 1


def _head(model: ov.Model) -> Any | None:
    """The MatMul that makes the logits, found from the result through element-wise operations."""
    result = next((r for r in model.get_results() if "logits" in _names(r)), None)
    node = None if result is None else result.input_value(0).get_node()
    while node is not None and node.get_type_name() in _ELEMENTWISE:
        node = node.input_value(0).get_node()
    return node if node is not None and node.get_type_name() == "MatMul" else None


def _names(result: Any) -> set[str]:
    return set(result.output(0).get_names() | result.input_value(0).get_names())


def products_with_weights(model: ov.Model) -> list[Any]:
    """The MatMul nodes whose second input is a constant matrix, plain or compressed, in the order of execution."""
    return [node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul" and _has_weights(node)]


def _has_weights(matmul: Any) -> bool:
    attributes = matmul.get_attributes()
    if attributes["transpose_a"] or not attributes["transpose_b"]:
        return False
    node = matmul.input_value(1).get_node()
    while node.get_type_name() in ("Convert", "Subtract", "Multiply", "Reshape"):
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant" and len(matmul.input_value(1).get_partial_shape()) == 2)


def stored_weights(product: Any) -> Any:
    """The constant that holds the weights, or the codes, of one of ``products_with_weights``."""
    node = product.input_value(1).get_node()
    while node.get_type_name() != "Constant":
        node = node.input_value(0).get_node()
    return node


def _merge(products: list[Any]) -> int:
    weights = _join([p.input_value(1) for p in products])
    if weights is None:
        return 0
    product = op.matmul(products[0].input_value(0), weights, False, True)
    widths = np.array([p.input_value(1).get_shape()[0] for p in products], np.int64)
    parts = op.variadic_split(product, op.constant(np.array(-1, np.int64)), op.constant(widths))
    for i, old in enumerate(products):
        for target in old.output(0).get_target_inputs():
            target.replace_source_output(parts.output(i))
    return 1


def _join(values: list[Any]) -> Any | None:
    """Stack equal decompression subgraphs along axis 0 (the output channels); None where they differ in form."""
    nodes = [value.get_node() for value in values]
    kind = nodes[0].get_type_name()
    element = nodes[0].get_output_element_type(0)
    same = all(n.get_type_name() == kind and n.get_output_element_type(0) == element for n in nodes)
    if not same:
        return None
    if kind == "Constant":
        return _join_constants(nodes)
    inputs = _join([n.input_value(0) for n in nodes])
    if inputs is None:
        return None
    if kind == "Convert":
        return op.convert(inputs, nodes[0].get_output_element_type(0).get_type_name())
    if kind == "Reshape":
        if any(n.get_output_shape(0)[1:] != nodes[0].get_output_shape(0)[1:] for n in nodes):
            return None
        shape = [sum(n.get_output_shape(0)[0] for n in nodes), *list(nodes[0].get_output_shape(0))[1:]]
        return op.reshape(inputs, op.constant(np.array(shape, np.int64)), False)
    if kind in ("Subtract", "Multiply"):
        second = _join([n.input_value(1) for n in nodes])
        if second is None:
            return None
        return op.subtract(inputs, second) if kind == "Subtract" else op.multiply(inputs, second)
    return None


def _join_constants(constants: list[Any]) -> Any | None:
    shapes = [list(c.get_output_shape(0)) for c in constants]
    raw = [_bytes(c) for c in constants]
    if not shapes[0] or all(s[0] == 1 for s in shapes):  # one value for every row: shared only if equal
        return constants[0] if all(np.array_equal(r, raw[0]) for r in raw) else None
    if any(s[1:] != shapes[0][1:] for s in shapes):
        return None
    shape = [sum(s[0] for s in shapes), *shapes[0][1:]]
    tensor = ov.Tensor(constants[0].get_element_type(), ov.Shape(shape))
    tensor.data.view(np.uint8).reshape(-1)[:] = np.concatenate(raw)
    return ov.op.Constant(tensor)


def _bytes(constant: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(constant.get_tensor_view().data).view(np.uint8).reshape(-1)


def weight_bytes(model: ov.Model) -> int:
    """Of the constants that products take as weights, scales and zero points included, each counted once."""
    constants: dict[str, int] = {}
    pending = [node.input_value(1).get_node() for node in products_with_weights(model)]
    while pending:
        node = pending.pop()
        if node.get_type_name() == "Constant":
            constants[node.get_friendly_name()] = node.get_byte_size()
        pending += [value.get_node() for value in node.input_values()]
    return sum(constants.values())


def weights_group(model: ov.Model) -> int:
    """Input channels that share a scale in most compressed products; 0 where scales are per channel or absent."""
    counts: collections.Counter[int] = collections.Counter()
    for node in products_with_weights(model):
        shape = list(stored_weights(node).get_output_shape(0))
        counts[shape[2] if len(shape) == 3 else 0] += 1
    return counts.most_common(1)[0][0] if counts else 0
