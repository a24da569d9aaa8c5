"""Two tokenizers and one text: what is in common, and ids that do not depend on how the text came."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vocabulary_tools import BYTES, Pieces
from wager.drafters.vocabularies import Heard, Reading, Speller, common, complete
from wager.errors import VocabularyError

WORDS = [b"the", b" the", b"a", b" a", b"\n", b" ", "é".encode(), "🦊".encode(), b"ab", b"b", b" ab"]
PLAIN = Pieces([*BYTES, *WORDS])
SPACED = Pieces([*BYTES, *(word.replace(b" ", "▁".encode()) for word in WORDS)], mark="▁".encode(), prefix=True, bos=0)
TEXTS = st.lists(
    st.sampled_from(["the", " the", " a", "\n", "é", "🦊", "  ", "ab", "b c", "x " * 300]), max_size=12
).map("".join)


def ids_in_common(target: Pieces, own: Pieces) -> list[int]:
    return common(target, own, n_target=target.vocab_size, n_own=own.vocab_size).own.tolist()


# -- the intersection -------------------------------------------------------------------------------------------------


@given(st.permutations(WORDS), st.integers(1, len(WORDS)), st.sampled_from([b" ", "Ġ".encode(), "▁".encode()]))
@settings(max_examples=100, deadline=None)
def test_common_pieces_are_those_of_brute_force(order: list[bytes], n: int, mark: bytes) -> None:
    own = Pieces([piece.replace(b" ", mark) for piece in order[:n]], mark=mark)
    if not any(piece.startswith(mark) for piece in own.vocab):
        own = Pieces(order[:n])
    target = Pieces(WORDS)
    want = [next((i for i, piece in enumerate(order[:n]) if piece == word), -1) for word in WORDS]
    assert ids_in_common(target, own) == want
    found = common(target, own, n_target=len(WORDS), n_own=n)
    back = common(own, target, n_target=n, n_own=len(WORDS))
    assert found.size == back.size == n
    assert (found.own.tolist(), found.target.tolist()) == (back.target.tolist(), back.own.tolist())


def test_equal_vocabularies_are_their_own_intersection() -> None:
    twice = [*BYTES, *WORDS, b"a"]
    assert ids_in_common(PLAIN, PLAIN) == list(range(PLAIN.vocab_size))
    assert ids_in_common(Pieces(twice), Pieces(twice)) == list(range(len(twice)))


def test_bytes_pair_with_bytes_where_pieces_do_not() -> None:
    """A byte-level vocabulary has the byte itself where another one spells it; a piece comes before a spelt byte."""
    raw = Pieces([bytes([byte]) for byte in range(256)])
    assert ids_in_common(raw, Pieces(BYTES)) == list(range(256))
    assert ids_in_common(Pieces([*BYTES, b"a"]), raw)[ord("a")] == -1
    assert ids_in_common(Pieces([*BYTES, b"a"]), raw)[256] == ord("a")


def test_special_tokens_pair_by_name_and_among_themselves() -> None:
    target = Pieces([b"<end>", b"<eos>", b"a"], special=(0, 1))
    assert ids_in_common(target, Pieces([b"a", b"<end>", b"<eos>"], special=(1,))) == [1, -1, 0]


def test_ids_without_logits_are_left_out() -> None:
    found = common(Pieces(WORDS), Pieces(WORDS), n_target=5, n_own=3)
    assert (found.own.tolist(), found.target.tolist(), found.size) == ([0, 1, 2, -1, -1], [0, 1, 2], 3)


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(VocabularyError, match=r"`own` and `target` have no token in common: draft with uag:PATH"):
        ids_in_common(Pieces([b"a"], name="target"), Pieces([b"b"], name="own"))


# -- text and its tokens ----------------------------------------------------------------------------------------------


@given(TEXTS, st.lists(st.integers(1, 9)), st.sampled_from([PLAIN, SPACED]))
@settings(max_examples=200, deadline=None)
def test_reading_does_not_depend_on_how_text_came(text: str, cuts: list[int], tokenizer: Pieces) -> None:
    whole, pieces, at = Reading(Speller(tokenizer)), Reading(Speller(tokenizer)), 0
    whole.push(text)
    for cut in [*cuts, len(text)]:
        pieces.push(text[at : at + cut])
        pieces.ids()
        at += cut
    assert pieces.ids() == whole.ids()
    assert tokenizer.decode(whole.ids()) == text
    if len(text) <= 512:
        assert whole.ids() == tokenizer.encode(text)


def test_what_was_read_is_not_read_again() -> None:
    reading = Reading(Speller(PLAIN))
    reading.push("the a " * 1000)
    asked: list[str] = []
    encode = PLAIN.encode
    reading._speller.text = type(
        "", (), {"encode": lambda self, said, *rest: asked.append(said) or encode(said, *rest)}
    )()
    for _ in range(20):
        reading.push("the a ")
        reading.ids()
    assert max(map(len, asked)) < 600


@given(TEXTS, st.lists(st.integers(1, 7)))
def test_characters_that_pieces_split_are_heard_whole(text: str, cuts: list[int]) -> None:
    ids = list(text.encode())  # bytes, one token each
    heard, said, at = Heard(Speller(PLAIN)), "", 0
    for cut in [*cuts, len(ids)]:
        said += heard.push(ids[at : at + cut])
        at += cut
        assert text.startswith(said)
        assert heard.is_open == (len(said.encode()) < min(at, len(ids)))
    assert said == text
    assert not heard.is_open


def test_bytes_that_are_no_text_do_not_stop_what_follows() -> None:
    heard = Heard(Speller(PLAIN))
    assert heard.push([0xF0, 0x9F]) == ""
    assert heard.push([ord("a")]) == "\ufffda"
    assert complete(b"ab\xff" + b"c") == "ab"
    assert complete("aé🦊".encode()[:-1]) == "aé"
    assert complete(b"\x80") == ""


@pytest.mark.parametrize("tokenizer", [PLAIN, SPACED])
def test_going_on_neither_adds_a_space_nor_takes_one_away(tokenizer: Pieces) -> None:
    speller = Speller(tokenizer)
    for said in ("the", " the", " a b", "\n", "🦊"):
        assert speller.said(speller.go_on(said)).decode() == said
        assert tokenizer.decode(speller.begin(said)) == said
