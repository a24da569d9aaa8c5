"""Every policy on the real default model, its int4 copy drafting: the text is that of plain decoding."""

from __future__ import annotations

import pytest

from wager import LLM
from wager.drafters.drawing import Drawing
from wager.policies import POLICIES
from wager.types import Sampling

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

N_TOKENS = 16


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("smollm2-135m", drafter="none", kv_cache_gb=0.5)


@pytest.fixture(scope="module")
def prompt(llm: LLM) -> list[int]:
    return llm.text.chat([{"role": "user", "content": "Count from one to twenty in words."}])


@pytest.fixture(scope="module")
def copy(llm: LLM):
    return llm.make_drafter("copy:int4", Drawing())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_text_is_that_of_plain_decoding(policy: str, temperature: float, llm: LLM, prompt, copy) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=N_TOKENS, seed=5)
    plain = llm.generate(prompt, sampling).tokens
    width = 2 if POLICIES[policy].takes_tree else 1
    engine = llm.make_engine(drafter=copy, policy=policy, tree_width=width)
    seq = engine.submit(prompt, sampling, seed=5)
    stats = engine.stats(seq.id)
    while engine.has_work:
        engine.step()
    copy.check()
    assert seq.output == plain
    assert stats.n_drafted > 0 or policy in ("cost", "delayed")  # this copy is too slow to pay


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_as_graphs_leave_the_text(temperature: float, llm: LLM, prompt) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=N_TOKENS, seed=5)
    plain = llm.generate(prompt, sampling).tokens
    options = {"num_draft_tokens": 4, "tree_width": 3, "tree_levels": 2}
    engine = llm.make_engine(drafter="gsd:smollm2-135m", **options)
    seq = engine.submit(prompt, sampling, seed=5)
    stats = engine.stats(seq.id)
    while engine.has_work:
        engine.step()
    engine.drafter.check()
    assert seq.output == plain
    assert stats.n_accepted > 4
