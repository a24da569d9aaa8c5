"""Every GGUF block type against the gguf package, and every form against the weights it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, quants
from gguf import GGMLQuantizationType as QType

from wager.errors import ModelError, OptionError
from wager.models import weights

ROWS, COLS = 6, 512
LATTICES = (QType.Q4_0, QType.Q4_1, QType.Q5_0, QType.Q5_1, QType.Q8_0, QType.Q4_K, QType.Q5_K)
FLOATS = (QType.F32, QType.F16, QType.BF16)
ALL = (*LATTICES, QType.Q6_K, *FLOATS)
FOUR_BITS = (QType.Q4_0, QType.Q4_1, QType.Q4_K)
# Byte offsets of the float16 fields of the super-block types: steps must be sane, all other bytes may be anything.
HALVES = {QType.Q4_K: (0, 2), QType.Q5_K: (0, 2), QType.Q6_K: (208,)}


def raw(qtype: QType, seed: int = 0) -> np.ndarray:
    """Rows of a tensor as the GGUF reader gives them, made by the gguf package or, for K types, of random bytes."""
    rng = np.random.default_rng(seed)
    if qtype not in HALVES:
        values = (rng.standard_normal((ROWS, COLS)) * rng.uniform(0.01, 2, (ROWS, 1))).astype(np.float32)
        return values if qtype == QType.F32 else quants.quantize(values, qtype)
    block, size = GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (ROWS, COLS // block, size), dtype=np.uint8)
    for offset in HALVES[qtype]:
        steps = rng.uniform(1e-3, 1e-2, (ROWS, COLS // block)).astype(np.float16)
        blocks[..., offset : offset + 2] = steps[..., None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def truth(qtype: QType, seed: int = 0) -> np.ndarray:
    return quants.dequantize(raw(qtype, seed), qtype).astype(np.float32)


def test_the_supported_list_is_what_is_tested() -> None:
    assert {q.name for q in ALL} == set(weights.SUPPORTED)


@pytest.mark.parametrize("qtype", LATTICES)
def test_lattice_is_the_dequantised_tensor(qtype: QType) -> None:
    lattice = weights.decode(raw(qtype), qtype)
    assert lattice is not None
    values = lattice.q * lattice.d[..., None] + lattice.m[..., None]
    np.testing.assert_allclose(values.reshape(ROWS, COLS), truth(qtype), rtol=1e-6, atol=1e-7)
    assert lattice.symmetric == bool((lattice.m == 0).all())


@pytest.mark.parametrize("qtype", [QType.Q6_K, *FLOATS])
def test_other_types_are_no_lattice(qtype: QType) -> None:
    assert weights.decode(raw(qtype), qtype) is None
    np.testing.assert_array_equal(weights.dequantise(raw(qtype), qtype), truth(qtype))


@pytest.mark.parametrize("qtype", FOUR_BITS)
@pytest.mark.parametrize("form", ["float-zero", "int4-sum"])
def test_four_bit_forms_are_exact(qtype: QType, form: str) -> None:
    stored = weights.store("w", raw(qtype), qtype, form)
    assert stored.kind in ("i4", "u4")
    np.testing.assert_allclose(weights.to_floats(stored), truth(qtype), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.Q5_0, QType.Q8_0])
def test_symmetric_types_are_exact_by_default(qtype: QType) -> None:
    stored = weights.store("w", raw(qtype), qtype, "int8-32")
    np.testing.assert_array_equal(weights.to_floats(stored), truth(qtype))
    assert stored.kind == ("i4" if qtype == QType.Q4_0 else "i8")
    np.testing.assert_array_equal(weights.to_floats(weights.widened(stored)), truth(qtype))


@pytest.mark.parametrize("qtype", ALL)
def test_int8_groups_are_within_half_a_step(qtype: QType) -> None:
    stored = weights.store("w", raw(qtype), qtype, "int8-32")
    expected = truth(qtype).reshape(ROWS, -1, 32)
    half_step = np.abs(expected).max(-1, keepdims=True) / 127 / 2
    assert (np.abs(weights.to_floats(stored).reshape(expected.shape) - expected) <= half_step * 1.001).all()


@pytest.mark.parametrize("qtype", [QType.Q4_1, QType.Q4_K])
def test_shared_spacing_beats_plain_rounding(qtype: QType) -> None:
    stored = weights.store("w", raw(qtype), qtype, "int8-32")
    plain = weights._int8_groups(truth(qtype))

    def error(s: weights.Stored) -> float:
        return float(np.square(weights.to_floats(s) - truth(qtype)).mean())

    assert error(stored) < error(plain) / 3


@pytest.mark.parametrize("qtype", ALL)
def test_int8_channel_has_one_scale_a_row(qtype: QType) -> None:
    stored = weights.store("w", raw(qtype), qtype, "int8-channel")
    expected = truth(qtype)
    assert stored.form == "int8-channel"
    half_step = np.abs(expected).max(-1, keepdims=True) / 127 / 2
    assert (np.abs(weights.to_floats(stored) - expected) <= half_step * 1.001).all()


@pytest.mark.parametrize("form", ["int8-32", "float-zero", "int4-sum"])
@pytest.mark.parametrize("minimum", [0.0, -0.375, 60.0])
def test_blocks_without_spread_survive(form: str, minimum: float) -> None:
    """d = 0: the block is its minimum everywhere; and a minimum far from zero leaves no room for a shared spacing."""
    block = np.zeros(20, np.uint8)
    block[2:4] = np.array([minimum], np.float16).view(np.uint8)
    block[4:] = 0x5A
    spread = block.copy()
    spread[0:2] = np.array([0.25], np.float16).view(np.uint8)
    data = np.concatenate([block, spread])[None]
    expected = quants.dequantize(data, QType.Q4_1)
    found = weights.to_floats(weights.store("w", data, QType.Q4_1, form))
    np.testing.assert_allclose(found, expected, rtol=1 / 250, atol=0.005)


def test_columns_that_are_no_multiple_of_32_are_stored_by_row() -> None:
    values = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
    assert weights.store("w", values, QType.F32, "int8-32").form == "int8-channel"


def test_joined_rows_are_the_rows_of_all() -> None:
    four = weights.store("w", raw(QType.Q4_0), QType.Q4_0, "int8-32")
    eight = weights.store("w", raw(QType.Q8_0, 1), QType.Q8_0, "int8-32")
    both = weights.joined([four, eight])
    assert both is not None
    np.testing.assert_array_equal(weights.to_floats(both), np.concatenate([truth(QType.Q4_0), truth(QType.Q8_0, 1)]))


def test_rows_of_different_forms_stay_apart() -> None:
    four = weights.store("w", raw(QType.Q4_1), QType.Q4_1, "int4-sum")
    eight = weights.store("w", raw(QType.Q8_0), QType.Q8_0, "int4-sum")
    assert weights.joined([four, eight]) is None


def test_float16_overflow_is_refused() -> None:
    with pytest.raises(ModelError, match=r"`w` holds 1e\+05, beyond float16: import with form int8-32"):
        weights.store("w", np.full((1, 32), 1e5, np.float32), QType.F32, "f16")


def test_unknown_form_is_refused() -> None:
    with pytest.raises(OptionError, match=r"`form` is 'int3'.*int8-32"):
        weights.check_form("int3")
