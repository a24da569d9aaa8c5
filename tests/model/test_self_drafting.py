"""Drafters made of the real default model: text is plain's, and a window over a long prompt is mostly right."""

from __future__ import annotations

import pytest

from wager import LLM

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

QUESTIONS = ["Explain in two sentences why the sky is blue.", "Count from one to twenty in words."]
FACTS = " ".join(f"Box {i} holds {i * 7 % 31} red stones and {i * 5 % 17} green ones." for i in range(40))
# Late modules only: with more of them left out next to nothing is right at this size (docs/log.md).
FEW = '{"skip": ["attn.23", "attn.25", "mlp.26", "attn.27"]}'


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize(("drafter", "right"), [("window", 0.9), ("skip:few", 0.4), ("skip:0.45", 0.0)])
def test_drafting_for_itself_changes_no_text(tmp_path, drafter, right, temperature):
    if drafter == "skip:few":
        (tmp_path / "few.json").write_text(FEW, "utf-8")
        drafter = f"skip:{tmp_path / 'few.json'}"
    llm = LLM("smollm2-135m", drafter=drafter, num_draft_tokens=3, kv_cache_gb=0.5)
    sampling = llm.sampling(max_tokens=32, temperature=temperature, seed=1)
    drafted = llm.generate(QUESTIONS, sampling)
    plain = [llm.generate(question, sampling, speculate=False) for question in QUESTIONS]
    assert [d.tokens for d in drafted] == [p.tokens for p in plain]
    n_drafted = sum(d.stats.n_drafted for d in drafted)
    assert n_drafted > 20
    assert sum(d.stats.n_accepted for d in drafted) >= right * n_drafted


def test_a_window_over_a_long_prompt_is_mostly_right():
    llm = LLM("smollm2-135m", drafter="window:32+64", num_draft_tokens=3, kv_cache_gb=0.5)
    sampling = llm.sampling(max_tokens=32, temperature=0)
    drafted = llm.generate(f"{FACTS} Describe what these boxes have in common.", sampling)
    assert drafted.n_prompt > 600
    plain = llm.generate(f"{FACTS} Describe what these boxes have in common.", sampling, speculate=False)
    assert drafted.tokens == plain.tokens
    assert 0.2 * drafted.stats.n_drafted < drafted.stats.n_accepted < drafted.stats.n_drafted
