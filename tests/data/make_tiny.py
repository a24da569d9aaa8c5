"""Make the tiny models beside this file (`python tests/data/make_tiny.py`): random weights, the same each time.

tiny-llama        2 layers, hidden 64, 4 heads and 2 K/V heads of 32, byte-level BPE, ChatML, int8 groups of 32
tiny-llama-b      the same plus noise: a draft model that is right fairly often
tiny-qwen3        another family (q/k norms, tied embedding) whose vocabulary is tiny-llama's in another order
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as QType
from gguf import GGUFWriter, LlamaFileType, quants

HERE = Path(__file__).parent
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT = 64, 2, 4, 2, 32, 128, 512
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
N_MERGES = 125
TEXT = """the quick brown fox jumps over the lazy dog and then the other one sits in the sun while the river
runs on to the sea where there is no more land to be seen and all that is left for them to do is to
wait and to listen for the answer that the wind will bring when it turns again in the morning after
the rain has gone and the light is back on the hills around"""
TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
Tensors = dict[str, np.ndarray]


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte 0 … 255 (Radford et al. 2019)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges): specials, bytes, then the most frequent pairs of TEXT, one after the other."""
    letters = byte_letters()
    words = [[letters[b] for b in (" " + word).encode()] for word in TEXT.split()]
    tokens, merges = SPECIALS + letters, []
    while len(merges) < N_MERGES:
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        left, right = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(f"{left} {right}")
        tokens.append(left + right)
        words = [_merge(word, left, right) for word in words]
    return tokens, merges


def _merge(word: list[str], left: str, right: str) -> list[str]:
    out: list[str] = []
    for letter in word:
        if out and out[-1] == left and letter == right:
            out[-1] = left + right
        else:
            out.append(letter)
    return out


def weights(seed: int, n_vocab: int, *, qwen3: bool = False, head_scale: float = 1.0) -> Tensors:
    """GGUF tensors, float32 (out, in)."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    def gain(size: int) -> np.ndarray:
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)

    out: Tensors = {"token_embd.weight": normal(n_vocab, HIDDEN, scale=1.0), "output_norm.weight": gain(HIDDEN)}
    if qwen3:
        out["output_norm.weight"] *= np.float32(head_scale)
    else:
        out["output.weight"] = normal(n_vocab, HIDDEN, scale=head_scale)
        out["output.weight"][: len(SPECIALS)] *= np.float32(0.5)  # answers should not end at once
    for i in range(LAYERS):
        out[f"blk.{i}.attn_norm.weight"] = gain(HIDDEN)
        out[f"blk.{i}.ffn_norm.weight"] = gain(HIDDEN)
        out[f"blk.{i}.attn_q.weight"] = normal(HEADS * HEAD_DIM, HIDDEN, scale=0.25)
        out[f"blk.{i}.attn_k.weight"] = normal(KV_HEADS * HEAD_DIM, HIDDEN, scale=0.25)
        out[f"blk.{i}.attn_v.weight"] = normal(KV_HEADS * HEAD_DIM, HIDDEN, scale=0.25)
        out[f"blk.{i}.attn_output.weight"] = normal(HIDDEN, HEADS * HEAD_DIM, scale=0.03)
        out[f"blk.{i}.ffn_gate.weight"] = normal(FFN, HIDDEN, scale=0.25)
        out[f"blk.{i}.ffn_up.weight"] = normal(FFN, HIDDEN, scale=0.25)
        out[f"blk.{i}.ffn_down.weight"] = normal(HIDDEN, FFN, scale=0.2)
        if qwen3:
            out[f"blk.{i}.attn_q_norm.weight"] = gain(HEAD_DIM) * np.float32(2)
            out[f"blk.{i}.attn_k_norm.weight"] = gain(HEAD_DIM)
    return out


def noisy(tensors: Tensors, seed: int, share: float) -> Tensors:
    """Every matrix plus ``share`` of its own spread in noise."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, value in tensors.items():
        noise = rng.standard_normal(value.shape) * value.std() * share
        out[name] = (value + noise).astype(np.float32) if value.ndim == 2 else value
    return out


def write_gguf(
    path: Path,
    arch: str,
    tensors: Tensors,
    tokens: list[str],
    merges: list[str],
    *,
    qtype: QType = QType.F32,
    change: Callable[[GGUFWriter], None] = lambda writer: None,
) -> None:
    """A complete GGUF file with its matrices as ``qtype``; ``change`` may add to the header before it is written."""
    writer = GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_file_type(LlamaFileType.GUESSED)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    if tokens:
        add_tokenizer(writer, tokens, merges)
    change(writer)
    for name, value in tensors.items():
        raw = quants.quantize(value, qtype) if value.ndim == 2 else value
        writer.add_tensor(name, raw, raw_dtype=qtype if value.ndim == 2 else QType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: GGUFWriter, tokens: list[str], merges: list[str]) -> None:
    """Vocabulary, special ids and chat template."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def make(folder: Path) -> None:
    """Write all three models below ``folder``."""
    from wager.models.gguf import import_gguf

    tokens, merges = vocabulary()
    order = np.random.default_rng(5).permutation(len(tokens))
    llama = weights(1, len(tokens), head_scale=0.8)
    models = {
        "tiny-llama": ("llama", llama, tokens),
        "tiny-llama-b": ("llama", noisy(llama, 2, 0.04), tokens),
        "tiny-qwen3": ("qwen3", weights(3, len(tokens), qwen3=True, head_scale=0.35), [tokens[i] for i in order]),
    }
    with tempfile.TemporaryDirectory() as place:
        for name, (arch, tensors, words) in models.items():
            path = Path(place) / f"{name}.gguf"
            write_gguf(path, arch, tensors, words, merges)
            import_gguf(path, folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
