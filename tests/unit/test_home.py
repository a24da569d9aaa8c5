"""A folder appears whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wager import home
from wager.errors import CapacityError, ModelError


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAGER_HOME", str(tmp_path / "a"))
    assert home.wager_home() == tmp_path / "a"
    monkeypatch.delenv("WAGER_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home.wager_home() == tmp_path / "wager"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home.wager_home() == tmp_path / ".cache" / "wager"
    assert home.models_home() == tmp_path / ".cache" / "wager" / "models"


def test_finished_folder_is_renamed_and_replaces_the_old_one(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with home.atomic_folder(tmp_path / "deep" / "model") as folder:
            (folder / "file").write_text(text)
            assert home.is_partial(folder)
            assert folder.parent == tmp_path / "deep"
    assert (tmp_path / "deep" / "model" / "file").read_text() == "two"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]


def test_two_writers_of_one_folder_both_finish(tmp_path: Path) -> None:
    with home.atomic_folder(tmp_path / "model") as first:
        (first / "file").write_text("one")
        with home.atomic_folder(tmp_path / "model") as second:
            (second / "file").write_text("two")
        assert (tmp_path / "model" / "file").read_text() == "two"
    assert (tmp_path / "model" / "file").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.EIO, "io")])
def test_nothing_remains_after_an_exception(tmp_path: Path, error: BaseException) -> None:
    def write() -> None:
        with home.atomic_folder(tmp_path / "model") as folder:
            (folder / "half").write_text("x")
            raise error

    with pytest.raises(type(error)):
        write()
    assert list(tmp_path.iterdir()) == []


def test_full_disk_names_free_and_needed(tmp_path: Path) -> None:
    with (
        pytest.raises(CapacityError, match=r"MB free and about 1 MB are needed: free some space"),
        home.atomic_folder(tmp_path / "model", needed_bytes=1_000_000),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_disk_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CapacityError), home.atomic_folder(tmp_path / "model", needed_bytes=10**18):
        pytest.fail("must not be entered")


def test_killed_writer_leaves_a_folder_that_the_next_one_sweeps(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; from wager.home import atomic_folder\n"
        "with atomic_folder(pathlib.Path(sys.argv[1])) as f: (f / 'half').write_text('x'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    assert home.is_partial(left)
    with home.atomic_folder(tmp_path / "model"):
        assert not left.exists()


def test_folder_of_a_living_writer_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    with home.atomic_folder(tmp_path / "model") as folder:
        home.sweep(tmp_path)
        assert folder.exists()
        long_ago = time.time() - 3 * 86400
        os.utime(folder, (long_ago, long_ago))
        home.sweep(tmp_path)
        assert not folder.exists()
        folder.mkdir()


def test_home_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ModelError, match=r"cannot be made .*set WAGER_HOME to a writable folder"),
        home.atomic_folder(tmp_path / "file" / "model"),
    ):
        pytest.fail("must not be entered")


def test_write_text_replaces_whole_files(tmp_path: Path) -> None:
    home.write_text(tmp_path / "a" / "x.json", "1")
    home.write_text(tmp_path / "a" / "x.json", "2")
    assert [(p.name, p.read_text()) for p in (tmp_path / "a").iterdir()] == [("x.json", "2")]


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (errno.ENOSPC, CapacityError, "MB free"),
        (errno.EROFS, ModelError, "cannot be made"),
        (errno.EIO, OSError, "Errno"),
    ],
)
def test_disk_that_refuses_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], said: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(kind, match=said):
        home.write_text(tmp_path / "x.json", "1")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(kind, match=said):
        home.write_text(tmp_path / "new" / "x.json", "1")
    with pytest.raises(kind, match=said), home.atomic_folder(tmp_path / "new" / "model"):
        pytest.fail("must not be entered")
    assert list(tmp_path.iterdir()) == []


def test_a_users_file_that_cannot_be_read_is_not_blamed_on_the_home(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), home.atomic_folder(tmp_path / "home" / "model"):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "mine.gguf"))
