"""Graph passes leave the logits alone, and say when their pattern is absent."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as op

from wager.models import graph

RNG = np.random.default_rng(0)
HIDDEN, ROWS = 32, 5


def compressed(rows, columns, *, group, zero):
    """Weights of int8 codes in groups, with or without a zero point, as (rows, columns) f32."""
    codes = RNG.integers(-100, 100, (rows, columns // group, group)).astype(np.int8)
    value = op.convert(op.constant(codes), "f32")
    if zero:
        value = op.subtract(value, op.constant(RNG.normal(size=(rows, columns // group, 1)).astype(np.float32)))
    value = op.multiply(value, op.constant(RNG.uniform(0.01, 0.02, (rows, columns // group, 1)).astype(np.float32)))
    return op.reshape(value, op.constant(np.array([rows, columns], np.int64)), False)


def attention_like(weights):
    """x -> three products of the same input, then one of their sum."""
    x = op.parameter([-1, HIDDEN], np.float32, name="x")
    x.output(0).set_names({"x"})
    products = [op.matmul(x, w, False, True) for w in weights]
    head = op.constant(RNG.normal(size=(HIDDEN, HIDDEN)).astype(np.float32))
    total = op.matmul(op.add(op.add(products[0], products[1]), products[2]), head, False, True)
    result = op.result(total)
    result.output(0).set_names({"logits"})
    return ov.Model([result], [x], "test")


def outputs(model, x):
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([x])[0]


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("group", [8, HIDDEN])
def test_merging_products_is_bit_identical(group, zero):
    x = RNG.normal(size=(ROWS, HIDDEN)).astype(np.float32)
    model = attention_like([compressed(HIDDEN, HIDDEN, group=group, zero=zero) for _ in range(3)])
    before = outputs(model, x)
    assert graph.merge_products(model) == 1
    assert sum(node.get_type_name() == "MatMul" for node in model.get_ops()) == 2
    assert np.array_equal(outputs(model, x), before)


def test_products_of_different_form_are_left_alone():
    weights = [compressed(HIDDEN, HIDDEN, group=8, zero=z) for z in (False, True, False)]
    model = attention_like(weights)
    assert graph.merge_products(model) == 0
    assert sum(node.get_type_name() == "MatMul" for node in model.get_ops()) == 4


def test_plain_weights_merge_too():
    x = RNG.normal(size=(ROWS, HIDDEN)).astype(np.float32)
    weights = [op.constant(RNG.normal(size=(HIDDEN, HIDDEN)).astype(np.float32)) for _ in range(3)]
    model = attention_like(weights)
    before = outputs(model, x)
    assert graph.merge_products(model) == 1
    assert np.allclose(outputs(model, x), before, atol=1e-5)


def test_logits_for_rows_and_hidden():
    x = RNG.normal(size=(ROWS, HIDDEN)).astype(np.float32)
    model = attention_like([compressed(HIDDEN, HIDDEN, group=8, zero=False) for _ in range(3)])
    full = outputs(model, x)
    assert graph.logits_for_rows(model) == 1
    assert graph.expose_hidden(model) == 1
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    got = compiled({"x": x, graph.ROWS: np.array([3, 0], np.int64)})
    assert np.array_equal(got["logits"], full[[3, 0]])
    assert got[graph.HIDDEN].shape == (2, HIDDEN)


def test_a_graph_without_a_head_is_left_alone():
    x = op.parameter([-1, HIDDEN], np.float32, name="x")
    model = ov.Model([op.result(op.relu(x))], [x], "test")
    assert graph.logits_for_rows(model) == graph.expose_hidden(model) == graph.merge_products(model) == 0
    assert graph.paged_attention(model) == 0


def test_weights_group():
    assert graph.weights_group(attention_like([compressed(HIDDEN, HIDDEN, group=8, zero=False)] * 3)) == 8
