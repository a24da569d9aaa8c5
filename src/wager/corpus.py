"""Text files to one array of tokens: what stores are built from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wager.errors import OptionError, PromptError
from wager.text import Text
from wager.types import I32

SEPARATOR = -1  # after every document; below every token, so that a text that ends sorts before one that goes on
PROMPTS = ("turns", "prompt", "question")
ANSWERS = ("response", "answer", "completion")
# Long texts are encoded piece by piece: tokenizers cut texts that are too long for them, and this shows progress.
_PIECE, _LEAST_PIECE = 1600, 64

Progress = Callable[[str, int, int], None]
Messages = list[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was read."""

    path: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """``tokens`` (N,) int32: the tokens of every document, each document followed by ``SEPARATOR``."""

    tokens: I32
    sources: tuple[Source, ...]


def read_corpus(paths: ListLike[Path], text: Text, *, progress: Progress | None = None) -> Corpus:
    """The documents of all files: a .jsonl file has one a line, any other file is one.

    A line has ``text``; or a prompt (``prompt``, ``question`` or the list ``turns``) and its answer (``response``,
    ``answer`` or ``completion``, a list for turns); or ``messages``. Conversations are tokenised as the engine holds
    them: everything up to the last answer in the model's chat template, then the answer by itself.
    Raises ``OptionError`` for a file or line that cannot be read, and where there is no token in all of them.
    """
    total = sum(_size(path) for path in paths)
    tell = progress or _silent
    tell("tokenising", 0, total)
    arrays: list[I32] = []
    sources: list[Source] = []
    base = 0
    for path in paths:
        data = _read(path)
        done = base
        for where, document, end in _documents(path, data):
            ids: list[I32] = []
            for piece in _parts(where, document, text):
                ids.append(np.asarray(_encode(where, piece, text), np.int32))
                done += len(piece.encode(errors="replace"))
                tell("tokenising", min(done, base + end), total)
            done = base + end
            if any(map(len, ids)):
                arrays += [*ids, np.array([SEPARATOR], np.int32)]
        base += len(data)
        sources.append(Source(str(path), len(data), hashlib.sha256(data).hexdigest()))
    tell("tokenising", total, total)
    if not arrays:
        raise OptionError(f"`{', '.join(map(str, paths))}` has no text: give files with some")
    return Corpus(np.concatenate(arrays), tuple(sources))


def pieces(text: str, n_most: int) -> Iterator[str]:
    """``text`` in pieces of at most ``n_most`` characters, cut where tokenizers cut too: paragraph, line or word."""
    start = 0
    while len(text) - start > n_most:
        end = _cut(text, start + n_most // 2, start + n_most)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _cut(text: str, low: int, high: int) -> int:
    """The best place in (low, high] to cut; a space goes with the word after it."""
    for mark, n_before in (("\n\n", 2), ("\n", 1), (" ", 0)):
        at = text.rfind(mark, low + 1, high)
        if at >= 0:
            return at + n_before
    return high


def _documents(path: Path, data: bytes) -> Iterator[tuple[str, str | Messages, int]]:
    """Where each document is, the document, and the byte after it."""
    if path.suffix != ".jsonl":
        yield str(path), _decoded(path, data), len(data)
        return
    end = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        end += len(line)
        if line.strip():
            yield f"{path}:{number}", _document(f"{path}:{number}", line), end


def _document(where: str, line: bytes) -> str | Messages:
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        raise OptionError(f"`{where}` is not JSON ({error}): give one JSON object a line") from error
    if not isinstance(entry, dict):
        raise OptionError(f"`{where}` is no JSON object: give one a line")
    if "messages" in entry:
        return _messages(where, entry["messages"])
    prompts, answers = (_strings(where, entry, names) for names in (PROMPTS, ANSWERS))
    if prompts:
        if len(answers) > len(prompts):
            raise OptionError(f"`{where}` has {len(answers)} answers to {len(prompts)} prompts: give one each")
        users = [{"role": "user", "content": prompt} for prompt in prompts]
        replies = [{"role": "assistant", "content": answer} for answer in answers]
        return [message for i, user in enumerate(users) for message in (user, *replies[i : i + 1])]
    texts = answers or _strings(where, entry, ("text",))
    if not texts:
        raise OptionError(
            f"`{where}` has the fields {', '.join(map(repr, entry)) or 'none'}: give `text`, `messages`, or one of "
            f"{', '.join(PROMPTS)} with one of {', '.join(ANSWERS)}"
        )
    return "\n\n".join(texts)


def _messages(where: str, value: Any) -> Messages:
    fine = isinstance(value, list) and all(
        isinstance(m, dict) and all(isinstance(m.get(key), str) for key in ("role", "content")) for m in value
    )
    if not fine or not value:
        raise OptionError(f"`{where}` has `messages` of another form: give a list of objects with `role` and `content`")
    return list(value)


def _strings(where: str, entry: Mapping[str, Any], names: ListLike[str]) -> list[str]:
    """The strings under the first of ``names`` that is there; a string alone counts as one."""
    name = next((name for name in names if name in entry), None)
    if name is None:
        return []
    value = [entry[name]] if isinstance(entry[name], str) else entry[name]
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise OptionError(f"`{where}` has `{name}` that is no text: give a string or a list of strings")
    return value


def _parts(where: str, document: str | Messages, text: Text) -> Iterator[str]:
    """The pieces in which a document is encoded."""
    if isinstance(document, str):
        texts = [document]
    elif not text.has_chat_template or [m["role"] for m in document] == ["assistant"]:
        texts = ["\n\n".join(message["content"] for message in document)]
    else:
        answered = document[-1]["role"] == "assistant"
        asked = document[:-1] if answered else document
        try:
            texts = [text.render(asked), *([document[-1]["content"]] if answered else [])]
        except PromptError as error:
            raise OptionError(f"`{where}` is no conversation for this model ({error})") from error
    for part in texts:
        yield from pieces(part, _PIECE)


def _encode(where: str, piece: str, text: Text) -> list[int]:
    try:
        return text.encode(piece, add_special=False)
    except PromptError as error:
        if len(piece) < 2 * _LEAST_PIECE:
            raise OptionError(f"`{where}` cannot be tokenised ({error})") from error
    # Only the tokenizer knows how much it reads at once.
    return [token for half in pieces(piece, -(-len(piece) // 2)) for token in _encode(where, half, text)]


def _size(path: Path) -> int:
    if path.is_dir():
        raise OptionError(f"`{path}` is a folder: give the files in it")
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> OptionError:
    return OptionError(f"`{path}` cannot be read ({error.strerror}): give text or .jsonl files that can")


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"`{path}` is not UTF-8 (byte `0x{data[error.start]:02x}` at {error.start}): convert it, e.g. with iconv"
        ) from error


def _silent(what: str, done: int, total: int) -> None:
    pass
