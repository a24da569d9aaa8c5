"""Every test runs offline and in its own WAGER_HOME; only tests marked `model` see the user's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from places import DATA, KERNELS

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setenv("NO_COLOR", "1")
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.delenv("WAGER_MODEL", raising=False)
    patch.setenv("WAGER_KERNELS", str(KERNELS))
    if request.node.get_closest_marker("model") is None:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """An OpenVINO folder of a llama small enough to check in."""
    return DATA / "tiny-llama"
