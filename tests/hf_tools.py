"""Tiny Hugging Face models with random weights, and what torch says of them: for the tests marked `convert`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiny_gguf import tiny
from wager.types import F32

WINDOW = 8  # of Gemma's first layer
KINDS = ("llama", "qwen2", "gemma3_text")


def make(kind: str, folder: Path) -> None:
    """Two layers of the shape of data/make_tiny.py, its vocabulary and chat template; the same weights each time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokens, _ = tiny.vocabulary()
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    more = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
    config = AutoConfig.for_model(
        kind,
        vocab_size=len(tokens),
        hidden_size=tiny.HIDDEN,
        intermediate_size=tiny.FFN,
        num_hidden_layers=tiny.LAYERS,
        num_attention_heads=tiny.HEADS,
        num_key_value_heads=tiny.KV_HEADS,
        head_dim=tiny.HEAD_DIM,
        max_position_embeddings=tiny.CONTEXT,
        initializer_range=0.15,
        **special,
        **(more if kind.startswith("gemma") else {}),
    )
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(config).eval().save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, merges = tiny.vocabulary()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    _, bos, eos = tiny.SPECIALS
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=bos, eos_token=eos, pad_token=eos, additional_special_tokens=tiny.SPECIALS
    )
    fast.chat_template = tiny.TEMPLATE
    return fast


def logits(folder: Path, ids: list[int]) -> F32:
    """(T, V) of torch in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).logits[0].numpy(), np.float32)
