"""Imported graphs against the numpy model: every architecture, every stored form, cache, padding, paging, fusion."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from gguf import GGMLQuantizationType as QType

from tiny_gguf import tiny
from wager.models import reference
from wager.models.gguf_graph import build
from wager.models.gguf_read import Source

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0", "KV_CACHE_PRECISION": "f32"}
IDS = np.random.default_rng(7).integers(0, 384, 40)


def tensors(arch: str, *, tied: bool = False) -> dict[str, np.ndarray]:
    out = tiny.weights(11, 384, qwen3=arch == "qwen3", head_scale=0.5)
    rng = np.random.default_rng(12)
    if tied:
        out.pop("output.weight", None)
    if arch == "qwen2":
        sizes = {
            "q": tiny.HEADS * tiny.HEAD_DIM,
            "k": tiny.KV_HEADS * tiny.HEAD_DIM,
            "v": tiny.KV_HEADS * tiny.HEAD_DIM,
        }
        for layer in range(tiny.LAYERS):
            for part, size in sizes.items():
                out[f"blk.{layer}.attn_{part}.bias"] = rng.standard_normal(size).astype(np.float32)
    return out


def source(folder: Path, arch: str, qtype: QType = QType.F32, **options: object) -> Source:
    tokens, merges = tiny.vocabulary()
    path = folder / f"{arch}-{qtype.name}.gguf"
    parts = options.pop("parts", None) or tensors(arch)
    tiny.write_gguf(path, arch, parts, tokens, merges, qtype=qtype, **options)
    return Source(path)


def run(request: ov.InferRequest, ids: np.ndarray, past: int = 0, mask: np.ndarray | None = None) -> np.ndarray:
    """Logits (B, n, V) for ids (B, n) after ``past`` rows."""
    batch, n = ids.shape
    mask = np.ones((batch, past + n), np.int64) if mask is None else mask
    positions = np.maximum(np.cumsum(mask, -1) - 1, 0)[:, past:]
    feed = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "beam_idx": np.arange(batch, dtype=np.int32),
    }
    request.infer(feed)
    return request.get_tensor("logits").data.copy()


def request_of(model: ov.Model) -> ov.InferRequest:
    return ov.Core().compile_model(model, "CPU", EXACT).create_infer_request()


def expected(src: Source, ids: np.ndarray = IDS) -> np.ndarray:
    return np.concatenate(list(reference.logits(src, reference.hidden_states(src, ids))))


@pytest.mark.parametrize("qtype", [QType.F32, QType.F16])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_float_graph_is_the_numpy_model(tmp_path: Path, arch: str, qtype: QType) -> None:
    src = source(tmp_path, arch, qtype)
    model, _ = build(src, "f32", lambda *_: None)
    np.testing.assert_allclose(run(request_of(model), IDS[None])[0], expected(src), atol=2e-3)


FORMS = [(qtype, form) for qtype in (QType.Q4_0, QType.Q4_1) for form in ("int8-32", "float-zero", "int4-sum")]
FORMS += [(QType.Q5_1, "int8-channel"), (QType.Q8_0, "int4-sum"), (QType.BF16, "int8-32"), (QType.BF16, "f16")]


@pytest.mark.parametrize(("qtype", "form"), FORMS)
def test_every_form_is_near_the_numpy_model(tmp_path: Path, qtype: QType, form: str) -> None:
    src = source(tmp_path, "llama", qtype)
    model, forms = build(src, form, lambda *_: None)
    found, want = run(request_of(model), IDS[None])[0], expected(src)
    exact = form in ("float-zero", "int4-sum") and qtype in (QType.Q4_0, QType.Q4_1)
    assert np.sqrt(np.square(found - want).mean()) < (2e-3 if exact else 0.03) * want.std() * 3
    assert sum(forms.values()) == 4 * tiny.LAYERS + 2


def test_a_wrong_row_order_would_show(tmp_path: Path) -> None:
    """Reading the same file as if q and k were in halves, as qwen2 files are, gives other logits."""
    src = source(tmp_path, "llama")
    right = expected(src)
    src.architecture = "qwen2"
    model, _ = build(src, "f32", lambda *_: None)
    assert np.abs(run(request_of(model), IDS[None])[0] - right).max() > 0.5


def test_llama_3_frequency_factors_are_used(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, tiny.HEAD_DIM // 2).astype(np.float32)
    plain = source(tmp_path, "llama")
    src = source(tmp_path, "llama", parts=tensors("llama") | {"rope_freqs.weight": factors})
    np.testing.assert_allclose(src.shape.inv_freq, plain.shape.inv_freq / factors, rtol=1e-6)
    model, _ = build(src, "f32", lambda *_: None)
    np.testing.assert_allclose(run(request_of(model), IDS[None])[0], expected(src), atol=2e-3)


def test_linear_rope_scaling_is_used(tmp_path: Path) -> None:
    def scaled(writer: tiny.GGUFWriter) -> None:
        writer.add_string("llama.rope.scaling.type", "linear")
        writer.add_float32("llama.rope.scaling.factor", 4.0)

    plain, src = source(tmp_path, "llama", QType.F16), source(tmp_path, "llama", change=scaled)
    np.testing.assert_allclose(src.shape.inv_freq * 4, plain.shape.inv_freq, rtol=1e-6)


def test_tied_head_is_the_embedding(tmp_path: Path) -> None:
    src = source(tmp_path, "llama", QType.Q8_0, parts=tensors("llama", tied=True))
    model, forms = build(src, "int8-32", lambda *_: None)
    assert sum(forms.values()) == 4 * tiny.LAYERS + 1
    np.testing.assert_allclose(run(request_of(model), IDS[None])[0], expected(src), atol=0.05)


def test_cache_in_pieces_is_the_whole(tmp_path: Path) -> None:
    model, _ = build(source(tmp_path, "llama"), "f32", lambda *_: None)
    request = request_of(model)
    whole = run(request, IDS[None])[0]
    request.reset_state()
    pieces = [run(request, IDS[None, a:b], past=a)[0] for a, b in ((0, 9), (9, 10), (10, 40))]
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-3)


def test_left_padding_and_batch_rows_do_not_leak(tmp_path: Path) -> None:
    request = request_of(build(source(tmp_path, "qwen2"), "f32", lambda *_: None)[0])
    alone = run(request, IDS[None, :10])[0]
    request.reset_state()
    batch = np.stack([np.concatenate([np.zeros(6, np.int64), IDS[:10]]), IDS[10:26]])
    mask = np.ones_like(batch)
    mask[0, :6] = 0
    together = run(request, batch, mask=mask)
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together[0, 6:], alone, atol=1e-3)


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_paged_graph_is_fused_and_the_same(tmp_path: Path, arch: str) -> None:
    from openvino._offline_transformations import paged_attention_transformation

    model, _ = build(source(tmp_path, arch), "int8-32", lambda *_: None)
    whole = run(request_of(model), IDS[None])[0]
    paged_attention_transformation(model, False, False, False, False, False, False, True)
    compiled = ov.Core().compile_model(model, "CPU", EXACT)
    kinds = collections.Counter(
        str(node.get_rt_info()["layerType"].value) for node in compiled.get_runtime_model().get_ops()
    )
    n = tiny.LAYERS
    assert kinds["PagedAttention"] == n
    assert kinds["RoPE"] == 2 * n
    assert kinds["RMS"] == 2 * n + 1 + (2 * n if arch == "qwen3" else 0)
    assert (kinds["FullyConnected"], kinds["MatMul"], kinds["Transpose"]) == (4 * n + 1, 0, 0)
    np.testing.assert_allclose(paged(compiled, IDS), whole, atol=2e-3)


def paged(compiled: ov.CompiledModel, ids: np.ndarray) -> np.ndarray:
    """Logits (T, V) of one sequence read at once."""
    request, n_blocks = compiled.create_infer_request(), 2
    for port in compiled.inputs:
        if port.any_name.startswith(("key_cache", "value_cache")):
            dims = [n_blocks, *(d.get_length() for d in list(port.partial_shape)[1:])]
            request.set_tensor(port.any_name, ov.Tensor(port.element_type, ov.Shape(dims)))
    n = len(ids)
    feed = {
        "input_ids": ids.astype(np.int64),
        "position_ids": np.arange(n, dtype=np.int64),
        "max_context_len": np.array(n, np.int32),
        "past_lens": np.zeros(1, np.int32),
        "subsequence_begins": np.array([0, n], np.int32),
        "block_indices": np.arange(n_blocks, dtype=np.int32),
        "block_indices_begins": np.array([0, n_blocks], np.int32),
        "qq_bias": np.zeros(0, np.uint8),
        "qq_bias_begins": np.zeros(2, np.int32),
    }
    for name, value in feed.items():
        request.set_tensor(name, ov.Tensor(value))
    request.infer()
    return request.get_tensor("logits").data[:, 0].copy()
