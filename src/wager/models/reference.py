"""The llama family and Gemma 3 in plain numpy and float32: slow, obviously right; imported graphs are measured by it.

One matrix is dequantised at a time, so memory stays near that of the largest matrix. Written from the model definitions
(Touvron et al. 2023; Su et al. 2021 for the rotation; Ainslie et al. 2023 for grouped queries; 2503.19786 for Gemma 3),
not from the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wager.models.gguf_read import Source
from wager.models.weights import dequantise
from wager.types import F32


def hidden_states(source: Source, ids: Sequence[int]) -> F32:
    """Normalised states (T, H) float32 that the head turns into logits, for T token ids read from position 0."""
    shape = source.shape
    x = _rows(source, "token_embd.weight", shape.vocab, shape.hidden, np.asarray(ids))
    x = x * np.float32(shape.embedding_scale)
    for layer in range(shape.n_layers):
        prefix = f"blk.{layer}."
        h = _norm(x, source.vector(prefix + "attn_norm.weight", shape.hidden), shape.eps)
        x = x + _after(source, prefix + "post_attention_norm.weight", _attention(source, layer, h))
        h = _norm(x, source.vector(prefix + "ffn_norm.weight", shape.hidden), shape.eps)
        gate = h @ _matrix(source, prefix + "ffn_gate.weight", shape.ffn, shape.hidden).T
        up = h @ _matrix(source, prefix + "ffn_up.weight", shape.ffn, shape.hidden).T
        inner = (_gelu(gate) if shape.is_gemma else gate / (1 + np.exp(-gate))) * up
        down = inner @ _matrix(source, prefix + "ffn_down.weight", shape.hidden, shape.ffn).T
        x = x + _after(source, prefix + "post_ffw_norm.weight", down)
    return _norm(x, source.vector("output_norm.weight", shape.hidden), shape.eps)


def logits(source: Source, hidden: F32, *, rows: int = 64) -> Iterator[F32]:
    """Logits (<= ``rows``, V) float32 of the normalised states (T, H), in order."""
    shape = source.shape
    head = _matrix(source, "token_embd.weight" if shape.tied else "output.weight", shape.vocab, shape.hidden)
    for start in range(0, len(hidden), rows):
        yield hidden[start : start + rows] @ head.T


def _attention(source: Source, layer: int, h: F32) -> F32:
    """Causal attention over (T, H); query head i reads K/V head i // (n_heads / n_kv_heads)."""
    shape, prefix = source.shape, f"blk.{layer}."
    q = _projected(source, prefix + "attn_q", h, shape.n_heads)
    k = _projected(source, prefix + "attn_k", h, shape.n_kv_heads)
    v = _projected(source, prefix + "attn_v", h, shape.n_kv_heads)
    if shape.head_norms:
        q = _norm(q, source.vector(prefix + "attn_q_norm.weight", shape.head_dim), shape.eps)
        k = _norm(k, source.vector(prefix + "attn_k_norm.weight", shape.head_dim), shape.eps)
    neighbours = shape.architecture == "llama"
    inv_freq, unseen = shape.inv_freq, np.triu(np.ones((len(h), len(h)), np.bool_), 1)
    if shape.is_local(layer) and shape.local_inv_freq is not None:
        inv_freq, unseen = shape.local_inv_freq, unseen | np.tri(len(h), k=-shape.window, dtype=np.bool_)
    q, k = _rotate(q, inv_freq, neighbours=neighbours), _rotate(k, inv_freq, neighbours=neighbours)
    out = np.empty_like(q)
    for head in range(shape.n_heads):
        group = head // (shape.n_heads // shape.n_kv_heads)
        scores = q[:, head] @ k[:, group].T / np.float32(np.sqrt(shape.head_dim))
        scores[unseen] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, group]
    width = shape.n_heads * shape.head_dim
    y = out.reshape(len(h), width) @ _matrix(source, prefix + "attn_output.weight", shape.hidden, width).T
    return y + _bias(source, prefix + "attn_output.bias", shape.hidden)


def _projected(source: Source, name: str, h: F32, n_heads: int) -> F32:
    """(T, H) to (T, heads, head_dim)."""
    width = n_heads * source.shape.head_dim
    y = h @ _matrix(source, name + ".weight", width, source.shape.hidden).T + _bias(source, name + ".bias", width)
    return np.asarray(y.reshape(len(h), n_heads, source.shape.head_dim))


def _rotate(x: F32, inv_freq: F32, *, neighbours: bool) -> F32:
    """Rotate pairs of x (T, heads, head_dim) by position * inv_freq: neighbours (2 i, 2 i + 1) as llama files store
    them, else (i, i + head_dim / 2)."""
    angle = np.arange(len(x), dtype=np.float32)[:, None, None] * inv_freq
    cos, sin = np.cos(angle), np.sin(angle)
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    turned = (a * cos - b * sin, a * sin + b * cos)
    return np.stack(turned, -1).reshape(x.shape) if neighbours else np.concatenate(turned, -1)


def _norm(x: F32, gain: F32, eps: float) -> F32:
    return np.asarray(x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * gain)


def _after(source: Source, name: str, x: F32) -> F32:
    """What follows attention and MLP: in Gemma a norm."""
    shape = source.shape
    return _norm(x, source.vector(name, shape.hidden), shape.eps) if shape.is_gemma else x


def _gelu(x: F32) -> F32:
    """The tanh approximation of Hendrycks and Gimpel (1606.08415)."""
    return np.asarray(x / 2 * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3))))


def _matrix(source: Source, name: str, rows: int, cols: int) -> F32:
    return dequantise(*source.matrix(name, rows, cols))


def _rows(source: Source, name: str, rows: int, cols: int, ids: np.ndarray) -> F32:
    data, qtype = source.matrix(name, rows, cols)
    return dequantise(data[ids], qtype)


def _bias(source: Source, name: str, size: int) -> F32:
    return source.vector(name, size) if name in source.tensors else np.zeros(size, np.float32)
