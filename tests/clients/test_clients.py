"""The real clients of others against our server, unchanged (make test-clients)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from http_tools import serving
from wager import LLM
from wager.serve.config import Settings

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]


def test_langchain_and_llamaindex_work_unchanged(tiny_llama):
    with serving(tiny_llama, Settings(names=("gpt-4o-mini",))) as server:
        done = subprocess.run(
            [ROOT / ".venv-clients/bin/python", ROOT / "tests/clients/ask.py", server.url],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
    llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)
    sampling = llm.sampling(temperature=0, max_tokens=12)
    sea, sun = llm.generate(["the sea", "the sun"], sampling, n=1)
    assert found["langchain"] == found["langchain_stream"] == sea.text
    assert found["langchain_usage"] == len(sea.tokens)
    assert found["langchain_batch"] == [sea.text, sun.text]
    assert found["langchain_text"] == llm.generate("the sea", sampling, chat=False).text
    assert found["llamaindex"] == found["llamaindex_stream"] == found["llamaindex_complete"] == sea.text
