"""Weights of a GGUF file as the numbers an OpenVINO graph can hold: pure numpy, no graph.

A GGUF block of 32 is a *lattice* ``w = d * q + m`` (``m = 0`` for the symmetric types). ``store`` turns a matrix into
one of the forms below; ``Stored`` says which form it became, because a form that a type has no use for gives way to
``int8-32`` (all figures: docs/log.md). F16, BF16 and F32 matrices are rounded to int8 as well unless f16 is asked for:
on a CPU they would cost twice to four times the memory traffic for a KL near 1e-3.

=============  =========================================================================================
int8-channel   int8 codes, one scale per output row
int8-32        int8 codes, one scale per 32 inputs; exact for Q4_0, Q5_0, Q8_0
float-zero     u4 codes, float32 scale and zero point per 32 inputs; exact for Q4_0, Q4_1, Q4_K
int4-sum       i4 codes, scale per 32 inputs, and a small product with the sums of 32 inputs; same types, exact
f16            float16; refused where a value is too large (small ones lose less than 3e-8)
f32            float32, the reference that fidelity is measured against
=============  =========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as QType
from gguf import quants

from wager.errors import ModelError, OptionError
from wager.types import F32

FORMS = ("int8-channel", "int8-32", "float-zero", "int4-sum", "f16")
REFERENCE_FORM = "f32"
GROUP = 32
SUPPORTED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32")

U8 = npt.NDArray[np.uint8]
I8 = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """``w = d * q + m``: q (rows, n, 32) int16, d and m (rows, n) float32; ``symmetric`` when every m is 0."""

    q: npt.NDArray[np.int16]
    d: F32
    m: F32
    symmetric: bool


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A matrix (rows, cols) in one form.

    ``kind`` i8: codes (rows, n, g) int8; i4, u4: two codes a byte, low nibble first, (rows, n, g / 2) uint8; f16, f32:
    codes (rows, cols). ``scale`` (rows, n, 1) float32; ``zero`` (rows, n, 1) float32 for u4: w = (q - zero) * scale;
    ``offset`` (rows, n) float32 for i4: added to every weight of its block. ``kept``: somebody holds the arrays for as
    long as a graph of them lives, so constants need no copy.
    """

    kind: str
    rows: int
    cols: int
    codes: npt.NDArray[Any]
    scale: F32 | None = None
    zero: F32 | None = None
    offset: F32 | None = None
    kept: bool = False

    @property
    def form(self) -> str:
        """What it is called in ``wager.json``."""
        if self.kind in ("f16", "f32"):
            return self.kind
        if self.kind == "i8":
            return "int8-32" if self.codes.shape[1] > 1 or self.cols == GROUP else "int8-channel"
        if self.zero is not None:
            return "float-zero"
        return "int4-sum" if self.offset is not None else f"int4-{2 * self.codes.shape[2]}"


def check_form(form: str) -> None:
    """Raise ``OptionError`` for an unknown form name."""
    if form not in (*FORMS, REFERENCE_FORM):
        raise OptionError(f"`form` is {form!r}: give one of {', '.join(FORMS)}")


def dequantise(data: npt.NDArray[Any], qtype: QType) -> F32:
    """Rows of a GGUF tensor, as the reader gives them, to float32 (rows, cols)."""
    return np.ascontiguousarray(quants.dequantize(np.ascontiguousarray(data), qtype), np.float32)


def store(name: str, data: npt.NDArray[Any], qtype: QType, form: str) -> Stored:
    """A GGUF matrix (rows as the reader gives them) in ``form``. ``name`` is for errors only."""
    if form in (REFERENCE_FORM, "f16"):
        return _floats(name, dequantise(data, qtype), form)
    if form == "int8-channel":
        return _int8_channel(dequantise(data, qtype))
    lattice = decode(data, qtype)
    if lattice is None:
        floats = dequantise(data, qtype)
        return _int8_groups(floats) if floats.shape[1] % GROUP == 0 else _int8_channel(floats)
    four_bits = qtype in (QType.Q4_0, QType.Q4_1, QType.Q4_K)
    if four_bits and form == "float-zero" and not lattice.symmetric:
        return _float_zero(lattice)
    if four_bits and (lattice.symmetric or form == "int4-sum"):
        return _int4(lattice)
    return _int8_lattice(lattice)


def widened(stored: Stored) -> Stored:
    """An exact int8 copy of symmetric int4, so that it can share a product with int8 rows."""
    if stored.kind != "i4" or stored.offset is not None:
        return stored
    nibbles = np.stack([stored.codes & 15, stored.codes >> 4], -1).reshape(stored.rows, -1, GROUP).astype(np.int8)
    return Stored(
        "i8", stored.rows, stored.cols, np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8), stored.scale
    )


def joined(parts: list[Stored]) -> Stored | None:
    """Rows of all parts as one matrix, or None where their forms differ."""
    if len({(p.kind, p.codes.shape[1:], p.zero is None, p.offset is None) for p in parts}) > 1:
        parts = [widened(p) for p in parts]
        if len({(p.kind, p.codes.shape[1:], p.zero is None, p.offset is None) for p in parts}) > 1:
            return None
    first = parts[0]

    def cat(field: str) -> Any:
        return None if getattr(first, field) is None else np.concatenate([getattr(p, field) for p in parts])

    rows = sum(p.rows for p in parts)
    return Stored(first.kind, rows, first.cols, cat("codes"), cat("scale"), cat("zero"), cat("offset"))


def to_floats(stored: Stored) -> F32:
    """The matrix a ``Stored`` stands for, float32 (rows, cols): what tests compare with."""
    if stored.kind in ("f16", "f32"):
        return stored.codes.astype(np.float32)
    codes = stored.codes
    if stored.kind in ("i4", "u4"):
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(stored.rows, -1, GROUP).astype(np.int16)
        codes = np.where(codes > 7, codes - 16, codes) if stored.kind == "i4" else codes
    assert stored.scale is not None
    values = codes.astype(np.float32)
    values = (values - (0 if stored.zero is None else stored.zero)) * stored.scale
    values = values + (0 if stored.offset is None else stored.offset[..., None])
    return values.reshape(stored.rows, stored.cols).astype(np.float32)


def decode(data: npt.NDArray[Any], qtype: QType) -> Lattice | None:
    """Codes, steps and minima of a block type; None for types that are not one lattice per 32 (Q6_K and the floats)."""
    reader = _DECODERS.get(qtype)
    if reader is None:
        return None
    return reader(np.ascontiguousarray(data).view(np.uint8).reshape(data.shape[0], -1))


def _half(raw: U8) -> F32:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _nibbles(qs: U8) -> npt.NDArray[np.int16]:
    return np.concatenate([qs & 15, qs >> 4], -1).astype(np.int16)


def _symmetric(q: npt.NDArray[np.int16], d: F32) -> Lattice:
    return Lattice(q, d, np.zeros_like(d), True)


def _q4_0(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 18)
    return _symmetric(_nibbles(blocks[..., 2:]) - np.int16(8), _half(blocks[..., :2])[..., 0])


def _q4_1(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 20)
    step = _half(blocks[..., :4])
    return Lattice(_nibbles(blocks[..., 4:]), step[..., 0], step[..., 1], False)


def _fifth_bits(qh: U8) -> npt.NDArray[np.int16]:
    """(…, 4) bytes to (…, 32) values 0 or 16."""
    return np.unpackbits(qh, axis=-1, bitorder="little").astype(np.int16) << np.int16(4)


def _q5_0(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 22)
    q = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return _symmetric(q - np.int16(16), _half(blocks[..., :2])[..., 0])


def _q5_1(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 24)
    step = _half(blocks[..., :4])
    return Lattice(_nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8]), step[..., 0], step[..., 1], False)


def _q8_0(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 34)
    q = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).astype(np.int16)
    return _symmetric(q, _half(blocks[..., :2])[..., 0])


def _k_steps(blocks: U8) -> tuple[F32, F32]:
    """Steps and minima (rows, 8 * super-blocks) of Q4_K and Q5_K: two halves, then 12 bytes of 6-bit factors."""
    rows, n = blocks.shape[:2]
    factors, minima = quants.Q4_K.get_scale_min(np.ascontiguousarray(blocks[..., 4:16]).reshape(-1, 12))
    step = _half(blocks[..., :4])
    d = step[..., 0:1] * factors.reshape(rows, n, 8).astype(np.float32)
    m = -step[..., 1:2] * minima.reshape(rows, n, 8).astype(np.float32)
    return d.reshape(rows, -1), m.reshape(rows, -1)


def _k_nibbles(qs: U8) -> npt.NDArray[np.int16]:
    """(rows, n, 128) bytes to (rows, n, 8, 32): bytes 32 i … 32 i + 31 hold sub-blocks 2 i (low) and 2 i + 1 (high)."""
    chunks = qs.reshape(*qs.shape[:2], 4, 1, 32)
    return np.concatenate([chunks & 15, chunks >> 4], 3).reshape(*qs.shape[:2], 8, 32).astype(np.int16)


def _q4_k(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 144)
    return Lattice(_k_nibbles(blocks[..., 16:]).reshape(len(raw), -1, GROUP), *_k_steps(blocks), False)


def _q5_k(raw: U8) -> Lattice:
    blocks = raw.reshape(len(raw), -1, 176)
    high = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = _k_nibbles(blocks[..., 48:]) | (high.astype(np.int16) << np.int16(4))
    return Lattice(q.reshape(len(raw), -1, GROUP), *_k_steps(blocks), False)


_DECODERS = {
    QType.Q4_0: _q4_0,
    QType.Q4_1: _q4_1,
    QType.Q5_0: _q5_0,
    QType.Q5_1: _q5_1,
    QType.Q8_0: _q8_0,
    QType.Q4_K: _q4_k,
    QType.Q5_K: _q5_k,
}


def _floats(name: str, values: F32, form: str) -> Stored:
    if form == REFERENCE_FORM:
        return Stored("f32", values.shape[0], values.shape[1], values)
    largest = float(np.abs(values).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ModelError(f"`{name}` holds {largest:.3g}, beyond float16: import with form int8-32 instead of f16")
    return Stored("f16", values.shape[0], values.shape[1], values.astype(np.float16))


def _round_to(values: F32, scale: F32) -> I8:
    safe = np.where(scale == 0, np.float32(1), scale)
    return np.clip(np.rint(values / safe), -127, 127).astype(np.int8)


def _int8_channel(values: F32) -> Stored:
    grouped = values[:, None, :]
    scale = np.abs(grouped).max(-1, keepdims=True) / np.float32(127)
    return Stored("i8", values.shape[0], values.shape[1], _round_to(grouped, scale), scale)


def _int8_groups(values: F32) -> Stored:
    grouped = values.reshape(len(values), -1, GROUP)
    scale = np.abs(grouped).max(-1, keepdims=True) / np.float32(127)
    return Stored("i8", values.shape[0], values.shape[1], _round_to(grouped, scale), scale)


def _int8_lattice(lattice: Lattice) -> Stored:
    """int8 codes for ``d q + m``. With scale d / k the codes are ``k q + round(k m / d)``: the spacing is exact and the
    whole block is off by one common rounding, which the best k <= 31 makes small (a rational approximation of m / d).
    Blocks where no k fits (minimum far from zero, or d = 0) are rounded as they are.
    """
    rows, n, _ = lattice.q.shape
    if lattice.symmetric:
        return Stored("i8", rows, n * GROUP, lattice.q.astype(np.int8), lattice.d[..., None])
    values = lattice.q * lattice.d[..., None] + lattice.m[..., None]
    plain = np.abs(values).max(-1) / np.float32(127)
    low, high = lattice.q.min(-1), lattice.q.max(-1)
    flat = lattice.d == 0
    ratio = np.where(flat, 0, lattice.m / np.where(flat, 1, lattice.d))
    best_error, best_k = plain * np.float32(12**-0.5), np.zeros_like(plain)
    for k in range(1, 32):
        shift = np.rint(k * ratio)
        error = np.abs(shift - k * ratio) * np.abs(lattice.d) / k
        fits = (k * high + shift <= 127) & (k * low + shift >= -127) & (error < best_error) & ~flat
        best_error, best_k = np.where(fits, error, best_error), np.where(fits, np.float32(k), best_k)
    exact = best_k > 0
    scale = np.where(exact, lattice.d / np.where(exact, best_k, 1), plain)[..., None].astype(np.float32)
    spaced = best_k[..., None] * lattice.q + np.rint(best_k * ratio)[..., None]
    codes = np.where(exact[..., None], spaced, _round_to(values, scale)).astype(np.int8)
    return Stored("i8", rows, n * GROUP, codes, scale)


def _packed(codes: npt.NDArray[np.int16]) -> U8:
    low, high = codes[..., 0::2] & 15, codes[..., 1::2] & 15
    return (low | (high << 4)).astype(np.uint8)


def _float_zero(lattice: Lattice) -> Stored:
    """w = (q - zero) * scale; a block with d = 0 is its minimum m everywhere: codes 1, zero 0, scale m."""
    rows, n, _ = lattice.q.shape
    flat = (lattice.d == 0)[..., None]
    d, m = lattice.d[..., None], lattice.m[..., None]
    zero = np.where(flat, 0, -m / np.where(flat, 1, d)).astype(np.float32)
    scale = np.where(flat, m, d).astype(np.float32)
    return Stored("u4", rows, n * GROUP, _packed(np.where(flat, 1, lattice.q).astype(np.int16)), scale, zero)


def _int4(lattice: Lattice) -> Stored:
    rows, n, _ = lattice.q.shape
    if lattice.symmetric:
        return Stored("i4", rows, n * GROUP, _packed(lattice.q), lattice.d[..., None])
    offset = lattice.m + 8 * lattice.d
    return Stored("i4", rows, n * GROUP, _packed(lattice.q - np.int16(8)), lattice.d[..., None], None, offset)
