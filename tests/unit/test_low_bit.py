"""The int4 copy of a model: what its weights become, what is left alone, and that it drafts. On graphs and tiny models.

The plugin itself evaluates weights before and after (a product with the identity), so a wrong nibble order, sign, zero
point, scale or transposition shows as an error of many steps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as op

from wager import LLM
from wager.drafters import make_drafter
from wager.errors import ModelError, OptionError
from wager.models import graph, low_bit
from wager.models.fidelity import EXACT_PROPERTIES, divergence, imported_logits
from wager.models.openvino import read_graph

ROWS, COLS, GROUP = 24, 128, 32
N_PRODUCTS = 9  # of a tiny model: q/k/v, output, gate/up, down in two layers, and the head


def constant(kind, values):
    """A constant of any type, i4 and u4 too (two to a byte, the first in the low half)."""
    tensor = ov.Tensor(getattr(ov.Type, kind), ov.Shape(values.shape))
    if kind in ("i4", "u4"):
        flat = values.astype(np.int8).view(np.uint8).reshape(-1) & 15
        tensor.data.view(np.uint8).reshape(-1)[:] = flat[0::2] | (flat[1::2] << 4)
    elif kind == "bf16":
        tensor.data.view(np.uint16)[:] = values.astype(np.float32).view(np.uint32) >> 16
    else:
        tensor.data[:] = values
    return ov.op.Constant(tensor)


def weights(form, rows=ROWS, cols=COLS, seed=0):
    """(rows, cols) f32 weights in one of the forms that exported models have."""
    rng = np.random.default_rng(seed)
    plain, n = rng.normal(size=(rows, cols)), cols // GROUP
    scale, nibbles = rng.uniform(0.01, 0.03, (rows, n, 1)), rng.integers(0, 16, (rows, n, GROUP))
    shape = op.constant(np.array([rows, cols], np.int64))
    if form == "f32":
        return op.constant(plain.astype(np.float32))
    if form in ("f16", "bf16"):
        return op.convert(constant(form, plain), "f32")
    if form == "scale first":
        return op.multiply(constant("f32", scale[:, 0]), op.convert(constant("f16", plain), "f32"))
    if form == "i8 per channel":
        return op.multiply(
            op.convert(constant("i8", rng.integers(-127, 128, (rows, cols))), "f32"),
            op.constant(rng.uniform(0.01, 0.03, (rows, 1)).astype(np.float32)),
        )
    if form == "u8, zero u8":
        codes = op.convert(constant("u8", rng.integers(0, 256, (rows, n, GROUP))), "f32")
        zero = op.convert(constant("u8", rng.integers(100, 156, (rows, n, 1))), "f32")
        return op.reshape(op.multiply(op.subtract(codes, zero), constant("f32", scale)), shape, False)
    if form == "u4, zero f32":
        zero = constant("f32", rng.uniform(5, 10, (rows, n, 1)))
        codes = op.convert(constant("u4", nibbles), "f32")
        return op.reshape(op.multiply(op.subtract(codes, zero), constant("f32", scale)), shape, False)
    if form == "u4, zero u4, f16":
        zero = op.convert(constant("u4", rng.integers(5, 10, (rows, n, 1))), "f16")
        codes = op.convert(constant("u4", nibbles), "f16")
        value = op.reshape(op.multiply(op.subtract(codes, zero), constant("f16", scale)), shape, False)
        return op.convert(value, "f32")
    assert form == "i4"
    value = op.multiply(op.convert(constant("i4", nibbles - 8), "f32"), constant("f32", scale))
    return op.reshape(value, shape, False)


FORMS = ["f32", "f16", "bf16", "scale first", "i8 per channel", "u8, zero u8", "u4, zero f32", "u4, zero u4, f16", "i4"]


def product(value, *, transposed=True):
    """A model x -> x W^T of weights (rows, cols), or x W of weights (cols, rows)."""
    x = op.parameter([-1, value.get_output_shape(0)[1 if transposed else 0]], np.float32, name="x")
    return ov.Model([op.result(op.matmul(x, value, False, transposed))], [x], "product")


def run(model, x):
    return np.array(ov.Core().compile_model(model, "CPU", dict(EXACT_PROPERTIES))([x])[0])


def evaluated(model, cols=COLS):
    """The weights (rows, cols) that the plugin multiplies with."""
    return run(model, np.eye(cols, dtype=np.float32)).T


def assert_near(new, old, group=GROUP):
    """Within half a step where the value is representable, within one at the far end; on the whole better than that."""
    old, new = old.reshape(len(old), -1, group), new.reshape(len(old), -1, group)
    largest = np.take_along_axis(old, np.abs(old).argmax(-1, keepdims=True), -1)
    error, far = np.abs(new - old), old * np.sign(largest) < -np.abs(largest) * (7.5 / 8)
    step = np.abs(largest) / 7
    assert np.all(error <= np.where(far, 1, 0.5) * step + 1e-5)
    assert np.take_along_axis(error, np.abs(old).argmax(-1, keepdims=True), -1).max() < 1e-4  # the largest is exact
    plain = np.rint(old / step) * step
    assert np.square(error).sum() <= np.square(plain - old).sum() * 1.0001


def types_of_weights(model):
    """Element types of what products read as their second input."""
    kinds = []
    for node in model.get_ordered_ops():
        if node.get_type_name() == "MatMul":
            value = node.input_value(1).get_node()
            while value.get_type_name() in ("Reshape", "Multiply", "Subtract", "Convert"):
                value = value.input_value(0).get_node()
            kinds.append(value.get_element_type().get_type_name())
    return kinds


def test_codes_and_scales():
    values = np.array([[-8, 7, 3.1, 0.9], [7, -2, 0, 1], [8, -7, 1, 1], [0, 0, 0, 0]], np.float32)
    codes, scale = low_bit.quantised(values)
    assert codes.dtype == np.int8
    assert codes.tolist() == [[-8, 7, 3, 1], [7, -2, 0, 1], [-8, 7, -1, -1], [0, 0, 0, 0]]
    assert scale.tolist() == [[1], [1], [-1], [0]]


@pytest.mark.parametrize("group", [16, 32])
def test_no_group_has_a_larger_error_than_either_scale_alone(group):
    values = np.random.default_rng(0).normal(size=(4000, group)).astype(np.float32)
    codes, scale = low_bit.quantised(values)
    assert codes.min() == -8
    assert codes.max() == 7
    error = np.square(codes * scale - values).sum(-1)
    largest = np.take_along_axis(values, np.abs(values).argmax(-1, keepdims=True), -1)
    others = [np.square(np.clip(np.rint(values / s), -8, 7) * s - values).sum(-1) for s in (largest / 7, largest / -8)]
    assert np.all(error <= np.minimum(*others) * 1.001)
    for other in others:  # each is the worse one often: this would be 1 if it were all that is tried
        assert np.mean(other <= error * 1.001) < 0.9


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_every_form(form):
    model = product(weights(form))
    old = evaluated(model)
    assert low_bit.to_int4(model) == 1
    assert types_of_weights(model) == ["i4"]
    assert graph.weights_group(model) == GROUP
    assert_near(evaluated(model), old)


@pytest.mark.parametrize("group", [16, 64])
def test_other_groups(group):
    model = product(weights("f32"))
    old = evaluated(model)
    assert low_bit.to_int4(model, group=group) == 1
    assert graph.weights_group(model) == group
    assert_near(evaluated(model), old, group)


def test_weights_that_are_not_transposed():
    model = product(weights("f16", rows=COLS, cols=ROWS), transposed=False)
    old = evaluated(model)
    assert low_bit.to_int4(model) == 1
    assert_near(evaluated(model), old)


def test_large_matrices_are_filled_to_the_last_row(monkeypatch):
    monkeypatch.setattr(low_bit, "_CHUNK", 7 * COLS)  # 24 rows in parts of 7: the last one is short
    model = product(weights("f32"))
    old = evaluated(model)
    assert low_bit.to_int4(model) == 1
    assert_near(evaluated(model), old)


def left_alone():
    """Models whose product must stay as it is, by reason."""
    x = op.parameter([-1, COLS], np.float32, name="x")
    y = op.parameter([-1, -1], np.float32, name="y")
    sums = op.reduce_sum(op.reshape(x, op.constant(np.array([0, 32, 4], np.int64)), True), op.constant(2), False)
    turned = op.transpose(weights("f32", rows=COLS, cols=ROWS), op.constant(np.array([1, 0], np.int64)))
    codes = constant("i32", np.random.default_rng(0).integers(-9, 9, (ROWS, COLS)))
    return {
        "an operation that is not folded": product(turned),
        "a type that is not folded": product(op.convert(codes, "f32")),
        "an operation that is not folded, in the scale": product(
            op.multiply(weights("f32"), op.sqrt(op.constant(np.full((ROWS, 1), 4, np.float32))))
        ),
        "inputs that are no multiple": product(weights("f32", cols=COLS - 16)),
        "a correction by sums": ov.Model([op.result(op.matmul(sums, weights("f32", cols=32), False, True))], [x]),
        "weights that are computed": ov.Model([op.result(op.matmul(x, y, False, True))], [x, y]),
        "a vector": ov.Model([op.result(op.matmul(x, op.constant(np.ones(COLS, np.float32)), False, False))], [x]),
    }


@pytest.mark.parametrize("reason", left_alone())
def test_left_alone(reason):
    model = left_alone()[reason]
    before = [node.get_type_name() for node in model.get_ordered_ops()]
    assert low_bit.to_int4(model) == 0
    assert [node.get_type_name() for node in model.get_ordered_ops()] == before


def test_products_of_different_forms_merge_afterwards():
    x = op.parameter([-1, COLS], np.float32, name="x")
    parts = [op.matmul(x, weights(form, seed=i), False, True) for i, form in enumerate(["f16", "u8, zero u8", "i4"])]
    model = ov.Model([op.result(op.concat(parts, -1))], [x], "three")
    old = evaluated(model)
    assert graph.merge_products(model.clone()) == 0
    assert low_bit.to_int4(model) == 3
    copied = evaluated(model)
    assert_near(copied, old)
    assert graph.merge_products(model) == 1
    assert np.array_equal(evaluated(model), copied)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_a_whole_model(tiny_llama, tmp_path, name):
    """tiny-qwen3 has a tied head: the embedding's table stays int8 beside the head's int4 copy."""
    ir_dir, ids = tiny_llama.parent / name, np.random.default_rng(1).integers(3, 384, 200).tolist()
    before = {path.name: path.read_bytes() for path in ir_dir.iterdir()}
    model = read_graph(ov.Core(), ir_dir)
    assert low_bit.to_int4(model) == N_PRODUCTS
    assert types_of_weights(model) == ["i4"] * N_PRODUCTS
    constants = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    tables = [c for c in constants if c.get_element_type() == ov.Type.i8]
    assert [c.get_output_shape(0)[0] for c in tables] == [384], "the embedding"
    assert {path.name: path.read_bytes() for path in ir_dir.iterdir()} == before
    ov.save_model(model, tmp_path / "openvino_model.xml", compress_to_fp16=False)
    target = imported_logits(ir_dir, ids, EXACT_PROPERTIES)
    kl = divergence(target, imported_logits(tmp_path, ids, EXACT_PROPERTIES)).mean()
    uniform = divergence(target, np.zeros_like(target)).mean()
    assert 1e-3 < kl < 0.2 * uniform


@pytest.mark.parametrize("spec", ["copy", "copy:", "copy:int8", "copy:int4:x"])
def test_other_copies_are_refused(spec):
    with pytest.raises(OptionError, match="give 'copy:int4'"):
        make_drafter(spec, None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_it_drafts_and_changes_no_text(tiny_llama, home, monkeypatch, temperature):
    monkeypatch.setenv("WAGER_HOME", str(home))
    seen = []
    llm = LLM(
        tiny_llama,
        drafter="copy:int4",
        num_draft_tokens=3,
        kv_cache_gb=0.1,
        progress=lambda what, *_: seen.append(what),
    )
    assert "making an int4 copy" in seen
    options = llm.sampling(max_tokens=60, temperature=temperature, seed=3, ignore_eos=True)
    plain, drafted = (llm.generate("the sea", options, speculate=on) for on in (False, True))
    assert drafted.tokens == plain.tokens
    assert plain.stats.tokens_per_forward == 1
    assert 1.3 < drafted.stats.tokens_per_forward < 4  # 4: as if it were the target itself


def test_a_model_without_such_weights_is_refused(tiny_llama, monkeypatch):
    monkeypatch.setattr("wager.models.low_bit.to_int4", lambda graph: 0)
    llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)
    with pytest.raises(ModelError, match="tiny-llama` has no weights that can be made int4"):
        llm.make_engine(drafter="copy:int4")
