"""Where wager keeps what it makes, and how a folder appears there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wager.errors import CapacityError, ModelError

_PARTIAL = ".partial"
_STALE_S = 24 * 3600.0


def wager_home() -> Path:
    """``$WAGER_HOME``, else ``$XDG_CACHE_HOME/wager``, else ``~/.cache/wager``. Not created here."""
    chosen = os.environ.get("WAGER_HOME")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "wager"


def models_home(home: Path | None = None) -> Path:
    """The folder of imported models below ``home`` (default ``wager_home()``)."""
    return (wager_home() if home is None else home) / "models"


def is_partial(folder: Path) -> bool:
    """True for a folder that a running or broken writer left behind: never a model."""
    return folder.name.startswith(".") and folder.name.endswith(_PARTIAL)


def require_space(folder: Path, n_bytes: int) -> None:
    """Raise ``CapacityError`` unless ``n_bytes`` are free where ``folder`` is or will be."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < n_bytes:
        raise _no_space(folder, free, n_bytes)


@contextmanager
def atomic_folder(final: Path, *, needed_bytes: int = 0) -> Iterator[Path]:
    """Yield an empty temporary sibling of ``final`` to write into; on success it is renamed to ``final``.

    On any exception, Ctrl-C included, the temporary folder is removed and ``final`` is untouched. A full disk becomes a
    ``CapacityError``. An existing ``final`` is replaced. Left-overs of dead writers beside ``final`` are swept first.
    """
    with scratch_folder(final, needed_bytes=needed_bytes) as temporary:
        yield temporary
        _replace(temporary, final)


@contextmanager
def scratch_folder(final: Path, *, needed_bytes: int = 0) -> Iterator[Path]:
    """Yield an empty temporary sibling of ``final`` that is removed at the end; otherwise as ``atomic_folder``."""
    _mkdir(final.parent)
    sweep(final.parent)
    require_space(final, needed_bytes)
    temporary = final.parent / f".{final.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}{_PARTIAL}"
    try:
        _mkdir(temporary)
        yield temporary
    except OSError as error:
        raise _explained(error, final, needed_bytes) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove partial folders in ``parent`` whose writer is gone."""
    for folder in parent.iterdir():
        if is_partial(folder) and not _writer_lives(folder):
            shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the new one, never half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one, never half of it."""
    _mkdir(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise _explained(error, path) from error
    finally:
        with suppress(OSError):  # gone already, or never made: on a read-only disk that raises too
            temporary.unlink()


def _mkdir(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise _not_writable(folder, error) from error
    except OSError as error:
        raise _explained(error, folder) from error


def _replace(temporary: Path, final: Path) -> None:
    """Rename over ``final``, moving aside what is there: another process may have put it there just now."""
    while True:
        try:
            temporary.rename(final)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        old = final.parent / f".{final.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}{_PARTIAL}"
        try:
            final.rename(old)
        except FileNotFoundError:
            continue
        shutil.rmtree(old, ignore_errors=True)


def _writer_lives(folder: Path) -> bool:
    """By process id on this machine; an old folder is stale whatever its id, since ids are used again."""
    try:
        if time.time() - folder.stat().st_mtime > _STALE_S:
            return False
        os.kill(int(folder.name.split(".")[-3]), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, ValueError, IndexError, FileNotFoundError):
        return False
    return True


def _explained(error: OSError, path: Path, needed_bytes: int = 0) -> Exception:
    """The user's error behind ``error`` while ``path`` was written; ``error`` itself where it is another one."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(path, shutil.disk_usage(_existing(path)).free, needed_bytes)
    ours = Path(str(error.filename)).is_relative_to(path.parent)  # not a file of the user's that could not be read
    if ours and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _not_writable(path, error)
    return error


def _not_writable(path: Path, error: OSError) -> ModelError:
    return ModelError(f"`{path}` cannot be made ({error.strerror}): set WAGER_HOME to a writable folder")


def _existing(path: Path) -> Path:
    """The nearest folder above ``path`` that is there."""
    place = path.absolute().parent
    while not place.exists():
        place = place.parent
    return place


def _no_space(folder: Path, free_bytes: int, needed_bytes: int) -> CapacityError:
    needed = f"about {needed_bytes / 1e6:.0f} MB are needed" if needed_bytes else "more is needed"
    return CapacityError(
        f"`{folder.parent}` has {free_bytes / 1e6:.0f} MB free and {needed}: "
        "free some space or set WAGER_HOME to another disk"
    )
