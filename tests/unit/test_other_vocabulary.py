"""Drafters of another vocabulary: the contract, equal vocabularies, laws, seams in the text, characters that wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_tools import tree_of
from vocabulary_tools import BYTES, Pieces, string_level, token_level
from wager.drafters import make_drafter
from wager.drafters.base import check_spec
from wager.drafters.drawing import Drawing, draw_iid, law_of
from wager.drafters.model import ModelDrafter
from wager.drafters.vocabularies import Speller
from wager.errors import OptionError, VocabularyError
from wager.models.toy import ToyModel
from wager.pack import paths
from wager.sampling import Noise, arrivals, scores
from wager.testing import check_draft, check_drafter
from wager.types import Draft, Limits, Sampling, Sequence

DRAWINGS = [
    Drawing(),
    Drawing(laws=True, levels=2),
    Drawing("deterministic", trunk=1),
    Drawing("iid", trunk=1),
    Drawing("without_replacement", levels=2, max_law=3),
]
FOX = "🦊".encode()
TARGET = Pieces([*BYTES, b"the", b" the", b" a", b"ab", b"cab", "é".encode(), b"\n", b" "], name="target")
OWN = Pieces(
    [b"<s>", *reversed(BYTES), b"bc", "▁the".encode(), b"a", b"b", "▁".encode(), "▁a".encode(), FOX],
    mark="▁".encode(),
    prefix=True,
    bos=0,
    name="own",
)
LETTERS = [b"a", b"b", b"c", b"d", b"e", b" ", "é".encode()]
SAME = Pieces(LETTERS)


WARM = Sampling(temperature=0.8)


def sequence(tokens: list[int], sampling: Sampling = WARM, seed: int = 3) -> Sequence:
    return Sequence(0, list(tokens), 1, sampling, seed)


def said(ids: list[int], text: Pieces = TARGET) -> str:
    return Speller(text).said(ids).decode()


def toy(vocab_size: int, **options) -> ToyModel:
    return ToyModel(vocab_size, **{"n_blocks": 400, **options})


# -- contract, and equal vocabularies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
def test_contract_of_the_token_level(drawing: Drawing) -> None:
    check_drafter(
        lambda: token_level(toy(OWN.vocab_size), OWN, TARGET, drawing=drawing, eos_ids=frozenset((3,))),
        vocab_size=TARGET.vocab_size,
        context_length=48,
    )


@pytest.mark.parametrize("drawing", [Drawing("deterministic"), Drawing("deterministic", levels=2)], ids=str)
def test_contract_of_the_string_level(drawing: Drawing) -> None:
    check_drafter(
        lambda: string_level(toy(OWN.vocab_size), OWN, TARGET, drawing=drawing),
        vocab_size=TARGET.vocab_size,
        context_length=48,
    )


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, top_k=4, presence_penalty=0.7)], ids=str)
def test_equal_vocabularies_draft_as_a_plain_model(drawing: Drawing, sampling: Sampling) -> None:
    plain = ModelDrafter(toy(len(LETTERS)), n_valid_ids=len(LETTERS), drawing=drawing)
    other = token_level(toy(len(LETTERS)), SAME, SAME, drawing=drawing)
    seqs = [sequence([1, 2, 3, seed % 7], sampling, seed) for seed in range(8)]
    for seq in seqs:
        for _ in range(4):
            a, b = (drafter.propose([seq], [Limits(12, 3, 2)])[0] for drafter in (plain, other))
            assert tree_of(a) == tree_of(b)
            for x, y in zip(a.laws or (), b.laws or (), strict=True):
                assert x.ids.tolist() == y.ids.tolist()
                assert x.probs == pytest.approx(y.probs)
            seq.tokens += [*a.tokens[list(paths(a)[-1])].tolist()[:2], 5]
        plain.forget(0)
        other.forget(0)


def test_equal_vocabularies_of_letters_draft_as_a_plain_model_in_text() -> None:
    drawing = Drawing("deterministic")
    plain = ModelDrafter(toy(len(LETTERS)), n_valid_ids=len(LETTERS), drawing=drawing)
    other = string_level(toy(len(LETTERS)), SAME, SAME, drawing=drawing)
    seq = sequence([1, 2, 3], Sampling())
    for token in (4, 6, 5, 0, 0):
        drafts = [drafter.propose([seq], [Limits(10, 5, 2)])[0] for drafter in (plain, other)]
        assert len(drafts[0]) > 5
        assert tree_of(drafts[0]) == tree_of(drafts[1])
        seq.tokens.append(token)


# -- token level ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_laws_and_draws_are_those_of_the_common_tokens(seed: int) -> None:
    """By the definition: outside -inf, options after that, the target's noise at the target's position."""
    model, sampling = toy(OWN.vocab_size, order=3), Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3)
    drafter = token_level(model, OWN, TARGET, drawing=Drawing(laws=True))
    tokens = [*TARGET.encode("the a", False), TARGET.vocab.index(b"cab")]  # the drafter has no piece cab
    seq = sequence(tokens, sampling, seed)
    draft = drafter.propose([seq], [Limits(4, 4, 1)])[0]
    assert len(draft) == 4
    read = [OWN.vocab.index(p) for p in (b"<0x74>", b"<0x68>", b"<0x65>") if b"the" not in OWN.vocab]
    read = [0, *read, OWN.vocab.index("▁a".encode()), *OWN.encode("\ncab", False)[2:]]
    for i, (token, law) in enumerate(zip(draft.tokens.tolist(), draft.laws, strict=True)):
        logits = np.full(TARGET.vocab_size, -np.inf, np.float32)
        at = np.flatnonzero(drafter.pieces.own >= 0)
        logits[at] = model.law(read)[drafter.pieces.own[at]]
        so_far = [*tokens, *draft.tokens[:i].tolist()]
        x = scores(logits, sampling, tokens=so_far, n_prompt=1)
        want = law_of(x, 0.8, 512)
        assert law.ids.tolist() == want.ids.tolist()
        assert law.probs == pytest.approx(want.probs)
        assert set(law.ids) <= set(at)
        assert token == arrivals(x, Noise(seed), len(so_far) - 1, 0.8, 1)[0]
        read.append(int(drafter.pieces.own[token]))


def test_the_noise_of_a_round_is_where_rules_look_for_it() -> None:
    """At the number of the target's tokens, of which the drafter reads more."""
    tokens = TARGET.encode("the a cab cab")
    drafter = token_level(toy(OWN.vocab_size), OWN, TARGET, drawing=Drawing("iid"))
    (draft,) = drafter.propose([sequence(tokens)], [Limits(4, 4, 1)])
    for level, (token, law) in enumerate(zip(draft.tokens.tolist(), draft.laws, strict=True)):
        assert [token] == draw_iid(law, Noise(3), len(tokens), [0], level)
    assert len(drafter._told[0].tokens) > len(tokens)


def test_a_character_in_pieces_waits_until_it_is_whole() -> None:
    own = Pieces([b"a", b" ", b"b", FOX], name="own")
    target = Pieces([*BYTES, b"a", b" ", b"b"], name="target")
    for make in (token_level, string_level):
        drafter, seq = make(toy(4), own, target), sequence([256, 257])
        for i, byte in enumerate(FOX):
            assert len(drafter.propose([seq], [Limits(4, 4, 1)])[0]) == 4 * (i == 0)
            seq.tokens.append(byte)
        (draft,) = drafter.propose([seq], [Limits(4, 4, 1)])
        assert len(draft) > 0
        fresh = make(toy(4), own, target).propose([seq], [Limits(4, 4, 1)])[0]
        assert draft.tokens.tolist() == fresh.tokens.tolist()


def test_one_common_token() -> None:
    target, own = Pieces([b"a", b"b", b"c"], name="target"), Pieces([b"x", b"b"], name="own")
    drafter = token_level(toy(own.vocab_size), own, target, drawing=Drawing("without_replacement"))
    (draft,) = drafter.propose([sequence([1, 2])], [Limits(8, 4, 2)])
    assert draft.tokens.tolist() == [1, 1, 1, 1]
    assert all(law.ids.tolist() == [1] and law.probs.tolist() == [1.0] for law in draft.laws)
    check_draft(draft, Limits(8, 4, 2), 3)


@pytest.mark.parametrize(
    ("sampling", "want"),
    [
        (Sampling(min_tokens=3, stop_token_ids=(1,)), []),  # the only common token is impossible: no draft, no error
        (Sampling(logit_bias={0: float("inf")}), []),  # the target must say what the drafter does not have
        (Sampling(logit_bias={1: float("inf"), 0: 3.0}), [1, 1]),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_options_may_leave_nothing_to_draft(sampling: Sampling, want: list[int], temperature: float) -> None:
    target, own = Pieces([b"a", b"b", b"c"], name="target"), Pieces([b"x", b"b"], name="own")
    for drawing in (Drawing(), Drawing("iid"), Drawing(laws=True)):
        drafter = token_level(toy(own.vocab_size), own, target, drawing=drawing)
        seq = Sequence(0, [1, 2], 2, replace(sampling, temperature=temperature), 0)
        assert drafter.propose([seq], [Limits(2, 2, 1)])[0].tokens.tolist() == want


def test_no_common_token_is_refused() -> None:
    with pytest.raises(VocabularyError, match="no token in common"):
        token_level(toy(1), Pieces([b"x"]), Pieces([b"a"]))


# -- string level -----------------------------------------------------------------------------------------------------


class Says:
    """A draft model's drafter that always says the same."""

    kind = "deterministic"

    def __init__(self, text: str) -> None:
        self._ids = OWN.encode("\n" + text, False)[2:]

    def propose(self, seqs, limits):
        n = min(limits[0].depth, len(self._ids))
        return [Draft(np.array(self._ids[:n], np.int32), np.arange(-1, n - 1, dtype=np.int32))]


def spelled(tokens: list[int], text: str, depth: int = 99) -> list[int]:
    drafter = string_level(toy(OWN.vocab_size), OWN, TARGET)
    drafter._inner = Says(text)
    before = list(tokens)
    draft = drafter.propose([sequence(tokens)], [Limits(99, depth, 1)])[0]
    assert tokens == before
    assert draft.is_chain
    return draft.tokens.tolist()


WORDS = st.lists(st.sampled_from(["the", " the", " a", "ab", "c", "é", "🦊", "\n", "b"]), min_size=1, max_size=8).map(
    "".join
)


@given(WORDS, WORDS)
@settings(max_examples=200, deadline=None)
def test_drafts_say_what_the_drafter_said_and_cut_it_as_the_target_would(before: str, after: str) -> None:
    """Brute force: the cut of the whole text, where one of its pieces begins at the seam; else the cut of the rest."""
    tokens = TARGET.encode(before)
    found = spelled(tokens, after)
    assert said(found) == after
    behind = said_bytes(tokens[-10:]).decode(errors="replace")  # may begin with the rest of a character
    whole = TARGET.encode(behind + after)
    seams = [i for i in range(len(whole) + 1) if said_bytes(whole[:i]) == behind.encode()]
    assert found == (whole[seams[0] :] if seams else TARGET.encode(after))


def said_bytes(ids: list[int]) -> bytes:
    return b"".join(map(TARGET.token_bytes, ids))


def test_confirmed_tokens_stay_whatever_the_text_would_be_cut_into() -> None:
    c, ab, b = TARGET.vocab.index(b"<0x63>"), TARGET.vocab.index(b"ab"), TARGET.vocab.index(b"<0x62>")
    assert TARGET.encode("cab") == [TARGET.vocab.index(b"cab")]
    assert spelled([c], "abb") == [ab, b]  # together they would be one piece
    assert spelled([c, ab], "b") == [b]  # the target said what it would not have been read as


def test_a_target_that_begins_texts_in_its_own_way() -> None:
    """Cut alone, the draft would begin with a space that nobody said: two line ends would hide where it starts."""
    target = Pieces([*BYTES, "▁".encode(), b"\n\n", "▁a".encode()], mark="▁".encode(), prefix=True)
    drafter = string_level(toy(OWN.vocab_size), OWN, target)
    drafter._inner = Says("\n a")
    (draft,) = drafter.propose([sequence(target.encode("the"))], [Limits(9, 9, 1)])
    assert said(draft.tokens.tolist(), target) == "\n a"


def test_limits_are_the_targets() -> None:
    assert spelled(TARGET.encode("a"), " the the the", depth=2) == TARGET.encode(" the the")
    assert said(spelled(TARGET.encode("a"), " 🦊🦊")) == " 🦊🦊"


def test_half_a_character_is_left_out() -> None:
    drafter = string_level(toy(OWN.vocab_size), OWN, TARGET)
    half = Says("")
    half._ids = [OWN.vocab.index(b"b"), *(OWN.vocab.index(BYTES[byte]) for byte in FOX[:2])]
    drafter._inner = half
    (draft,) = drafter.propose([sequence(TARGET.encode("a"))], [Limits(9, 9, 1)])
    assert draft.tokens.tolist() == [TARGET.vocab.index(b"<0x62>")]


def test_ids_without_logits_are_not_drafted() -> None:
    drafter = string_level(toy(OWN.vocab_size), OWN, TARGET)
    drafter._inner, drafter._n_valid = Says("bab"), TARGET.vocab.index(b"ab")
    (draft,) = drafter.propose([sequence(TARGET.encode("é"))], [Limits(9, 9, 1)])
    assert draft.tokens.tolist() == [TARGET.vocab.index(b"<0x62>")]


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uag", "tli", "model", "gsd"])
def test_a_model_must_be_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"`drafter` is '{name}': name the draft model, {name}:PATH"):
        check_spec(name)


def test_another_vocabulary_is_told_of_both(tiny_llama) -> None:
    from types import SimpleNamespace

    from wager.text import Text

    target = SimpleNamespace(text=Text(tiny_llama), progress=None)
    with pytest.raises(VocabularyError, match=r"or give tli:.*tiny-qwen3 or uag:.*tiny-qwen3, which take any"):
        make_drafter(f"model:{tiny_llama.parent / 'tiny-qwen3'}", target)
