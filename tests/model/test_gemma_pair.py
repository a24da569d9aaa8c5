"""Gemma 3 as it comes from the package index: faithful; and SmolLM2 drafting for it in a vocabulary of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wager.llm import LLM
from wager.models import catalog
from wager.models.fidelity import fidelity
from wager.types import Sampling

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

PROMPTS = ["Here is a short story about a fox and a river 🦊.\n\nOnce upon a time,", "def fibonacci(n):\n    "]
GREEDY = Sampling(max_tokens=24)


def test_the_import_is_faithful() -> None:
    folder = catalog.pull("gemma3-270m")
    found = fidelity(folder, catalog.source_of(folder))
    assert found is not None
    assert found.kl <= 1e-3  # required: 5e-3
    assert found.argmax_agreement >= 0.97  # required: 0.95


@pytest.mark.parametrize("name", ["tli", "uag"])
def test_smollm2_drafts_for_gemma(name: str) -> None:
    llm = LLM("gemma3-270m", drafter=f"{name}:smollm2-135m", num_draft_tokens=3)
    for sampling in (GREEDY, replace(GREEDY, temperature=0.8, seed=3)):
        plain, drafted = (llm.generate(PROMPTS, sampling, chat=False, speculate=way) for way in (False, True))
        assert [c.tokens for c in drafted] == [c.tokens for c in plain]
        assert sum(c.stats.n_accepted for c in drafted) >= 10
    llm.close()
