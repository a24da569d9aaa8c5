"""GGUF to an OpenVINO IR folder that wager, optimum-intel and openvino-genai can all load."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino as ov

from wager.errors import ModelError
from wager.home import atomic_folder
from wager.models.describe import DEFAULT_FORM, IMPORTER
from wager.models.gguf_graph import Weights, build
from wager.models.gguf_read import Shape, Source
from wager.models.gguf_text import write_tokenizer
from wager.models.weights import check_form
from wager.models.wheel import sha256_of

Progress = Callable[[str, int, int], None]
_FULL_BYTES = 1 << 20  # less than this left after a failed write: that was why
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
_BYTES_PER_WEIGHT = {
    "int8-channel": 1.01,
    "int8-32": 1.13,
    "float-zero": 0.76,
    "int4-sum": 0.76,
    "f16": 2.0,
    "f32": 4.0,
}


def import_gguf(gguf_path: Path, out_dir: Path, *, form: str = DEFAULT_FORM, progress: Progress | None = None) -> None:
    """Write the model in ``gguf_path`` to the folder ``out_dir`` with its matrices in ``form`` (weights.py).

    The folder holds a stateful graph (input_ids, attention_mask, position_ids (B, n), beam_idx (B,) → logits
    (B, n, V)), tokenizer, detokenizer, config.json, generation_config.json and wager.json (where it came from). It
    appears whole or not at all. ``progress(what, done, total)`` is called along the way.

    Raises ``ModelError`` for a damaged or unsupported file, ``CapacityError`` when the disk is full, ``OptionError``
    for an unknown form.
    """
    check_form(form)
    step = progress or (lambda what, done, total: None)
    step("read", 0, 1)
    source = Source(gguf_path)
    n_weights = sum(int(t.n_elements) for t in source.tensors.values())
    needed = int(n_weights * _BYTES_PER_WEIGHT[form]) + 8_000_000
    step("read", 1, 1)
    with atomic_folder(out_dir, needed_bytes=needed) as folder:
        write_tokenizer(source, folder)
        forms = write_model(source, form, folder, step)
        write_json(folder / "wager.json", _provenance(source, form, forms))


def write_model(source: Weights, form: str, folder: Path, step: Progress) -> dict[str, int]:
    """The graph and its configuration, without a tokenizer. Returns how many matrices became which form."""
    model, forms = build(source, form, step)
    step("write", 0, 1)
    save(model, folder / "openvino_model.xml")
    write_json(folder / "config.json", _config(source))
    write_json(folder / "generation_config.json", _generation_config(source))
    step("write", 1, 1)
    return dict(forms)


def save(model: ov.Model, path: Path) -> None:
    """Write xml and bin, then read them back. A full disk is an ``OSError`` here as it is everywhere else."""
    try:
        ov.serialize(model, str(path))
        ov.Core().read_model(str(path))
    except RuntimeError as error:
        if shutil.disk_usage(path.parent).free < _FULL_BYTES:
            raise OSError(errno.ENOSPC, str(error), str(path)) from error
        raise ModelError(f"`{path}` could not be written ({error}): check the disk and its quota") from error


def _config(source: Weights) -> dict[str, Any]:
    shape, special = source.shape, source.special
    return {
        "architectures": [_CLASSES[shape.architecture]],
        "model_type": "gemma3_text" if shape.is_gemma else shape.architecture,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_base,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "gelu_pytorch_tanh" if shape.is_gemma else "silu",
        "bos_token_id": special.bos,
        "eos_token_id": special.end[0] if special.end else None,
        "pad_token_id": special.pad,
        **_local_layers(shape),
    }


def _local_layers(shape: Shape) -> dict[str, Any]:
    """What config.json says of sliding windows, in the words of transformers."""
    if not shape.window:
        return {}
    kinds = ["sliding_attention" if shape.is_local(layer) else "full_attention" for layer in range(shape.n_layers)]
    return {"sliding_window": shape.window, "layer_types": kinds}


def _generation_config(source: Weights) -> dict[str, Any]:
    special = source.special
    ids = {"bos_token_id": special.bos, "eos_token_id": list(special.end) or None, "pad_token_id": special.pad}
    sampling: dict[str, Any] = dict(special.sampling)
    if sampling.get("temperature", 0) > 0:
        sampling["do_sample"] = True
    return {key: value for key, value in ids.items() if value is not None} | sampling


def _provenance(source: Source, form: str, forms: dict[str, int]) -> dict[str, Any]:
    return {
        "source": {
            "name": source.path.name,
            "bytes": source.path.stat().st_size,
            "sha256": sha256_of(source.path),
            "title": source.value("general.name"),
            "license": source.value("general.license"),
            "tensors": source.histogram,
        },
        "architecture": source.architecture,
        "context_length": source.shape.context_length,
        "vocab_size": source.shape.vocab,
        "form": form,
        "importer": IMPORTER,
        "matrices": forms,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What made a folder."""
    from importlib.metadata import version

    return {name: version(name) for name in ("wager", "openvino", "openvino-genai", "gguf")}


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
