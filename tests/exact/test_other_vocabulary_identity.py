"""Text is the target's own whoever drafts it in whatever vocabulary; under the other rules its law comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_rules_engine import CASES, Run

from drafter_tools import check_text
from engine_tools import EOS, V, run, toy
from tiny_gguf import write_gemma
from vocabulary_tools import Knowing, Pieces, string_level, token_level
from wager.drafters.drawing import Drawing
from wager.llm import LLM
from wager.models.gguf import import_gguf
from wager.policies import Fixed
from wager.types import DraftKind, Sampling

FOX = "🦊".encode()
# seventeen pieces of the target, some of them halves of a character; the drafter has fourteen of them, in another order
TARGET = Pieces([*(b"%c" % (97 + i) for i in range(13)), FOX[:2], FOX[2:], b" b", b"ab"], name="target")
OWN = Pieces([FOX, b" ", b"q", *(b"%c" % (109 - i) for i in range(13)), b"ab", b" b"], name="own")
KNOWN = [OWN.vocab.index(piece) if piece in OWN.vocab else -1 for piece in TARGET.vocab]
SAMPLED = Sampling(temperature=0.8, max_tokens=40)


def knowing() -> Knowing:
    return Knowing(toy(), KNOWN, OWN.vocab_size)


def test_text_is_plain_text_with_drafts_by_token() -> None:
    check_text(lambda: token_level(knowing(), OWN, TARGET, eos_ids=frozenset((EOS,))))


def test_text_is_plain_text_with_drafts_by_text() -> None:
    check_text(lambda: string_level(knowing(), OWN, TARGET))


def test_a_drafter_that_knows_the_law_is_always_right() -> None:
    """Its noise is the target's at the target's ids: what it draws is what the target says."""
    order = np.random.default_rng(0).permutation(V)
    own = Pieces([TARGET.vocab[i] for i in order])
    drafter = token_level(Knowing(toy(), np.argsort(order), V), own, TARGET)
    outcome = run(toy(), replace(SAMPLED, ignore_eos=True), drafter=drafter, policy=Fixed(4))
    drafter.check()
    assert sum(s.n_accepted for s in outcome.stats) == sum(s.n_drafted for s in outcome.stats) > 50


SMALL = Pieces([b"a", b"b", b"c", b"d", b"e"], name="target")
OTHER = Pieces([b"e", b"q", b"c", b"b", b"a"], name="own")  # four of five in common


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_targets_law_comes_out_under_every_rule(name: str, kind: DraftKind) -> None:
    """400 seeds a rule; one of the five tokens is the target's alone."""
    outcome = Run(
        name,
        Drawing(kind),
        width=2 if name == "khisti" else 3,
        drafter=lambda model, n_valid_ids, drawing: token_level(model, OTHER, SMALL, drawing=drawing),
    )
    outcome.assert_lawful(2, 3)
    assert outcome.n_accepted > 60


# -- tiny models, real tokenizers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    place = tmp_path_factory.mktemp("gemma")
    import_gguf(write_gemma(place / "tiny-gemma.gguf"), place / "tiny-gemma")
    return place / "tiny-gemma"


@pytest.mark.parametrize("name", ["tli", "uag"])
def test_models_with_tokenizers_of_their_own(tiny_llama, gemma, name: str) -> None:
    """Byte-level BPE and scored pieces draft for each other; bytes, chat marks and halves of characters occur."""
    for target, draft in ((tiny_llama, gemma), (gemma, tiny_llama)):
        llm = LLM(target, drafter=f"{name}:{draft}", num_draft_tokens=3)
        for sampling in (Sampling(max_tokens=24), replace(SAMPLED, seed=5, presence_penalty=0.5)):
            sampling = replace(sampling, ignore_eos=True)
            prompts = ["the quick brown fox 🦊", "and\n\nthen", "x"]
            want, found = (llm.generate(prompts, sampling, speculate=way) for way in (False, True))
            assert [c.tokens for c in found] == [c.tokens for c in want]
            assert sum(c.stats.n_drafted for c in found) > 20
        llm.close()


def test_the_same_tokenizer_finds_all_it_knows(tiny_llama) -> None:
    """A model that is right fairly often: as many drafts by common tokens as by plain ids."""
    found = []
    for spec in ("model", "tli"):
        llm = LLM(tiny_llama, drafter=f"{spec}:{tiny_llama.parent / 'tiny-llama-b'}", num_draft_tokens=4)
        answer = llm.generate(list(np.arange(40, 60)), replace(SAMPLED, seed=1, ignore_eos=True))
        found.append((answer.tokens, answer.stats.n_drafted, answer.stats.n_accepted))
        llm.close()
    assert found[0] == found[1]
    assert found[0][2] > 5
