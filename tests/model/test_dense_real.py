"""The dense drafter on the real default model: a store of its own answers is found again by its hidden states."""

from __future__ import annotations

import json

import pytest

from wager import LLM, stores
from wager.cli import main
from wager.errors import OptionError
from wager.models import catalog

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

QUESTIONS = ["Explain in two sentences why the sky is blue.", "Count from one to twenty in words."]


@pytest.fixture
def own_stores(tmp_path, monkeypatch):
    """Stores of the user are left alone."""
    monkeypatch.setattr(stores, "stores_home", lambda home=None: tmp_path / "stores")


@pytest.mark.usefixtures("own_stores")
def test_it_finds_its_own_answers_and_changes_no_text(tmp_path, capsys, tiny_llama):
    llm = LLM("smollm2-135m", drafter="none", kv_cache_gb=0.5)
    samplings = [llm.sampling(max_tokens=32, temperature=t, seed=1) for t in (0, 0.8)]
    plain = [llm.generate(question, sampling) for sampling in samplings for question in QUESTIONS]
    lines = [{"prompt": q, "response": c.text} for q, c in zip(QUESTIONS * 2, plain, strict=True)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    llm.close()
    with pytest.raises(SystemExit) as ended:
        main(["store", "build", "own", "--dense", str(tmp_path / "own.jsonl")])
    assert not ended.value.code, capsys.readouterr().err
    llm = LLM("smollm2-135m", drafter="dense:own", num_draft_tokens=4, kv_cache_gb=0.5)
    drafted = [answer for sampling in samplings for answer in llm.generate(QUESTIONS, sampling)]
    assert [d.tokens for d in drafted] == [p.tokens for p in plain]
    assert all(d.stats.tokens_per_forward > 1.5 for d in drafted), [d.stats.tokens_per_forward for d in drafted]
    store = stores.load("own")
    assert store.info.dense.model_hash == catalog.model_hash(llm.ir_dir)
    with pytest.raises(OptionError, match="is another model"):
        stores.check_model(store, catalog.model_hash(tiny_llama), "tiny-llama")
