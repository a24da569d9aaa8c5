"""Streaming text against brute force, the tokenizer's traps, and two vocabularies side by side."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wager.errors import ModelError, PromptError, VocabularyError
from wager.text import Detokenizer, StopStrings, StreamedText, Text, compare_vocabularies, incomplete_tail

DATA = Path(__file__).parents[1] / "data"
SPECIAL = [b"<s>", b"</s>"]
PIECES = [
    *SPECIAL,
    *(bytes([b]) for b in range(256)),
    "é".encode(),
    "日本".encode(),
    "\ufffd".encode(),
    b" the",
    b"\xe6\x97",
    b"a\xf0\x9f",
    b"\xa5\xe6",
    b"  ",
]


class FakeTokenizer:
    """Byte-level tokenizer with openvino_genai.Tokenizer's interface; ``marks``: unfinished characters as U+FFFD."""

    def __init__(self, pieces: list[bytes], *, marks: bool, cut: int = 10**9, strip: bool = False) -> None:
        self.pieces, self.errors, self.cut, self.strip = pieces, "replace" if marks else "ignore", cut, strip
        self.chat_template = "yes"

    def get_vocab(self) -> dict[bytes, int]:
        return {piece: i for i, piece in enumerate(self.pieces)}

    def get_bos_token(self) -> str:
        return "<s>"

    def get_bos_token_id(self) -> int:
        return 0

    def get_eos_token_id(self) -> int:
        return 1

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
        if ids and isinstance(ids[0], list):
            return [self.decode(one, skip_special_tokens) for one in ids]
        n_special = len(SPECIAL) if skip_special_tokens else 0
        data = b"".join(self.pieces[i] for i in ids if n_special <= i < len(self.pieces))
        text = data.decode(errors=self.errors)
        return text[1:] if self.strip and text.startswith(" ") else text

    def encode(self, text: str, add_special_tokens: bool, max_length: int) -> Any:
        ids: list[int] = []
        if text.startswith("<s>"):
            ids, text = [0], text[3:]
        ids += [2 + b for b in text.encode()]
        ids = ([0] if add_special_tokens else []) + ids
        return SimpleNamespace(input_ids=SimpleNamespace(data=np.array([ids[: self.cut]], np.int64)))

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        if messages[0]["role"] not in ("user", "system"):
            raise RuntimeError("roles must begin with user")
        return "<s>" + "".join(f"[{m['role']}]{m['content']}" for m in messages) + "[assistant]"


def fake(marks: bool = False, pieces: list[bytes] = PIECES, **options: Any) -> Text:
    text = Text.__new__(Text)
    text.path = Path("fake")
    text._tokenizer = FakeTokenizer(pieces, marks=marks, **options)
    return text


FAKES = {(marks, strip): fake(marks, strip=strip) for marks in (False, True) for strip in (False, True)}


def stream(text: Text, ids: list[int], cuts: list[int]) -> list[str]:
    detokenizer, pieces, at = Detokenizer(text), [], 0
    for cut in [*cuts, len(ids)]:
        pieces.append(detokenizer.push(ids[at : at + cut]))
        at += cut
    return pieces


ids_strategy = st.lists(
    st.one_of(st.integers(0, len(PIECES) - 1), st.integers(256, len(PIECES) - 1), st.integers(2 + 0x80, 2 + 0xFF)),
    max_size=150,
)


@settings(max_examples=300, deadline=None)
@given(ids_strategy, st.lists(st.integers(0, 5), max_size=150), st.sampled_from(sorted(FAKES)))
def test_pieces_join_to_the_finished_text_for_any_tokens(
    ids: list[int], cuts: list[int], key: tuple[bool, bool]
) -> None:
    text = FAKES[key]
    assert "".join(stream(text, ids, cuts)) == text.finished(ids)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80), st.data(), st.sampled_from(sorted(FAKES)))
def test_real_text_never_shows_a_replacement_of_its_own(s: str, data: st.DataObject, key: tuple[bool, bool]) -> None:
    text = FAKES[key]
    raw = s.encode()
    n = data.draw(st.integers(0, len(raw)))
    ids = [2 + b for b in raw[:n]]
    whole = raw[:n].decode(errors="ignore")
    whole = whole[1:] if key[1] and whole.startswith(" ") else whole
    pieces = stream(text, ids, [1] * n)
    assert "".join(pieces) == whole == text.finished(ids)
    assert sum(p.count("\ufffd") for p in pieces) == whole.count("\ufffd")


@pytest.mark.parametrize("key", FAKES)
@given(ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=90))
@settings(max_examples=60, deadline=None)
def test_joined_bytes_are_what_windows_give(ids: list[int], key: tuple[bool, bool]) -> None:
    shown = []
    for joins in (True, False):
        text = fake(key[0], strip=False)
        text.__dict__["joins_bytes"] = joins
        detokenizer = Detokenizer(text)
        shown.append([detokenizer.push([token]) for token in ids])
    assert shown[0] == shown[1]


def test_a_tokenizer_that_drops_a_leading_space_is_found_out() -> None:
    assert fake(strip=False).joins_bytes
    assert not fake(strip=True).joins_bytes


@pytest.mark.parametrize("marks", [False, True])
def test_a_character_cut_by_the_end_is_dropped(marks: bool) -> None:
    text = FAKES[marks, False]
    for character in "é日😀":
        data = character.encode()
        for n in range(1, len(data)):
            ids = [2 + ord("x"), *(2 + b for b in data[:n])]
            assert "".join(stream(text, ids, [1] * len(ids))) == "x" == text.finished(ids)


@pytest.mark.parametrize("marks", [False, True])
def test_a_real_replacement_character_passes(marks: bool) -> None:
    text = FAKES[marks, False]
    real = PIECES.index("\ufffd".encode())
    assert stream(text, [real, 2 + 0xE6], [1, 1])[:2] == ["\ufffd", ""]
    assert text.finished([real, 2 + 0xE6]) == "\ufffd"


@pytest.mark.parametrize("marks", [False, True])
def test_special_tokens_inside_a_character_do_not_break_it(marks: bool) -> None:
    ids = [2 + 0xE6, 0, 1, 2 + 0x97, 1, 2 + 0xA5]
    assert stream(FAKES[marks, False], ids, [1] * 6)[5] == "日"


def test_streaming_decodes_short_windows_only() -> None:
    text = fake()
    lengths: list[int] = []
    decode = text._tokenizer.decode
    assert text.special_ids == {0, 1}
    text.__dict__["joins_bytes"] = False
    text._tokenizer.decode = lambda ids: lengths.append(len(ids)) or decode(ids)
    stream(text, [2 + ord("a"), 1] * 3000, [1] * 6000)
    assert max(lengths) <= 64
    assert len(lengths) <= 3000 * 1.1


@given(st.binary(max_size=6))
def test_incomplete_tail_is_what_a_decoder_waits_for(data: bytes) -> None:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(data)
    assert incomplete_tail(data) == len(decoder.getstate()[0])


def first_ending(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(1, len(text) + 1):
        starts = [end - len(s) for s in stops if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)], True
    return text, False


@settings(max_examples=500, deadline=None)
@given(
    st.text(alphabet="abc", max_size=40),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 4), max_size=40),
)
def test_stop_strings_against_brute_force(text: str, stops: list[str], cuts: list[int]) -> None:
    want, want_hit = first_ending(text, stops)
    search, got, hit, at = StopStrings(stops), "", False, 0
    for cut in [*cuts, len(text)]:
        piece, hit = search.push(text[at : at + cut])
        got, at = got + piece, at + cut
        assert want.startswith(got)
    assert (got + search.finish(), hit) == (want, want_hit)


def test_stop_strings_hold_back_no_more_than_needed() -> None:
    search = StopStrings(["\n\nUser:", "END"])
    assert search.push("hello\n") == ("hello", False)
    assert search.push("world E") == ("\nworld ", False)
    assert search.push("ND of it") == ("", True)
    assert search.push("more") == ("", True)
    assert search.finish() == ""


def test_a_stop_string_before_min_tokens_is_text() -> None:
    stream = StreamedText(fake(), ["ab"])
    pushed = [stream.push(2 + b, may_stop=i >= 3) for i, b in enumerate(b"abaab")]
    assert pushed == [("", False), ("ab", False), ("", False), ("a", False), ("", True)]
    assert stream.finish() == ""
    search = StopStrings(["abc", "b"])
    assert [search.push("ab", may_stop=False), search.push("xb")] == [("", False), ("abx", True)]
    held = StreamedText(fake(), ["ab"])
    assert held.push(2 + ord("a")) == ("", False)
    assert held.finish() == "a"


def test_encode_adds_one_bos_only() -> None:
    text = fake()
    assert text.encode("hi") == [0, *(2 + b for b in b"hi")]
    assert text.encode("<s>hi") == text.encode("hi")
    assert text.encode("hi", add_special=False) == [2 + b for b in b"hi"]
    assert text.chat([{"role": "user", "content": "hi"}]).count(0) == 1
    assert text.encode(text.render([{"role": "user", "content": "hi"}])).count(0) == 1


def test_a_text_that_the_tokenizer_would_cut_is_refused() -> None:
    text = fake(cut=1000)
    assert len(text.encode("x" * 900)) == 901
    with pytest.raises(PromptError, match="1000"):
        text.encode("x" * 5000)


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(PromptError, match="udce9"):
        fake().encode("caf\udce9")


def test_chat_puts_the_system_message_in_front() -> None:
    text = fake()
    user = {"role": "user", "content": "hi"}
    assert text.render([user], "be brief") == "<s>[system]be brief[user]hi[assistant]"
    assert text.render([{"role": "system", "content": "old"}, user], "new") == "<s>[system]new[user]hi[assistant]"


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([], "no messages"),
        ([{"role": "user"}], "content"),
        ([{"role": "assistant", "content": "x"}], "begin with user"),
    ],
)
def test_messages_that_cannot_be_rendered(messages: list[dict[str, str]], match: str) -> None:
    with pytest.raises(PromptError, match=match):
        fake().chat(messages)


def test_no_chat_template_is_an_error_that_names_raw() -> None:
    text = fake()
    text._tokenizer.chat_template = ""
    with pytest.raises(PromptError, match="--raw"):
        text.chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(("generation", "config"), [("[5, 7]", "7"), ("5", "[7]")])
def test_eos_ids_come_from_every_place(tmp_path: Path, generation: str, config: str) -> None:
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {generation}}}')
    (tmp_path / "config.json").write_text(f'{{"eos_token_id": {config}}}')
    text = fake()
    text.path = tmp_path
    assert text.eos_ids == {1, 5, 7}


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    text = fake()
    text.path = tmp_path
    with pytest.raises(ModelError, match=r"config\.json"):
        _ = text.eos_ids


def test_vocabularies_are_compared_by_piece() -> None:
    swapped = [*PIECES]
    swapped[70], swapped[71] = swapped[71], swapped[70]
    with pytest.raises(VocabularyError, match="`70`"):
        compare_vocabularies(fake(), fake(pieces=swapped))
    compare_vocabularies(fake(), fake(pieces=[*PIECES, *(b"[PAD%d]" % i for i in range(128))]))
    compare_vocabularies(fake(pieces=[*PIECES, b"<|reserved_special_token_1|>"]), fake(pieces=[*PIECES, b"<tool>"]))


def test_byte_pieces_count_as_bytes() -> None:
    class ByteFallback(FakeTokenizer):
        def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
            if ids and isinstance(ids[0], list):
                return [self.decode(one, skip_special_tokens) for one in ids]
            parts = [self.pieces[i] for i in ids]
            data = b"".join(bytes([int(p[3:5], 16)]) if p.startswith(b"<0x") else p for p in parts)
            return data.decode(errors="replace")

    text = fake()
    text._tokenizer = ByteFallback([b"x", *(b"<0x%02X>" % b for b in range(256))], marks=True)
    ids = [0, *(1 + b for b in "日".encode())]
    assert stream(text, ids, [1] * 4)[:4] == ["x", "", "", "日"]
    assert text.finished(ids[:3]) == "x"
    assert text.token_text(1 + ord("A")) == "A"


def test_a_folder_without_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="openvino_tokenizer"):
        Text(tmp_path)


@pytest.fixture(scope="module")
def real() -> Text:
    return Text(DATA / "tiny-llama")


def test_a_real_tokenizer_streams_what_it_decodes(real: Text) -> None:
    rng = np.random.default_rng(0)
    sentence = real.encode("the 😀 sea 日本語 and é <|im_end|> \ufffd it's")
    for ids in [sentence, *rng.integers(0, real.vocab_size + 3, (20, 120)).tolist()]:
        for n in (len(ids), len(ids) // 2):
            assert "".join(stream(real, ids[:n], [1] * n)) == real.finished(ids[:n])
    assert real.finished(sentence) == "the 😀 sea 日本語 and é  \ufffd it's"


def test_a_real_tokenizer_marks_the_conversation_once(real: Text) -> None:
    ids = real.chat([{"role": "user", "content": "the sea"}], "be brief")
    pieces = [real.token_text(token) for token in ids]
    assert pieces[0] == "<|im_start|>"
    assert pieces.count("<|im_start|>") == 3
    assert real.token_text(next(iter(real.eos_ids))) in ("<|im_end|>", "<|endoftext|>")


def test_real_vocabularies_in_another_order_are_refused(real: Text) -> None:
    compare_vocabularies(real, Text(DATA / "tiny-llama-b"))
    with pytest.raises(VocabularyError, match="tiny-qwen3"):
        compare_vocabularies(real, Text(DATA / "tiny-qwen3"))


def test_a_real_tokenizer_does_not_cut_silently(real: Text) -> None:
    text = "sea " * 20_000
    try:
        ids = real.encode(text)
    except PromptError:
        return
    assert real.decode(ids) == text
