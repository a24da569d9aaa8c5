"""What a GGUF file says about a model of the llama family, checked before anything is built from it.

Gemma 3 differs by shape alone: norms after attention and MLP, a scaled embedding, and layers with a sliding window.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as QType
from gguf import GGUFReader

from wager.errors import ModelError
from wager.models.weights import SUPPORTED, Stored, dequantise, joined, store, widened
from wager.types import F32, F64

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
# Control tokens that end a turn or a document, by their text: chat models often name only one of them as eos.
_ENDINGS = frozenset(("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>"))
_ENDINGS |= {"<end_of_turn>"}
CONTROL = 3  # token type
_GEMMA_PERIOD = 6  # of its layers, each last one sees the whole text (Gemma 3 report, 2503.19786)
_GEMMA_27B_LAYERS = 62


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Sizes of a llama-family model. ``inv_freq`` (head_dim / 2,) float32: radians per position, scaling included.

    ``window``: tokens that a local layer sees, its own included, 0 where every layer sees all; ``local_inv_freq`` is
    theirs, and each ``period``-th layer is not local.
    """

    architecture: str
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    eps: float
    rope_base: float
    inv_freq: F32
    tied: bool
    window: int = 0
    period: int = 1
    local_inv_freq: F32 | None = None

    @property
    def head_norms(self) -> bool:
        """Whether each head of q and k is normalised."""
        return self.architecture in ("qwen3", "gemma3")

    @property
    def is_gemma(self) -> bool:
        """Whether norms follow attention and MLP, the embedding is scaled, and the MLP's gate is a GELU."""
        return self.architecture == "gemma3"

    @property
    def embedding_scale(self) -> float:
        return float(np.sqrt(self.hidden)) if self.is_gemma else 1.0

    def is_local(self, layer: int) -> bool:
        return self.window > 0 and (layer + 1) % self.period != 0


@dataclass(frozen=True, slots=True)
class Special:
    """Ids and chat template that come with the vocabulary; ``end`` are all ids that end an answer, eos first."""

    bos: int | None
    pad: int | None
    end: tuple[int, ...]
    sampling: dict[str, float] = field(default_factory=dict)


class Source:
    """An open GGUF file: ``shape``, ``special``, and tensors by name, read on demand from the mapped file.

    Raises ``ModelError`` for a file that is missing, damaged, or of a kind that is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _open(path)
        self.tensors = {t.name: t for t in self._reader.tensors}
        self.architecture = str(self.value("general.architecture", "?"))
        _check_kind(self)
        self.shape = _shape(self)
        self.special = _special(self)
        self.histogram = _histogram(self)

    def value(self, key: str, default: Any = None) -> Any:
        """A metadata value, ``default`` when absent."""
        found = self._reader.fields.get(key)
        return default if found is None else found.contents()

    def need(self, key: str) -> Any:
        """A metadata value of this architecture; ``ModelError`` when absent."""
        value = self.value(f"{self.architecture}.{key}")
        if value is None:
            raise ModelError(f"`{self.path.name}` lacks `{self.architecture}.{key}`: fetch or convert it again")
        return value

    def matrix(self, name: str, rows: int, cols: int) -> tuple[npt.NDArray[Any], QType]:
        """Raw rows (rows, bytes or cols) and type of a tensor; ``ModelError`` when absent or of another size."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelError(f"`{self.path.name}` lacks the tensor `{name}`: the file is damaged, fetch it again")
        found = tuple(int(n) for n in reversed(tensor.shape))
        if found != (rows, cols):
            raise ModelError(f"`{name}` in `{self.path.name}` is {found}, expected {(rows, cols)}: fetch it again")
        return tensor.data, tensor.tensor_type

    def vector(self, name: str, size: int) -> F32:
        """A one-dimensional tensor as float32 (size,)."""
        tensor = self.tensors.get(name)
        if tensor is None or [int(n) for n in tensor.shape] != [size]:
            raise ModelError(f"`{self.path.name}` lacks the tensor `{name}` of {size} numbers: fetch it again")
        return dequantise(tensor.data.reshape(1, -1), tensor.tensor_type).reshape(-1)

    # -- as the graph wants them (gguf_graph.Weights) ------------------------------------------------------------

    def stored(self, names: list[str], rows: list[int], cols: int, form: str, *, gathered: bool) -> list[Stored]:
        """The matrices in ``form`` as one (rows of all), or one each where their forms differ."""
        form = "int8-32" if gathered and form in ("float-zero", "int4-sum") else form
        parts = []
        for name, n_rows in zip(names, rows, strict=True):
            data, qtype = self.matrix(name, n_rows, cols)
            order = self._row_order(name, n_rows)
            parts.append(store(name, data if order is None else data[order], qtype, form))
        one = joined(parts)
        parts = parts if one is None else [one]
        return [widened(part) for part in parts] if gathered else parts

    def bias(self, name: str, size: int) -> F32 | None:
        """What is added to a product, in the order of the matrix's rows; None where the file has none."""
        if name not in self.tensors:
            return None
        order = self._row_order(name, size)
        return self.vector(name, size) if order is None else self.vector(name, size)[order]

    def _row_order(self, name: str, rows: int) -> npt.NDArray[np.int64] | None:
        """llama files interleave the two halves of each q and k head for a rotation of neighbours; undo it by rows."""
        if self.architecture != "llama" or (".attn_q." not in name and ".attn_k." not in name):
            return None
        head = self.shape.head_dim
        return np.arange(rows).reshape(-1, head // 2, 2).swapaxes(1, 2).reshape(-1)


def _open(path: Path) -> GGUFReader:
    if not path.is_file():
        raise ModelError(f"`{path}` is not a file: give the path of a .gguf file")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelError(f"`{path}` starts with {magic!r}, not with GGUF: it is no GGUF file or was not fetched whole")
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, TypeError, UnicodeDecodeError, struct.error) as error:
        size = path.stat().st_size / 1e6
        raise ModelError(f"`{path}` ({size:.1f} MB) is cut short or damaged: fetch it again ({error})") from error


def _check_kind(source: Source) -> None:
    name, arch = source.path.name, source.architecture
    if arch not in ARCHITECTURES:
        raise ModelError(f"`{name}` is of architecture `{arch}`: supported are {', '.join(ARCHITECTURES)}")
    if int(source.value("split.count", 1)) > 1:
        raise ModelError(f"`{name}` is one of {source.value('split.count')} parts: join them with gguf-split --merge")
    if int(source.value(f"{arch}.expert_count", 0)):
        raise ModelError(f"`{name}` is a mixture of experts, which is not supported: use a dense model")
    window = source.value(f"{arch}.attention.sliding_window")
    if arch == "gemma3":
        _check_gemma(source)
    elif window and int(np.max(window)) < int(source.need("context_length")):
        raise ModelError(f"`{name}` has a sliding window of {window}, which is not supported: use another model")
    kinds = {t.tensor_type.name for t in source.tensors.values()} - set(SUPPORTED)
    if kinds:
        raise ModelError(f"`{name}` is quantised as {', '.join(sorted(kinds))}: supported are {', '.join(SUPPORTED)}")
    for key in ("tokenizer.ggml.model", "tokenizer.ggml.tokens"):
        if source.value(key) is None:
            raise ModelError(f"`{name}` has no tokenizer (`{key}`): convert it again with its vocabulary")


def _check_gemma(source: Source) -> None:
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if source.value(f"{source.architecture}.{key}"):
            raise ModelError(f"`{source.path.name}` caps logits (`{key}`), which is not supported: use another model")
    if int(source.need("block_count")) == _GEMMA_27B_LAYERS:
        raise ModelError(f"`{source.path.name}` scales queries as only Gemma 3 27B does: use a smaller one")


def _shape(source: Source) -> Shape:
    embedding = source.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"`{source.path.name}` lacks the tensor `token_embd.weight`: fetch it again")
    n_heads = _one_number(source, "attention.head_count")
    hidden = int(source.need("embedding_length"))
    arch = source.architecture
    head_dim = int(source.value(f"{arch}.attention.key_length", hidden // n_heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if int(source.value(f"{arch}.{key}", head_dim)) != head_dim:
            raise ModelError(
                f"`{source.path.name}` has `{arch}.{key}` other than its head size {head_dim}: not supported"
            )
    base = float(source.value(f"{arch}.rope.freq_base", 10000.0))
    shape = Shape(
        architecture=arch,
        n_layers=int(source.need("block_count")),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=_one_number(source, "attention.head_count_kv", n_heads),
        head_dim=head_dim,
        ffn=_one_number(source, "feed_forward_length"),
        vocab=int(embedding.shape[1]),
        context_length=int(source.need("context_length")),
        eps=float(source.need("attention.layer_norm_rms_epsilon")),
        rope_base=base,
        inv_freq=_inv_freq(source, base, head_dim),
        tied="output.weight" not in source.tensors,
        **_local_layers(source, head_dim),
    )
    unknown = set(source.tensors) - set(expected_tensors(shape))
    if unknown:
        names = ", ".join(f"`{n}`" for n in sorted(unknown)[:3])
        raise ModelError(f"`{source.path.name}` holds {names}, which {arch} models here have no use for: not supported")
    return shape


def _local_layers(source: Source, head_dim: int) -> dict[str, Any]:
    """The fields of ``Shape`` about sliding windows; none where every layer sees the whole text."""
    arch = source.architecture
    if arch != "gemma3":
        return {}
    base = float(source.value(f"{arch}.rope.freq_base_swa", 10000.0))
    return {
        "window": _one_number(source, "attention.sliding_window"),
        "period": _one_number(source, "attention.sliding_window_pattern", _GEMMA_PERIOD),
        "local_inv_freq": frequencies(base, head_dim).astype(np.float32),
    }


def _one_number(source: Source, key: str, default: int | None = None) -> int:
    value = source.value(f"{source.architecture}.{key}", default)
    value = source.need(key) if value is None else value
    numbers = set(np.atleast_1d(value).tolist())
    if len(numbers) != 1:
        raise ModelError(f"`{source.path.name}` has a `{key}` that differs between layers: not supported")
    return int(numbers.pop())


def _inv_freq(source: Source, base: float, head_dim: int) -> F32:
    """base^(-2 i / head_dim), divided by a linear factor or by the factors a Llama 3 file carries as a tensor."""
    found = frequencies(base, head_dim)
    prefix = f"{source.architecture}.rope.scaling"
    kind = str(source.value(f"{prefix}.type", "none"))
    factor = float(source.value(f"{prefix}.factor", source.value(f"{source.architecture}.rope.scale_linear", 1.0)))
    if kind not in ("none", "linear"):
        raise ModelError(f"`{source.path.name}` uses rope scaling `{kind}`: supported are none, linear, llama3 factors")
    if factor and factor != 1.0:
        found = found / factor
    if "rope_freqs.weight" in source.tensors:
        found = found / source.vector("rope_freqs.weight", head_dim // 2)
    return found.astype(np.float32)


def frequencies(base: float, head_dim: int) -> F64:
    """(head_dim / 2,) radians a position of rotary embedding."""
    return np.asarray(base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim))


def expected_tensors(shape: Shape) -> Iterable[str]:
    """Every tensor name that the graph can make use of."""
    yield from ("token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight")
    parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
    parts += ["attn_q_norm", "attn_k_norm"] if shape.head_norms else []
    parts += ["post_attention_norm", "post_ffw_norm"] if shape.is_gemma else []
    for layer in range(shape.n_layers):
        yield from (f"blk.{layer}.{part}.weight" for part in parts)
        yield from (f"blk.{layer}.attn_{part}.bias" for part in ("q", "k", "v", "output"))


def _special(source: Source) -> Special:
    def number(key: str) -> int | None:
        value = source.value(f"tokenizer.ggml.{key}_token_id")
        return None if value is None else int(value)

    tokens = source.value("tokenizer.ggml.tokens")
    kinds = source.value("tokenizer.ggml.token_type") or []
    named = [number(key) for key in ("eos", "eot", "eom")]
    by_text = [i for i, kind in enumerate(kinds) if kind == CONTROL and tokens[i] in _ENDINGS]
    end = tuple(dict.fromkeys(i for i in (*named, *by_text) if i is not None))
    sampling = {ours: source.value(key) for key, ours in _SAMPLING.items() if source.value(key) is not None}
    return Special(number("bos"), number("padding"), end, sampling)


def _histogram(source: Source) -> dict[str, int]:
    """Number of tensors by type."""
    names = [t.tensor_type.name for t in source.tensors.values()]
    return {name: names.count(name) for name in sorted(set(names))}
