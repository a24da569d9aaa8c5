"""Models of random weights at real sizes: what a size costs in time can be measured without anybody's weights.

No file of a large model has to be here, and no memory for one: every matrix is a window, at its own place, of one block
of random codes, so that writing takes the memory of the largest matrix. Graph, forms and folder are those of an import
(gguf_graph.py). The text of such a model means nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wager.errors import OptionError
from wager.home import atomic_folder
from wager.models.describe import IMPORTER
from wager.models.gguf import Progress, versions, write_json, write_model
from wager.models.gguf_read import CONTROL, Shape, Special, frequencies
from wager.models.gguf_text import BYTE, UNUSED, write_scored
from wager.models.weights import U8, Stored
from wager.types import F32, JSON

FORMS = ("int4-32", "int4-64", "int4-128", "int8-channel")
_SIZES = ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "vocab")
_SLACK = 1 << 20  # codes beyond the largest matrix: windows begin anywhere in them, so no two matrices are equal
_STRIDE = 65_599  # odd, and far from any row length: neighbouring windows have nothing in common row by row
_OTHER_BYTES = 32_000_000  # graph and tokenizer
_CONTEXT = 8192
_END = 256  # the id after those of the bytes


def _shape(architecture: str, sizes: tuple[int, ...], *, rope_base: float, tied: bool = True) -> Shape:
    given: dict[str, Any] = dict(zip(_SIZES, sizes, strict=True))
    inv_freq = frequencies(rope_base, given["head_dim"]).astype(np.float32)
    shared: dict[str, Any] = {"context_length": _CONTEXT, "eps": 1e-5, "rope_base": rope_base}
    return Shape(architecture=architecture, inv_freq=inv_freq, tied=tied, **given, **shared)


# layers, hidden, heads, K/V heads, head size, MLP, vocabulary: from the models' own config.json
SHAPES = {
    "smollm2-135m": _shape("llama", (30, 576, 9, 3, 64, 1536, 49152), rope_base=1e5),
    "smollm2-360m": _shape("llama", (32, 960, 15, 5, 64, 2560, 49152), rope_base=1e5),
    "qwen3-0.6b": _shape("qwen3", (28, 1024, 16, 8, 128, 3072, 151936), rope_base=1e6),
    "llama-3.2-1b": _shape("llama", (16, 2048, 32, 8, 64, 8192, 128256), rope_base=5e5),
    "qwen3-1.7b": _shape("qwen3", (28, 2048, 16, 8, 128, 6144, 151936), rope_base=1e6),
    "llama-3.2-3b": _shape("llama", (28, 3072, 24, 8, 128, 8192, 128256), rope_base=5e5),
    "llama-3.1-8b": _shape("llama", (32, 4096, 32, 8, 128, 14336, 128256), rope_base=5e5, tied=False),
}


def shape_named(text: str) -> Shape:
    """A shape of ``SHAPES``, one with some sizes changed (``llama-3.2-1b:n_layers=4``), or free: all seven sizes.

    Raises ``OptionError`` for a name or size that is not known, and for sizes that do not fit together.
    """
    name, _, changes = text.partition(":")
    sizes: dict[str, int] = {}
    for change in [part for part in (changes or (name if "=" in name else "")).split(",") if part]:
        key, _, value = change.partition("=")
        if key not in _SIZES or not value.isdecimal() or int(value) < 1:
            raise OptionError(f"`--shape` has `{change}`: give SIZE=NUMBER, sizes are {', '.join(_SIZES)}")
        sizes[key] = int(value)
    if name in SHAPES:
        shape = replace(SHAPES[name], **sizes)  # type: ignore[arg-type]
        shape = replace(shape, inv_freq=frequencies(shape.rope_base, shape.head_dim).astype(np.float32))
    elif set(sizes) == set(_SIZES):
        shape = _shape("llama", tuple(sizes[key] for key in _SIZES), rope_base=1e5)
    else:
        raise OptionError(
            f"`--shape` is `{text}`: give one of {', '.join(SHAPES)}, with sizes as in llama-3.2-1b:n_layers=4, "
            f"or all of {', '.join(_SIZES)}"
        )
    if shape.n_heads % shape.n_kv_heads or shape.head_dim % 2 or shape.vocab <= _END:
        raise OptionError(
            f"`--shape` is `{text}`: n_heads must be a multiple of n_kv_heads, head_dim even, vocab above {_END}"
        )
    return shape


@dataclass(slots=True)
class RandomWeights:
    """``gguf_graph.Weights`` without a file. Int4 forms are symmetric, and leave embedding and head int8 per row.

    Products keep the variance of what they are given, so activations stay finite and normal (denormals take time).
    """

    shape: Shape
    seed: int
    special: Special = field(default_factory=lambda: Special(bos=None, pad=_END, end=(_END,)))
    _codes: U8 = field(init=False)
    _factors: F32 = field(init=False)
    _scales: dict[float, F32] = field(default_factory=dict)  # by what the factors were divided by
    _at: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        (n_ids, hidden), *layer = _matrices(self.shape)
        n_most = max(rows * cols for rows, cols in layer)
        self._codes = rng.integers(0, 256, max(n_ids * hidden, n_most) + _SLACK, np.uint8)
        factors = rng.uniform(0.5, 1.5, max(n_ids, n_most // 32) + _SLACK).astype(np.float32)
        self._factors = factors * rng.choice(np.array([-1, 1], np.float32), len(factors))

    @property
    def architecture(self) -> str:
        return self.shape.architecture

    def stored(self, names: list[str], rows: list[int], cols: int, form: str, *, gathered: bool) -> list[Stored]:
        """One matrix (rows of all, cols): a window of the codes, and one of the scales."""
        n_rows, group = sum(rows), _group(form)
        if gathered or group == 0 or names == ["output.weight"]:
            codes = self._window(self._codes, (n_rows, 1, cols)).view(np.int8)
            return [Stored("i8", n_rows, cols, codes, self._scaled((n_rows, 1, 1), cols, 74.0), kept=True)]
        codes = self._window(self._codes, (n_rows, cols // group, group // 2))
        scale = self._scaled((n_rows, cols // group, 1), cols, 4.6)
        return [Stored("i4", n_rows, cols, codes, scale, kept=True)]

    def vector(self, name: str, size: int) -> F32:
        return np.ones(size, np.float32)

    def bias(self, name: str, size: int) -> F32 | None:
        return None

    def _scaled(self, shape: tuple[int, ...], cols: int, deviation: float) -> F32:
        """Scales with which codes of this standard deviation have a variance near 1 / cols."""
        size = deviation * cols**0.5
        if size not in self._scales:
            self._scales[size] = self._factors / np.float32(size)
        scales: F32 = self._window(self._scales[size], shape)
        return scales

    def _window(self, block: Any, shape: tuple[int, ...]) -> Any:
        self._at = (self._at + _STRIDE) % _SLACK
        return block[self._at : self._at + int(np.prod(shape))].reshape(shape)


def _group(form: str) -> int:
    return int(form.removeprefix("int4-")) if form.startswith("int4-") else 0


def check_form(shape: Shape, form: str) -> None:
    """Raises ``OptionError`` for a form that random models do not have, or that a shape's sizes do not allow."""
    if form not in FORMS:
        raise OptionError(f"`--form` is `{form}`: give one of {', '.join(FORMS)}")
    group = _group(form)
    if group and any(cols % group for _, cols in _matrices(shape)):
        raise OptionError(
            f"`--form` is `{form}`, but a matrix has inputs that are no multiple of {group}: give another"
        )


def _matrices(shape: Shape) -> list[tuple[int, int]]:
    """(rows, cols) of each kind of matrix, joined as the graph has them: embedding, then those of a layer."""
    heads, kv_heads = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    layer = [(heads + 2 * kv_heads, shape.hidden), (shape.hidden, heads), (2 * shape.ffn, shape.hidden)]
    return [(shape.vocab, shape.hidden), *layer, (shape.hidden, shape.ffn)]


def folder_name(name: str, form: str, seed: int) -> str:
    """What a model of random weights is called under WAGER_HOME; it never looks like a real one."""
    return f"random-{re.sub('[^A-Za-z0-9.]+', '-', name)}-{form}-seed{seed}"


def n_bytes(shape: Shape, form: str) -> int:
    """What the weights of a folder take on disk, near enough."""
    (embedding, *layer), group = _matrices(shape), _group(form)
    a_weight = 0.5 + 4 / group if group else 1.0
    head = (1 if shape.tied else 2) * embedding[0] * embedding[1]
    return int(head + a_weight * shape.n_layers * sum(rows * cols for rows, cols in layer))


def write_random(
    out_dir: Path, name: str, shape: Shape, *, form: str = "int4-64", seed: int = 0, progress: Progress | None = None
) -> JSON:
    """Write a model of random weights to the folder ``out_dir``, whole or not at all; returns its provenance.

    ``name``: of the shape. The tokenizer knows the 256 bytes; every other id has a made-up piece. Raises
    ``OptionError`` for a form that the shape does not allow, ``CapacityError`` where the disk is too small.
    """
    check_form(shape, form)
    step = progress or (lambda what, done, total: None)
    with atomic_folder(out_dir, needed_bytes=n_bytes(shape, form) + _OTHER_BYTES) as folder:
        weights = RandomWeights(shape, seed)
        write_scored(_Vocabulary(shape.vocab, weights.special), folder)
        forms = write_model(weights, form, folder, step)
        made: JSON = {
            "source": {
                "name": f"random weights in the shape of {name}, seed {seed}: for timing, its text means nothing"
            },
            "random_weights": True,
            "architecture": shape.architecture,
            "context_length": shape.context_length,
            "vocab_size": shape.vocab,
            "form": form,
            "importer": IMPORTER,
            "matrices": forms,
            "versions": versions(),
        }
        write_json(folder / "wager.json", made)
    return made


class _Vocabulary:
    """What ``gguf_text`` asks of a file: bytes, an end of text, and pieces that no text means."""

    def __init__(self, n_ids: int, special: Special) -> None:
        self.special = special
        n_made_up = n_ids - _END - 1
        tokens = [*(f"<0x{byte:02X}>" for byte in range(_END)), "<|end|>", *(f"<unused{i}>" for i in range(n_made_up))]
        kinds = [*[BYTE] * _END, CONTROL, *[UNUSED] * n_made_up]
        self._values = {"tokens": tokens, "token_type": kinds, "scores": [0.0] * n_ids, "unknown_token_id": _END}

    def value(self, key: str, default: Any = None) -> Any:
        return self._values.get(key.removeprefix("tokenizer.ggml."), default)
