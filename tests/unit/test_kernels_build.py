"""Compilers that fail, hang or miscompile, and libraries that are no longer what was made: declined with the reason."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from wager import compiled
from wager.models.kernels import Kernels, kernels


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Kernels, Path]:
    """The kernels as they are, and a folder that has a copy of them, which `kernels()` will look into."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled, "_REFUSED", {})
    found, reason = kernels()
    if found is None:
        pytest.skip(str(reason))
    folder = tmp_path / "mit Leerzeichen, ü"
    folder.mkdir()
    shutil.copy(found.path, folder)
    monkeypatch.setenv("WAGER_KERNELS", str(folder))
    return found, folder / found.path.name


def compiler(path: Path, does: str) -> str:
    """A compiler that knows its version."""
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1 && exit\n{does}\n')
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAGER_KERNELS", "0")
    assert kernels() == (None, "WAGER_KERNELS=0")
    monkeypatch.setenv("WAGER_KERNELS", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, reason = kernels()
    assert found is None
    assert "compiler" in str(reason) or "processor" in str(reason)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo 'x.cpp:1: error: no such thing' >&2; exit 1", "no such thing"),
        ("printf 'error: \\374' >&2; exit 1", "error: \ufffd"),
    ],
)
def test_a_compiler_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, kept: tuple[Kernels, Path], tmp_path: Path, does: str, said: str
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path / "c++", does))
    monkeypatch.setenv("WAGER_KERNELS", str(tmp_path / "kept"))
    found, reason = kernels()
    assert found is None
    assert said in str(reason)
    assert not list((tmp_path / "kept").glob("*"))


def test_a_compiler_that_hangs_is_ended_with_its_children_and_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, kept: tuple[Kernels, Path], tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path / "c++", "sleep 30"))
    monkeypatch.setattr(compiled, "_LONGEST_S", 0.2)
    start = time.perf_counter()
    found, reason = kernels()
    assert found is None
    assert "took more than" in str(reason)
    monkeypatch.setattr(compiled, "_LONGEST_S", 60)
    assert kernels() == (None, reason)
    assert time.perf_counter() - start < 10


def test_a_compiler_may_be_a_command_of_several_words(
    monkeypatch: pytest.MonkeyPatch, kept: tuple[Kernels, Path], tmp_path: Path
) -> None:
    library = kept[1].read_bytes()
    monkeypatch.setenv("CXX", "env c++")
    monkeypatch.setattr(compiled, "compile_to", lambda path, code, compiler: path.write_bytes(library))
    found, reason = kernels()
    assert found is not None, reason
    assert found.key != kept[0].key  # the other words may be flags
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert "there is no compiler" in str(kernels()[1])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_half_a_library_is_not_loaded_but_made_again(
    monkeypatch: pytest.MonkeyPatch, kept: tuple[Kernels, Path], share: float
) -> None:
    whole = kept[1].read_bytes()
    kept[1].write_bytes(whole[: int(share * len(whole))])
    monkeypatch.setattr(compiled, "compile_to", lambda path, code, compiler: path.write_bytes(whole))
    found, reason = kernels()
    assert found is not None, reason
    assert found.path.read_bytes() == whole


@pytest.mark.parametrize("number", [0.6931471805599453, 127.0])
def test_a_library_that_computes_something_else_is_declined(kept: tuple[Kernels, Path], number: float) -> None:
    """As a compiler's fault would make it: a constant is another one."""
    library = kept[1].read_bytes()[: -compiled.DIGEST_BYTES]
    assert np.float32(number).tobytes() in library
    changed = library.replace(np.float32(number).tobytes(), np.float32(number * 1.001).tobytes())
    kept[1].write_bytes(compiled.sealed(changed))
    found, reason = kernels()
    assert found is None
    assert "wrongly" in str(reason)


def test_a_folder_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, kept: tuple[Kernels, Path]) -> None:
    monkeypatch.setenv("WAGER_KERNELS", "/proc/kernels")
    found, reason = kernels()
    assert found is None
    assert "/proc/kernels" in str(reason)
