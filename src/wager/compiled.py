"""C++ of ours, compiled once for the processor at hand; where that cannot be, the reason is told and we do without."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wager.errors import WagerError
from wager.home import scratch_folder, wager_home
from wager.machine import cpu

SWITCH = "WAGER_KERNELS"  # "0": do without; else the folder where they are kept
_FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
_COMPILERS = ("c++", "g++", "clang++")
_NEEDS = ({"avx512f", "avx512_vnni"}, {"avx2", "f16c"})  # either is enough
_LONGEST_S = 200
DIGEST_BYTES = 32
_REFUSED: dict[tuple[Code, str, Path], str] = {}  # what this process tried in vain, by compiler and folder
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Code:
    """What is compiled: ``main`` of the ``sources`` (paths), with ``flags`` beside the common ones.

    ``links()`` are further words for the compiler, of what ``uses`` names with its version. ``doing``: for people.
    """

    sources: tuple[Path, ...]
    main: Path
    doing: str
    flags: tuple[str, ...] = ()
    uses: str = ""
    links: Callable[[], list[str]] = list


def compiled(code: Code, *, progress: Progress | None = None, check: Callable[[Path], None]) -> Path:
    """The library of ``code``, compiled now where it is not yet; its name tells sources, compiler and processor.

    Raises WagerError, with the reason, where there is none, and whatever ``check`` raises of a library just loaded.
    What was refused once is not tried again in this process.
    """
    if os.environ.get(SWITCH) == "0":
        raise WagerError(f"{SWITCH}=0")
    flags = set(cpu()["flags"])
    if not any(needed <= flags for needed in _NEEDS):
        raise WagerError("this processor has neither AVX-512 VNNI nor AVX2")
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise WagerError("there is no C++ compiler: install g++ for about twice the speed")
    folder = Path(os.environ.get(SWITCH) or wager_home() / "kernels").absolute()
    asked = (code, compiler, folder)
    if asked not in _REFUSED:
        try:
            path = _made(code, compiler, folder, progress)
            check(path)
            return path
        except (OSError, ImportError, RuntimeError, ValueError, WagerError) as error:  # ValueError: open quote in CXX
            _REFUSED[asked] = " ".join(str(error).split())[:300]
    raise WagerError(_REFUSED[asked])


def _made(code: Code, compiler: str, folder: Path, progress: Progress | None) -> Path:
    path = folder / f"{_key(code, compiler)}.so"
    if not _is_whole(path):
        if progress is not None:
            progress(code.doing, 0, 1)
        with scratch_folder(path) as scratch:
            made = scratch / path.name
            compile_to(made, code, compiler)
            made.replace(path)
        if progress is not None:
            progress(code.doing, 1, 1)
    return path


def compile_to(path: Path, code: Code, compiler: str, *, march: str = "native") -> None:
    """Compile the library for processors like ``march``, and seal it: its digest follows it in the file.

    Raises WagerError with the compiler's first complaint.
    """
    asked = [*_FLAGS, *code.flags, f"-march={march}", str(code.main), "-o", str(path), *code.links()]
    status, _, complaints = _said(compiler, *asked)
    if status:
        complaint = next((line for line in complaints.splitlines() if "error" in line), complaints[:200])
        raise WagerError(f"{compiler} cannot compile the kernels ({complaint.strip()[:200]}): install a newer g++")
    path.write_bytes(sealed(path.read_bytes()))


def sealed(library: bytes) -> bytes:
    """A library and the digest of it: the loader reads no further than the first ends."""
    return library + hashlib.sha256(library).digest()


def _is_whole(path: Path) -> bool:
    """Whether a sealed library is there as it was made: the loader would crash on half of one."""
    found = path.read_bytes() if path.is_file() else b""
    return len(found) > DIGEST_BYTES and sealed(found[:-DIGEST_BYTES]) == found


def _said(compiler: str, *asked: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of a compiler, which may be a command of several words (`ccache g++`).

    Raises WagerError where it is not there, or takes so long that it was ended with all that it started.
    """
    words = shlex.split(compiler)
    if not words or shutil.which(words[0]) is None:
        raise WagerError(f"there is no compiler `{compiler}`: install g++, or name another in CXX")
    with subprocess.Popen(
        [*words, *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    ) as process:
        try:
            output, complaints = process.communicate(timeout=_LONGEST_S)
        except BaseException as error:  # Ctrl-C too: what it started would hold the pipes open
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise WagerError(f"{compiler} took more than {_LONGEST_S} s: name another in CXX") from error
            raise
    return process.returncode, output, complaints


@cache
def _key(code: Code, compiler: str) -> str:
    status, told, complaints = _said(compiler, "--version")
    if status:
        raise WagerError(f"{compiler} does not run ({complaints.strip()[:200]}): install g++, or name another in CXX")
    sources = [path.read_text() for path in code.sources]
    parts = [*sources, *_FLAGS, *code.flags, *shlex.split(compiler)[1:], told, str(cpu()), code.uses]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
