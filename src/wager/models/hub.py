"""Models of the Hugging Face hub: an OpenVINO folder, or one GGUF file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wager.errors import ModelError

Progress = Callable[[str, int, int], None]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:.+)?")
_IR = "openvino_model.xml"
IR_PATTERNS = ("openvino_*.xml", "openvino_*.bin", "*.json", "*.jinja")


class Hub(Protocol):
    """Where repositories come from: the real hub, or a folder in tests."""

    def files(self, repo: str) -> list[str]: ...
    def download(self, repo: str, patterns: list[str], progress: Progress) -> Path: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What to take from a repository: ``gguf`` (a path in it), or None for its OpenVINO model."""

    repo: str
    gguf: str | None


def is_hub_name(name: str) -> bool:
    """True for ``OWNER/NAME`` and ``OWNER/NAME:FILE``."""
    return _NAME.fullmatch(name) is not None


def choose(name: str, hub: Hub) -> Choice:
    """Decide what ``OWNER/NAME[:file]`` means. ``ModelError`` when it is neither clear nor there."""
    repo, _, wanted = name.partition(":")
    files = hub.files(repo)
    ggufs = sorted(f for f in files if f.endswith(".gguf"))
    if wanted:
        matches = [f for f in ggufs if f == wanted or f.rpartition("/")[2] == wanted]
        if len(matches) != 1:
            raise ModelError(f"`{repo}` has no GGUF file `{wanted}`: it has {_listed(ggufs)}")
        return Choice(repo, matches[0])
    if _IR in files:
        return Choice(repo, None)
    if len(ggufs) == 1:
        return Choice(repo, ggufs[0])
    if ggufs:
        raise ModelError(f"`{repo}` has several GGUF files, name one as `{repo}:{ggufs[0]}`: it has {_listed(ggufs)}")
    raise ModelError(
        f"`{repo}` has neither `{_IR}` nor a GGUF file: export it with "
        f"`optimum-cli export openvino --model {repo} FOLDER` and give the folder"
    )


def copy_ir(choice: Choice, hub: Hub, folder: Path, progress: Progress) -> None:
    """Put the OpenVINO files of a repository into ``folder`` (hard links where the file system allows)."""
    place = hub.download(choice.repo, list(IR_PATTERNS), progress)
    for file in sorted(place.iterdir()):
        if file.is_file() and any(file.match(pattern) for pattern in IR_PATTERNS):
            link_or_copy(file, folder / file.name)


def fetch_gguf(choice: Choice, hub: Hub, progress: Progress) -> Path:
    """The path of the chosen GGUF file in the hub's own cache."""
    assert choice.gguf is not None
    return hub.download(choice.repo, [choice.gguf], progress) / choice.gguf


def link_or_copy(source: Path, target: Path) -> None:
    """The content of ``source`` (symbolic links followed) at ``target``."""
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(real, target)


class HuggingFace:
    """The real hub through ``huggingface_hub``: its cache, token, mirrors and ``HF_HUB_OFFLINE`` are honoured."""

    def files(self, repo: str) -> list[str]:
        import huggingface_hub
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            place = self.download(repo, [], lambda what, done, total: None)
            return [str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()]
        return [str(f) for f in _reached(repo, lambda: huggingface_hub.HfApi().list_repo_files(repo))]

    def download(self, repo: str, patterns: list[str], progress: Progress) -> Path:
        import huggingface_hub

        bar = _bar(progress)
        return Path(
            _reached(
                repo, lambda: huggingface_hub.snapshot_download(repo, allow_patterns=patterns or None, tqdm_class=bar)
            )
        )


def _reached(repo: str, call: Callable[[], Any]) -> Any:
    """``call()``, with what the hub and its HTTP client raise said in one sentence."""
    from huggingface_hub import errors

    try:
        return call()
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelError(f"`{repo}` is not on the hub, or private: check the name or run `hf auth login`") from error
    except Exception as error:
        # The HTTP client, and with it the base of its errors, differs between versions of huggingface_hub.
        if not isinstance(error, OSError) and not type(error).__module__.startswith(
            ("huggingface_hub", "http", "requests")
        ):
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"`{repo}` could not be fetched ({first}): check the network and try again") from error


def _bar(progress: Progress) -> type:
    """A silent progress bar that tells ``progress`` how many bytes are there."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if self.unit == "B" and self.total:
                progress("download", int(self.n), int(self.total))

    return Bar


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names[:12]) + (" …" if len(names) > 12 else "") if names else "none"
