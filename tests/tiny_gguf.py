"""Tiny GGUF files for tests: ``tiny`` is data/make_tiny.py as a module; beside it a Gemma with a scored vocabulary."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from gguf import GGMLQuantizationType as QType
from gguf import GGUFWriter

WINDOW, CONTROL, WHOLE, BYTE = 8, 3, 4, 6
SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<unused0>"]
TURNS = "{% for m in messages %}<start_of_turn>{{ m['role'] }}\n{{ m['content'] }}<end_of_turn>\n{% endfor %}"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny = _load(Path(__file__).parent / "data" / "make_tiny.py")


def scored(n_merges: int = 80) -> tuple[list[str], list[float], list[int]]:
    """Pieces, scores and types: specials, whole pieces, bytes, pieces that merge (best first), single letters."""
    whole = ["\n\n", "\n\n\n", "  ", "   ", "<b>"]
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    merged = [token.replace("Ġ", "▁") for token in tiny.vocabulary()[0][len(tiny.SPECIALS) + 256 :][:n_merges]]
    letters = sorted(set("".join(merged)) | set("abcdefghijklmnopqrstuvwxyzé▁.,\n"))
    tokens = [*SPECIALS, *whole, *raw, *merged, *letters]
    kinds = [CONTROL] * len(SPECIALS) + [WHOLE] * len(whole) + [BYTE] * 256 + [1] * (len(merged) + len(letters))
    n_first = len(SPECIALS) + len(whole)
    scores = [-1000.0] * n_first + [0.0] * 256 + [-float(i) for i in range(len(merged) + len(letters))]
    return tokens, scores, kinds


def add_scored(writer: GGUFWriter, n_merges: int, space_prefix: bool | None = False) -> None:
    """A scored vocabulary with its special ids and template."""
    tokens, scores, kinds = scored(n_merges)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    for name in ("bos", "eos", "pad", "unk"):
        getattr(writer, f"add_{name}_token_id")(tokens.index(f"<{name}>"))
    writer.add_add_bos_token(True)
    if space_prefix is not None:
        writer.add_add_space_prefix(space_prefix)
    writer.add_chat_template(TURNS)


def gemma_tensors(seed: int, n_vocab: int, *, head_scale: float = 0.2) -> dict[str, np.ndarray]:
    """Weights of two layers: the first with a window, the second without."""
    out = tiny.weights(seed, n_vocab, qwen3=True, head_scale=head_scale)
    out["token_embd.weight"] *= np.float32(tiny.HIDDEN**-0.5)
    rng = np.random.default_rng(seed + 1)
    for layer in range(tiny.LAYERS):
        for part in ("post_attention_norm", "post_ffw_norm"):
            out[f"blk.{layer}.{part}.weight"] = (1 + 0.1 * rng.standard_normal(tiny.HIDDEN)).astype(np.float32)
    return out


def write_gemma(
    path: Path,
    *,
    qtype: QType = QType.F32,
    seed: int = 21,
    n_merges: int = 80,
    space_prefix: bool | None = False,
    change: Callable[[GGUFWriter], None] = lambda writer: None,
) -> Path:
    """A gemma3 file, complete; ``change`` may add to the header."""

    def header(writer: GGUFWriter) -> None:
        writer.add_sliding_window(WINDOW)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", tiny.LAYERS)
        add_scored(writer, n_merges, space_prefix)
        change(writer)

    tensors = gemma_tensors(seed, len(scored(n_merges)[0]))
    tiny.write_gguf(path, "gemma3", tensors, [], [], qtype=qtype, change=header)
    return path
