"""Files to documents of tokens: what a line may hold, how long texts are cut, and what is said about the rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wager.corpus import SEPARATOR, Corpus, pieces, read_corpus
from wager.errors import OptionError, PromptError
from wager.text import Text


class Letters:
    """A token a letter, none for a tab; refuses texts of more than ``most`` letters, as tokenizers do."""

    def __init__(self, *, template: bool = True, most: int = 10**9) -> None:
        self.has_chat_template, self._most = template, most

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        assert not add_special
        if len(text) > self._most or "\ud800" in text:
            raise PromptError("too long: shorten it")
        return [ord(letter) for letter in text if letter != "\t"]

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        if not messages or messages[0]["role"] == "tool":
            raise PromptError("the chat template refuses the messages")
        return "".join(f"<{m['role'][0]}>{m['content']}" for m in messages) + "<a>"


def documents(corpus: Corpus) -> list[str]:
    tokens = corpus.tokens.tolist()
    assert tokens[-1] == SEPARATOR
    return "".join("\0" if t == SEPARATOR else chr(t) for t in tokens).split("\0")[:-1]


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


@settings(deadline=None)
@given(st.text(alphabet="ab \n", max_size=200), st.integers(1, 30))
def test_pieces_are_the_text(text: str, n_most: int) -> None:
    cut = list(pieces(text, n_most))
    assert "".join(cut) == text
    assert all(0 < len(piece) <= n_most for piece in cut)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("aaa bbb\n\nccc\nd eee", ["aaa bbb\n\n", "ccc\nd eee"]),
        ("aaa bbb\nc ddd eee", ["aaa bbb\n", "c ddd eee"]),
        ("aaa bbb ccc ddd", ["aaa bbb", " ccc ddd"]),
        ("a bbbbbbbbbbbbb", ["a bbbbbbbb", "bbbbb"]),
    ],
)
def test_pieces_end_where_a_tokenizer_would_cut_too(text: str, cut: list[str]) -> None:
    assert list(pieces(text, 10)) == cut


def test_a_file_is_a_document_and_a_line_of_jsonl_is_one(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.txt", "one\ntwo"),
        write(tmp_path / "empty.md", ""),
        write(tmp_path / "b.jsonl", {"text": "three"}, "", {"text": ""}, {"text": "\t"}, {"text": "four", "id": 5}),
        write(tmp_path / "c.py", "\ufefffive"),
    ]
    corpus = read_corpus(files, Letters())
    assert documents(corpus) == ["one\ntwo", "three", "four", "five"]
    for file, source in zip(files, corpus.sources, strict=True):
        data = file.read_bytes()
        assert (source.path, source.n_bytes) == (str(file), len(data))
        assert source.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("line", "held", "plain"),
    [
        ({"prompt": "p", "response": "r"}, "<u>p<a>r", "p\n\nr"),
        ({"question": "p", "answer": "r"}, "<u>p<a>r", "p\n\nr"),
        ({"prompt": "p"}, "<u>p<a>", "p"),
        ({"completion": "r"}, "r", "r"),
        ({"turns": ["p", "q"]}, "<u>p<u>q<a>", "p\n\nq"),
        ({"turns": ["p", "q"], "response": ["r", "s"]}, "<u>p<a>r<u>q<a>s", "p\n\nr\n\nq\n\ns"),
        ({"turns": ["p", "q"], "response": ["r"]}, "<u>p<a>r<u>q<a>", "p\n\nr\n\nq"),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]},
            "<s>s<u>p<a>",
            "s\n\np",
        ),
        ({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]}, "<u>p<a>r", "p\n\nr"),
        ({"messages": [{"role": "assistant", "content": "r"}]}, "r", "r"),
    ],
)
def test_conversations_are_held_as_the_engine_holds_them(
    tmp_path: Path, line: dict[str, object], held: str, plain: str
) -> None:
    file = write(tmp_path / "a.jsonl", line)
    assert documents(read_corpus([file], Letters())) == [held]
    assert documents(read_corpus([file], Letters(template=False))) == [plain]


def test_a_conversation_has_the_tokens_of_prompt_and_answer(tmp_path: Path, tiny_llama: Path) -> None:
    """Fails if prompt and answer were encoded as one text, or with a token in front."""
    text = Text(tiny_llama)
    file = write(tmp_path / "a.jsonl", {"prompt": "the quick brown", "response": " fox"})
    prompt = text.chat([{"role": "user", "content": "the quick brown"}])
    answer = text.encode(" fox", add_special=False)
    assert read_corpus([file], text).tokens.tolist() == [*prompt, *answer, SEPARATOR]


def test_long_texts_are_read_in_pieces_the_tokenizer_can_read(tmp_path: Path) -> None:
    content = "some words and\nlines\n\n" * 700
    corpus = read_corpus([write(tmp_path / "a.txt", content)], Letters(most=300))
    assert documents(corpus) == [content]


def test_progress_grows_to_the_end(tmp_path: Path) -> None:
    line = {"text": "ü" * 30, "id": "x" * 500}
    files = [write(tmp_path / "a.txt", "é words " * 900), write(tmp_path / "b.jsonl", *[line] * 9)]
    seen: list[tuple[str, int, int]] = []
    read_corpus(files, Letters(), progress=lambda *what: seen.append(what))
    total = sum(file.stat().st_size for file in files)
    assert {(what, n) for what, _, n in seen} == {("tokenising", total)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[0][1] == 0
    assert seen[-1][1] == total
    first = files[0].stat().st_size
    assert len({done for _, done, _ in seen if done < first}) > 3, "within a long document"
    assert len({done for _, done, _ in seen if done > first}) >= 9, "line by line"
    assert seen[-2][1] > total - len(json.dumps(line)), "bytes that are no text count too"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", r"a.jsonl:1` is not JSON .*one JSON object a line"),
        (b'{"text": "x"}\n{"text"}', r"a.jsonl:2` is not JSON"),
        (b"[1]", r"a.jsonl:1` is no JSON object"),
        (b'{"body": "x", "n": 1}', r"a.jsonl:1` has the fields 'body', 'n': give `text`, `messages`, or one of turns"),
        (b"{}", r"has the fields none: give"),
        (b'{"text": 5}', r"`text` that is no text: give a string or a list of strings"),
        (b'{"turns": ["a", 5]}', r"`turns` that is no text"),
        (b'{"prompt": "a", "answer": ["b", "c"]}', r"has 2 answers to 1 prompts"),
        (b'{"messages": []}', r"`messages` of another form: give a list of objects with `role`"),
        (b'{"messages": [{"role": "user"}]}', r"`messages` of another form"),
        (b'{"messages": [{"role": "tool", "content": "x"}]}', r"no conversation for this model \(the chat template"),
        (b'{"text": "\\ud800"}', r"a.jsonl:1` cannot be tokenised"),
        (b"\n\n", r"a.jsonl` has no text: give files with some"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=said):
        read_corpus([file], Letters())


def test_files_that_cannot_be_read_are_named_before_work_begins(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "fine")

    def told(*_: object) -> None:
        pytest.fail("begins")

    with pytest.raises(OptionError, match="is a folder: give the files in it"):
        read_corpus([good, tmp_path], Letters(), progress=told)
    with pytest.raises(OptionError, match=r"nothere` cannot be read \(No such file"):
        read_corpus([good, tmp_path / "nothere"], Letters(), progress=told)
    (tmp_path / "b.txt").write_bytes(b"fine \xe9")
    with pytest.raises(OptionError, match=r"b.txt` is not UTF-8 \(byte `0xe9` at 5\)"):
        read_corpus([good, tmp_path / "b.txt"], Letters())


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    file = write(tmp_path / "a.txt", "fine")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OptionError, match=r"a.txt` cannot be read \(Permission denied\)"):
        read_corpus([file], Letters())
