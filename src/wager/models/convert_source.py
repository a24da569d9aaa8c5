"""What can be converted, as an OpenVINO folder at full precision: GGUF, OpenVINO, Hugging Face, here or on the hub."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from wager.errors import ModelError
from wager.home import models_home, scratch_folder
from wager.models import catalog, hub
from wager.models.describe import check_ir, provenance
from wager.models.wheel import sha256_of
from wager.types import JSON

Progress = Callable[[str, int, int], None]
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_HF_PATTERNS = [*_WEIGHTS, "*.json", "*.jinja", "*.model", "*.txt"]
_EXPORTERS = ("optimum-intel", "transformers", "torch")


@dataclass(frozen=True, slots=True)
class FullModel:
    """A model at full precision; ``source`` is what wager.json says of its origin, ``packages`` what read it."""

    folder: Path
    source: JSON
    packages: tuple[str, ...] = ()


@contextmanager
def full_precision(
    source: str, final: Path, *, home: Path | None = None, site: hub.Hub | None = None, progress: Progress
) -> Iterator[FullModel]:
    """``source`` as a full-precision folder, for as long as it is needed; temporary files are siblings of ``final``.

    A GGUF file, an OpenVINO or Hugging Face folder, a model here or in the catalog (converted from the GGUF it was
    imported from), or OWNER/NAME on the hub. Raises ModelError for anything else, and for weights that are compressed
    already.
    """
    path = _located(source, home, site or hub.HuggingFace(), progress)
    if path.suffix == ".gguf":
        with scratch_folder(final) as place:
            yield _from_gguf(path, place / "full", progress)
    elif (path / "openvino_model.xml").is_file():
        yield _from_ir(path)
    else:
        check_exporter(path)
        with scratch_folder(final) as place:
            yield _exported(path, place / "full", progress)


def check_exporter(folder: Path) -> None:
    """Raise ModelError where ``folder`` holds no model of transformers, or nothing here can export one."""
    if not (folder / "config.json").is_file() or not any(next(folder.glob(p), None) for p in _WEIGHTS):
        raise ModelError(
            f"`{folder}` holds neither openvino_model.xml nor config.json with *.safetensors: give a model's folder"
        )
    if find_spec("optimum.exporters.openvino" if find_spec("optimum") else "optimum") is None:
        raise ModelError(
            f"`{folder}` is a Hugging Face model and optimum-intel is not installed: pip install 'wager[convert-hf]'"
        )


def _located(source: str, home: Path | None, site: hub.Hub, progress: Progress) -> Path:
    """The .gguf file or the folder that ``source`` names."""
    path = Path(source).expanduser()
    if path.is_dir():
        return _origin(path, home)
    if path.suffix == ".gguf" and path.is_file():
        return path
    here = models_home(home) / source
    if source in catalog.entries() or ("/" not in source and here.is_dir()):
        return _origin(catalog.resolve(source, progress=progress, home=home), home)
    if not hub.is_hub_name(source):
        raise ModelError(
            f"`{source}` is nothing to convert: give a .gguf file, an OpenVINO or Hugging Face folder, a model that "
            "`wager models` lists, or OWNER/NAME on the hub"
        )
    files = site.files(source.partition(":")[0])
    if any(f.endswith(".gguf") or f == "openvino_model.xml" for f in files):
        choice = hub.choose(source, site)
        if choice.gguf is not None:
            return hub.fetch_gguf(choice, site, progress)
        return site.download(choice.repo, list(hub.IR_PATTERNS), progress)
    return site.download(source, _HF_PATTERNS, progress)


def _origin(folder: Path, home: Path | None) -> Path:
    """A folder that was imported from a GGUF file is converted from that file, where it is still here."""
    made = provenance(folder)
    return (catalog.source_of(folder, home=home) if made else None) or folder


def _from_gguf(path: Path, folder: Path, progress: Progress) -> FullModel:
    from wager.models.gguf import import_gguf

    import_gguf(path, folder, form="f32", progress=progress)
    return FullModel(folder, provenance(folder)["source"], ("openvino-genai", "gguf"))


def _from_ir(folder: Path) -> FullModel:
    import openvino as ov

    from wager.models.convert_passes import forms, is_full_precision
    from wager.models.openvino import read_graph

    check_ir(folder)
    model = read_graph(ov.Core(), folder)
    if not is_full_precision(model):
        held = ", ".join(sorted(forms(model)))
        raise ModelError(
            f"`{folder}` is compressed already ({held}) and what it was made from is not here: convert the original"
        )
    return FullModel(folder, _described(folder, "openvino", ["openvino_model.xml", "openvino_model.bin"]))


def _exported(folder: Path, out: Path, progress: Progress) -> FullModel:
    """By optimum-intel, in a process of its own: it is torch, gigabytes that go with it, and it talks a lot."""
    label = "exporting with optimum-intel"
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino", "--model", str(folder)]
    command += ["--task", "text-generation-with-past", "--weight-format", "fp32", str(out)]
    progress(label, 0, 0)
    quiet = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet})
    if done.returncode != 0 or not (out / "openvino_model.xml").is_file():
        reason = ([line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"])[-1]
        raise ModelError(f"optimum-intel cannot export `{folder}` ({reason.strip()}): use a model that it supports")
    progress(label, 1, 1)
    check_ir(out, said=str(folder))
    names = sorted(f.name for pattern in (*_WEIGHTS, "config.json") for f in folder.glob(pattern))
    return FullModel(out, _described(folder, "huggingface", names), _EXPORTERS)


def _described(folder: Path, kind: str, files: list[str]) -> JSON:
    """Name, kind, and hashes of the files that make the weights."""
    hashes = {name: sha256_of(folder / name) for name in files}
    whole = hashlib.sha256("".join(f"{name} {sha}\n" for name, sha in hashes.items()).encode()).hexdigest()
    return {"name": folder.resolve().name, "kind": kind, "sha256": whole, "files": hashes}
