from __future__ import annotations

import pytest

from http_tools import serving
from wager import LLM
from wager.serve.config import Limits, Settings


@pytest.fixture(scope="session")
def _home(tmp_path_factory):
    """One WAGER_HOME for all tests here: the machine is measured once."""
    home = tmp_path_factory.mktemp("serve-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(home))
        yield home


@pytest.fixture(autouse=True)
def _one_home(_own_home, _home, monkeypatch):
    monkeypatch.setenv("WAGER_HOME", str(_home))


@pytest.fixture(scope="session")
def llm(tiny_llama, _home):
    return LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)


@pytest.fixture(scope="module")
def server(tiny_llama, _home):
    with serving(tiny_llama, Settings(limits=Limits(max_seqs=8))) as server:
        yield server
        server.settled()
