"""What an OpenVINO model folder holds, read from its small files only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wager.errors import ModelError

DEFAULT_FORM = "int8-32"  # of imported GGUF files: the forms are in weights.py
IMPORTER = 1  # raised when folders that older versions imported should be made again
_MB = 1 << 20
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """``quantisation`` is the form of the weights here, ``source_tensors`` the types they had in the source file.

    ``n_bytes`` is the size of the weights. ``sampling`` holds what the model's generation_config asks for, under the
    names of ``wager.Sampling``; empty means greedy.
    """

    name: str
    path: Path
    architecture: str
    context_length: int
    vocab_size: int
    n_bytes: int
    quantisation: str
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    source_name: str | None = None
    source_sha256: str | None = None
    source_tensors: Mapping[str, int] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)


def check_ir(folder: Path, *, said: str | None = None) -> None:
    """Raise ``ModelError`` with the first part that ``folder`` (called ``said``) lacks, and how to get it."""
    name = said or str(folder)
    for file in ("openvino_model.xml", "openvino_model.bin", "config.json"):
        if not (folder / file).is_file():
            raise ModelError(
                f"`{name}` has no {file}: make the folder with `optimum-cli export openvino --model OWNER/NAME FOLDER`"
            )
    for kind in ("tokenizer", "detokenizer"):
        for end in ("xml", "bin"):
            if not (folder / f"openvino_{kind}.{end}").is_file():
                raise ModelError(
                    f"`{name}` has no openvino_{kind}.{end}: "
                    "make it with `convert_tokenizer OWNER/NAME --with-detokenizer -o FOLDER`"
                )


def describe(ir_dir: Path) -> ModelInfo:
    """Read config.json, generation_config.json and wager.json of a folder. ``ModelError`` when one is damaged."""
    check_ir(ir_dir)
    config = _json(ir_dir / "config.json")
    config = {**config, **config.get("text_config", {})}
    generation = _json(ir_dir / "generation_config.json")
    made = provenance(ir_dir)
    source = made.get("source", {})
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    return ModelInfo(
        name=ir_dir.resolve().name,
        path=ir_dir,
        architecture=str(config.get("model_type", "?")),
        context_length=_number(config, _LENGTHS, ir_dir),
        vocab_size=_number(config, ("vocab_size",), ir_dir),
        n_bytes=(ir_dir / "openvino_model.bin").stat().st_size,
        quantisation=_quantisation(ir_dir, made),
        bos_id=generation.get("bos_token_id", config.get("bos_token_id")),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        pad_id=generation.get("pad_token_id", config.get("pad_token_id")),
        source_name=source.get("name"),
        source_sha256=source.get("sha256"),
        source_tensors=source.get("tensors", {}),
        sampling=_sampling(generation),
    )


def provenance(ir_dir: Path) -> dict[str, Any]:
    """The content of wager.json; empty for a folder that was not imported by us."""
    return _json(ir_dir / "wager.json")


def model_hash(ir_dir: Path) -> str:
    """64 hex digits that change with the graph and, short of reading gigabytes, with the weights: SHA-256 of the whole
    xml, the size of the bin, and its first and last megabyte."""
    digest = hashlib.sha256((ir_dir / "openvino_model.xml").read_bytes())
    path = ir_dir / "openvino_model.bin"
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_MB))
        file.seek(max(0, size - _MB))
        digest.update(file.read(_MB))
    return digest.hexdigest()


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, {} when there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"`{path}` is damaged ({error}): fetch or export the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"`{path}` holds no JSON object: fetch or export the model again")
    return content


def _number(config: Mapping[str, Any], names: tuple[str, ...], ir_dir: Path) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise ModelError(f"`{ir_dir / 'config.json'}` lacks `{names[0]}`: copy config.json from the original model")


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """The defaults of a generation_config; ``do_sample`` false or absent means greedy, as in transformers."""
    if not generation.get("do_sample", False):
        return {}
    given = {name: generation[name] for name in _SAMPLING if isinstance(generation.get(name), int | float)}
    return {"temperature": 1.0, **given}


def _quantisation(ir_dir: Path, made: Mapping[str, Any]) -> str:
    """The form we gave it, or what the exporter wrote down; "unknown" is honest for the rest."""
    if "form" in made:
        return str(made["form"])
    config = _json(ir_dir / "openvino_config.json").get("quantization_config") or {}
    bits, group = config.get("bits"), config.get("group_size")
    if bits is None:
        return str(config.get("dtype", "unknown"))
    return f"int{bits}" + (f"-{group}" if isinstance(group, int) and group > 0 else "-channel")
