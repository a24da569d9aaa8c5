"""A tiny llama with layers to skip: the one that is checked in has a first and a last layer only."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from wager.drafters.drawing import Drawing
from wager.models.gguf import import_gguf
from wager.models.openvino import OpenVINOModel
from wager.types import Batch

N_LAYERS = 6
COUPLED = Drawing()
_MADE_BY = Path(__file__).parent / "data" / "make_tiny.py"


def make_deep(folder: Path) -> Path:
    """An IR folder; the middle layers say less than the outer ones, so that some drafts without them are right."""
    spec = importlib.util.spec_from_file_location("make_tiny", _MADE_BY)
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    tiny.LAYERS = N_LAYERS
    tokens, merges = tiny.vocabulary()
    tensors = tiny.weights(1, len(tokens), head_scale=0.8)
    for layer in range(1, N_LAYERS - 1):
        for part in ("attn_output", "ffn_down"):
            tensors[f"blk.{layer}.{part}.weight"] *= np.float32(0.4)
    tiny.write_gguf(folder / "deep.gguf", "llama", tensors, tokens, merges)
    import_gguf(folder / "deep.gguf", folder / "deep")
    return folder / "deep"


def opened(ir_dir: Path, profile: str = "fast", *, kv_cache_bytes: int = 1 << 24) -> OpenVINOModel:
    return OpenVINOModel(ir_dir, profile=profile, threads=2, kv_cache_bytes=kv_cache_bytes, context_length=512)


def target_of(model: OpenVINOModel, ir_dir: Path, drawing: Drawing = COUPLED) -> SimpleNamespace:
    """What ``make`` of a self-drafter reads of ``drafting.DraftTarget``."""
    text = SimpleNamespace(eos_ids=frozenset((2,)))
    return SimpleNamespace(
        model=model, ir_dir=ir_dir, text=text, n_valid_ids=model.vocab_size, drawing=drawing, progress=None
    )


def batch_of(tokens: list[int], past: int, table: list[int], *, position: int | None = None) -> Batch:
    """One subsequence, with the logits of every row; the first at ``position``, or where its past ends."""
    n, first = len(tokens), past if position is None else position
    return Batch(
        np.array(tokens, np.int64),
        np.arange(first, first + n, dtype=np.int64),
        np.array([past], np.int32),
        np.array([0, n], np.int32),
        np.array(table, np.int32),
        np.array([0, len(table)], np.int32),
        np.arange(n, dtype=np.int64),
    )
