"""Two tokenizers that speak of one text: what their vocabularies have in common, and how the other one reads.

All of it is a function of the target's tokens, however they came: a drafter's view of a text must not depend on where
rounds began. Timor et al. 2502.05202.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wager.errors import OptionError, VocabularyError
from wager.text import Text, incomplete_tail
from wager.types import I64

SPACES = (b" ", "Ġ".encode(), "▁".encode())  # how vocabularies write a space
_BLOCK = 512  # characters after which a text is cut, so that no more is ever read again
_CUT = re.compile(r"(?<=[^\W_]) (?=[^\W_])")  # before a space between words, where any tokenizer starts a piece


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """The pieces that both vocabularies have: ``own`` (V,) is the drafter's id of a target id, ``target`` (U,) the
    other way about; -1 where there is none.
    """

    own: I64
    target: I64

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.own >= 0))


def check_path(name: str, argument: str) -> None:
    """Raises ``OptionError`` where drafter ``name`` was given no model."""
    if not argument:
        raise OptionError(f"`drafter` is {name!r}: name the draft model, {name}:PATH")


def folder_of(name: str, argument: str, target: Any) -> Path:
    """The folder of the model ``argument``, whatever its vocabulary, for drafter ``name``."""
    from wager.models import catalog

    check_path(name, argument)
    return catalog.resolve(argument, progress=target.progress)


def common(target: Text, own: Text, *, n_target: int, n_own: int) -> Common:
    """Pair ids below ``n_target`` and ``n_own`` by what they say: equal pieces first, then pieces of equal bytes.

    Special tokens pair with special tokens of the same name only. Raises VocabularyError where nothing is in common.
    """
    found = Common(np.full(n_target, -1, np.int64), np.full(n_own, -1, np.int64))
    speakers = Speller(target), Speller(own)
    for say in (_pieces, _bytes):
        theirs = {key: token for token, key in say(speakers[0], found.own)}
        for token, key in say(speakers[1], found.target):
            there = theirs.get(key)
            if there is not None and found.own[there] < 0:
                found.own[there], found.target[token] = token, there
    if not found.size:
        names = f"`{own.path.name}` and `{target.path.name}`"
        raise VocabularyError(f"{names} have no token in common: draft with uag:PATH, or choose another model")
    return found


def _pieces(speller: Speller, paired: I64) -> Iterator[tuple[int, tuple[bytes, bool]]]:
    """Ids that are not paired yet with their piece, spaces written alike, and whether they are special; each once."""
    seen = set()
    for token, piece in enumerate(speller.text.vocab[: len(paired)]):
        key = (speller.spaced(piece), token in speller.text.special_ids)
        if piece and paired[token] < 0 and key not in seen:
            seen.add(key)
            yield token, key


def _bytes(speller: Speller, paired: I64) -> Iterator[tuple[int, tuple[bytes, bool]]]:
    """Ids that are not paired yet with the bytes they add to a text; each once."""
    seen = set()
    for token in np.flatnonzero(paired < 0).tolist():
        data = speller.said([token])
        if data and data not in seen:
            seen.add(data)
            yield token, (data, False)


class Speller:
    """A tokenizer that can go on in the middle of a text, whatever it does at the beginning of one."""

    def __init__(self, text: Text) -> None:
        self.text = text
        heads = [sum(piece.startswith(mark) for piece in text.vocab) for mark in SPACES]
        self._space = SPACES[int(np.argmax(heads))]
        first = self.said(text.encode("a", False))
        self._is_plain = text.decode(text.encode(" a", False)) == " a" and not first.startswith(b" ")
        self._anchor = text.encode("\n", False)

    def spaced(self, piece: bytes) -> bytes:
        """A piece with its spaces as spaces."""
        return piece.replace(self._space, b" ")

    def said(self, ids: Iterable[int]) -> bytes:
        """What ids add to a text."""
        return self.spaced(b"".join(map(self.text.token_bytes, ids)))

    def begin(self, said: str) -> list[int]:
        """Ids of a text from its beginning, BOS included where the model wants one."""
        return self.text.encode(said)

    def go_on(self, said: str) -> list[int]:
        """Ids of what follows other text: without BOS, and without the space that some put in front or take away."""
        if not self._is_plain:
            n, ids = len(self._anchor), self.text.encode("\n" + said, False)
            if ids[:n] == self._anchor:
                return ids[n:]
        return self.text.encode(said, False)


class Heard:
    """The text of a target's tokens, up to the last complete character."""

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        self.n_tokens = 0
        self._open = b""

    @property
    def is_open(self) -> bool:
        """Whether a character is incomplete."""
        return bool(self._open)

    def skip(self) -> None:
        """Pass over a token, where no character is incomplete."""
        assert not self._open
        self.n_tokens += 1

    def push(self, tokens: ListLike[int]) -> str:
        """Hear more tokens; the text that they complete. Bytes that are no text are U+FFFD."""
        self.n_tokens += len(tokens)
        data = self._open + self._speller.said(tokens)
        n_tail = incomplete_tail(data)
        self._open = data[len(data) - n_tail :]
        return data[: len(data) - n_tail].decode(errors="replace")


class Reading:
    """Ids in which a drafter reads a growing text: as its tokenizer cuts it, block by block."""

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        self._ids: list[int] = []  # of the blocks that are complete
        self._tail = ""
        self._at_start = True

    def push(self, said: str) -> None:
        self._tail += said
        while len(self._tail) > _BLOCK and (cut := _CUT.search(self._tail, _BLOCK)):
            self._ids += self._of(self._tail[: cut.start()])
            self._tail, self._at_start = self._tail[cut.start() :], False

    def ids(self) -> list[int]:
        return self._ids + self._of(self._tail)

    def _of(self, said: str) -> list[int]:
        return self._speller.begin(said) if self._at_start else self._speller.go_on(said)


def complete(data: bytes) -> str:
    """The text that bytes begin with: up to an incomplete character, or to what is no text."""
    try:
        return data[: len(data) - incomplete_tail(data)].decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()
