"""The measurement that bins of heterospec are fitted to, on tiny models."""

from __future__ import annotations

import pytest

from wager import LLM
from wager.bench import bins


@pytest.fixture(scope="module")
def llm(tiny_llama, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        yield LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)


def test_a_model_that_drafts_for_itself_is_always_right(llm, tiny_llama) -> None:
    """Greedy and sampled, its first path is accepted to the end each time; greedy that is the likeliest one too."""
    found = bins.watched(llm, f"model:{tiny_llama}", [[5, 9, 12, 40], [7, 8]], max_tokens=21)
    assert len(found.found) == found.n_drafts >= 4
    assert all(entropy > 0 and 0 <= rank < 4 for entropy, rank in found.found)
    assert min(rank for _, rank in found.found) == 0


def test_another_model_is_right_now_and_then_or_never(llm, tiny_llama) -> None:
    path = tiny_llama.parent / "tiny-llama-b"
    found = bins.watched(llm, f"model:{path}", [[5, 9, 12, 40]], max_tokens=30)
    assert len(found.found) < found.n_drafts


def test_what_is_printed(llm, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bins, "LLM", lambda model, drafter: llm)
    monkeypatch.setattr(bins, "_MAX_TOKENS", 9)
    monkeypatch.setattr(bins, "load_suite", lambda path: [])
    monkeypatch.setattr(bins, "choose", lambda prompts, per_task, tasks: [])
    bins.main("tiny", f"model:{llm.ir_dir}")
    assert "0 of 0 drafts" in capsys.readouterr().out
