"""Text to tokens and back: the tokenizer, the chat template, streaming detokenisation and stop strings."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from wager.errors import ModelError, PromptError, VocabularyError

REPLACEMENT = "\ufffd"
_BYTE_PIECE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_PADDING_PIECE = re.compile(rb"\[PAD\d+\]|<pad_?\d+>|<\|?(?:reserved|unused|dummy)[^>]*>", re.IGNORECASE)
# Encoders may cut long texts at a length stored in their graph, without saying so; shorter texts are not checked.
_CHECK_CUT_FROM = 512
# The window is decoded again for each piece: long enough to re-anchor seldom, short enough to be cheap.
_WINDOW, _OVERLAP = 48, 8
_PROBE_TOKENS = 256
_TOUCHY_PIECE = re.compile(rb" ?(?:[.?!,']|n't|'(?:m|s|ve|re|t|ll|d)|' )")


def incomplete_tail(data: bytes) -> int:
    """Number of bytes at the end of ``data`` that begin a UTF-8 character and do not complete it (0 … 3).

    Only well-formed beginnings count (Unicode standard, table 3-7): a byte that can never become a character is
    garbage, not incomplete.
    """
    for n in range(1, min(3, len(data)) + 1):
        lead = data[-n]
        if lead & 0xC0 == 0x80:
            continue
        size = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0
        if n >= size:
            return 0
        if n > 1:
            low = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80)
            high = {0xED: 0x9F, 0xF4: 0x8F}.get(lead, 0xBF)
            return n if low <= data[-n + 1] <= high else 0
        return n
    return 0


def _is_text(piece: bytes) -> bool:
    try:
        return bool(piece.decode())
    except UnicodeDecodeError:
        return False


class Text:
    """The tokenizer of an OpenVINO model folder (``openvino_tokenizer.xml``, ``openvino_detokenizer.xml``).

    Raises ``ModelError`` when the folder has no usable tokenizer.
    """

    def __init__(self, ir_dir: str | Path) -> None:
        self.path = Path(ir_dir)
        for name in ("openvino_tokenizer.xml", "openvino_detokenizer.xml"):
            if not (self.path / name).is_file():
                raise ModelError(
                    f"`{self.path}` has no `{name}`: export the tokenizer with the model, or pull it again"
                )
        import openvino_genai

        try:
            self._tokenizer = openvino_genai.Tokenizer(str(self.path))
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelError(f"the tokenizer in `{self.path}` cannot be read ({reason}): pull it again") from error

    # -- tokens from text ------------------------------------------------------------------------------------------

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of ``text``; ``add_special`` adds BOS where the model wants it and the text does not bring it.

        Raises ``PromptError`` for text that is not Unicode or that the tokenizer would cut.
        """
        add = add_special and not (self.bos_text and text.startswith(self.bos_text))
        ids = self._encode(text, add)
        if len(ids) >= _CHECK_CUT_FROM and len(self._encode(text + " and some more", add)) <= len(ids):
            raise PromptError(f"the text is longer than the `{len(ids)}` tokens this tokenizer reads: shorten it")
        return ids

    def _encode(self, text: str, add_special: bool) -> list[int]:
        _check_unicode(text)
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special, max_length=2**31 - 1)
        ids: list[int] = encoded.input_ids.data.reshape(-1).tolist()
        return ids

    def chat(self, messages: Sequence[Mapping[str, str]], system: str | None = None) -> list[int]:
        """Token ids of a conversation (``role``, ``content`` each) in the model's own template, the answer to follow.

        ``system`` goes in front, in place of a system message already there. The template alone decides about BOS.
        Raises ``PromptError`` when the model has no template or the template refuses the messages.
        """
        text = self.render(messages, system)
        return self.encode(text, add_special=False)

    def render(self, messages: Sequence[Mapping[str, str]], system: str | None = None) -> str:
        """The conversation as the text that ``chat`` encodes."""
        turns = [dict(m) for m in messages]
        for turn in turns:
            if not isinstance(turn.get("role"), str) or not isinstance(turn.get("content"), str):
                raise PromptError(f"a message is `{turn}`: give `role` and `content` as strings")
            _check_unicode(turn["content"])
        if not turns:
            raise PromptError("there are no messages: give at least one from the user")
        if system is not None:
            turns = [{"role": "system", "content": system}, *(turns[1:] if turns[0]["role"] == "system" else turns)]
        if not self._tokenizer.chat_template:
            raise PromptError(f"`{self.path.name}` has no chat template: use --raw (Python: chat=False)")
        try:
            return str(self._tokenizer.apply_chat_template(turns, add_generation_prompt=True))
        except (RuntimeError, TypeError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise PromptError(
                f"the chat template refuses the messages ({reason}): use --raw, or change them"
            ) from error

    # -- text from tokens ------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens; an unfinished last character is shown as the tokenizer likes."""
        return str(self._tokenizer.decode(list(ids))) if len(ids) else ""

    def token_text(self, token: int) -> str:
        """The piece of one token for people to read: special tokens by name, unfinished characters as U+FFFD."""
        piece = self.vocab[token] if 0 <= token < len(self.vocab) else b""
        return self._piece_bytes(piece).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token adds to the text: empty for special tokens and ids beyond the vocabulary."""
        if not 0 <= token < len(self.vocab) or token in self.special_ids:
            return b""
        return self._piece_bytes(self.vocab[token])

    def _piece_bytes(self, piece: bytes) -> bytes:
        match = _BYTE_PIECE.fullmatch(piece) if self._has_byte_pieces else None
        return bytes([int(match[1], 16)]) if match else piece

    @cached_property
    def vocab(self) -> list[bytes]:
        """The piece of every id as bytes; empty where the vocabulary has a hole."""
        by_piece: dict[bytes, int] = self._tokenizer.get_vocab()
        pieces = [b""] * (max(by_piece.values(), default=-1) + 1)
        for piece, token in by_piece.items():
            pieces[token] = piece
        return pieces

    @property
    def vocab_size(self) -> int:
        """Number of ids the tokenizer knows; the model's logits may be wider (padding)."""
        return len(self.vocab)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that decoding leaves out."""
        every = [[token] for token in range(self.vocab_size)]
        shown = self._tokenizer.decode(every)
        named = self._tokenizer.decode(every, skip_special_tokens=False)
        return frozenset(token for token, (a, b) in enumerate(zip(shown, named, strict=True)) if b and not a)

    @cached_property
    def _has_byte_pieces(self) -> bool:
        """Whether pieces like <0x0A> stand for bytes (SentencePiece's byte fallback)."""
        return b"<0x41>" in self.vocab and bool(self.decode([self.vocab.index(b"<0x41>")]) == "A")

    @cached_property
    def _marks_incomplete(self) -> bool:
        """Whether decoding shows an unfinished character as U+FFFD (else it leaves it out)."""
        pieces = (self.token_bytes(token) for token in range(self.vocab_size))
        first = next((token for token, piece in enumerate(pieces) if incomplete_tail(piece)), None)
        return first is not None and self.decode([first]).endswith(REPLACEMENT)

    @cached_property
    def joins_bytes(self) -> bool:
        """Whether decoding is nothing but joining the bytes of tokens: no clean-up, no dropped space.

        Tried, not assumed: on shuffled tokens of the vocabulary, those that clean-up rules look for among them (English
        contractions, spaces before punctuation), and on a leading space.
        """
        whole = [t for t in range(self.vocab_size) if _is_text(self.token_bytes(t))]
        touchy = [t for t in whole if _TOUCHY_PIECE.fullmatch(self.token_bytes(t))]
        sample = (touchy[:_PROBE_TOKENS] + whole[:: max(1, len(whole) // _PROBE_TOKENS)])[: 2 * _PROBE_TOKENS]
        shuffle = random.Random(0).shuffle
        for _ in range(3):
            shuffle(sample)
            if self.decode(sample) != b"".join(map(self.token_bytes, sample)).decode():
                return False
        spaced = [t for t in whole if self.token_bytes(t).startswith(b" ")][:3]
        return all(self.decode([t]) == self.token_bytes(t).decode() for t in spaced)

    def finished(self, ids: Sequence[int]) -> str:
        """``decode`` without an unfinished character at the end: what a user should see of ``ids``."""
        tail = b""
        for token in reversed(ids):
            tail = self.token_bytes(token) + tail
            if len(tail) >= 3:
                break
        return self._without_tail(self.decode(ids), incomplete_tail(tail))

    def _without_tail(self, text: str, n_tail: int) -> str:
        return text[:-1] if n_tail and self._marks_incomplete and text.endswith(REPLACEMENT) else text

    def facts(self) -> dict[str, Any]:
        """What had to be found out by decoding the vocabulary, JSON-ready: for ``take_facts`` at the next load."""
        return {"special_ids": sorted(self.special_ids), "joins_bytes": self.joins_bytes}

    def take_facts(self, facts: Mapping[str, Any]) -> None:
        """Spare the decoding. Raises KeyError, TypeError or ValueError for anything but ``facts`` of this tokenizer."""
        self.__dict__["special_ids"] = frozenset(int(token) for token in facts["special_ids"])
        self.__dict__["joins_bytes"] = bool(facts["joins_bytes"])

    # -- special tokens --------------------------------------------------------------------------------------------

    @property
    def bos_id(self) -> int | None:
        token: int = self._tokenizer.get_bos_token_id()
        return token if token >= 0 else None

    @property
    def bos_text(self) -> str:
        return str(self._tokenizer.get_bos_token())

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer: of generation_config.json, config.json and the tokenizer together."""
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            value = read_json(self.path / name).get("eos_token_id")
            found.update(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int))
        own: int = self._tokenizer.get_eos_token_id()
        return frozenset(found | ({own} if own >= 0 else set()))

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"the text has `{text[error.start]!a}`, which is not Unicode: give UTF-8") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty when there is no file. Raises ``ModelError`` when it is damaged."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"`{path}` is not JSON ({error}): pull the model again") from error
    if not isinstance(value, dict):
        raise ModelError(f"`{path}` is not a JSON object: pull the model again")
    return value


def compare_vocabularies(a: Text, b: Text) -> None:
    """Raises ``VocabularyError`` with the first id whose pieces differ.

    Pieces are compared, never lengths: one vocabulary may be padded further than the other (ids only one of them has,
    or holes and reserved pieces in one of them, are no difference).
    """
    for token, (left, right) in enumerate(zip(a.vocab, b.vocab, strict=False)):
        if left != right and not _is_padding(left) and not _is_padding(right):
            raise VocabularyError(
                f"token `{token}` is {a.token_text(token)!r} in `{a.path.name}` and {b.token_text(token)!r} in "
                f"`{b.path.name}`: choose a drafter with the target's vocabulary"
            )


def _is_padding(piece: bytes) -> bool:
    return not piece or _PADDING_PIECE.fullmatch(piece) is not None


class Detokenizer:
    """Text of a growing list of tokens, piece by piece; an unfinished character is held back.

    All pieces together are ``Text.finished`` of all tokens. Where decoding joins bytes, so does this; otherwise, and
    from the first byte on that is no text, each push decodes a short window, not the whole text. The window overlaps
    what was shown already, so that a piece is decoded next to its left neighbour (tokenizers drop a space at the start
    of a text).
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._window: list[int] = []
        self._shown = ""
        self._tail = b""
        self._joins = text.joins_bytes
        self._open = b""  # bytes of an unfinished character, where bytes are joined

    def push(self, tokens: Iterable[int]) -> str:
        """Adds tokens and returns the text that can be shown now (possibly empty)."""
        new = [(token, data) for token in tokens if (data := self._text.token_bytes(token))]
        if not new:
            return ""
        joined = self._join(b"".join(data for _, data in new)) if self._joins else None
        if self._joins and joined is None:
            self._joins, self._shown = False, self._visible() if self._window else ""
        for token, data in new:
            self._window.append(token)
            self._tail = (self._tail + data)[-3:]
        if joined is not None:
            if len(self._window) > _WINDOW and not self._open:
                del self._window[:-_OVERLAP]
            return joined
        text = self._visible()
        piece, self._shown = text[len(self._shown) :], max(text, self._shown, key=len)
        self._slide()
        return piece

    def _join(self, data: bytes) -> str | None:
        """The text that ``data`` completes; None if it is no text."""
        data = self._open + data
        n_tail = incomplete_tail(data)
        try:
            text = data[: len(data) - n_tail].decode()
        except UnicodeDecodeError:
            return None
        self._open = data[len(data) - n_tail :]
        return text

    def _visible(self) -> str:
        return self._text._without_tail(self._text.decode(self._window), incomplete_tail(self._tail))

    def _slide(self) -> None:
        """Forgets all but the last tokens of a full window, at a place where no character is open."""
        if len(self._window) < _WINDOW or incomplete_tail(self._tail):
            return
        kept = self._window[-_OVERLAP:]
        shown = self._text.decode(kept)
        if shown.strip():
            self._window, self._shown = kept, shown


class StopStrings:
    """Looks for stop strings in a growing text, across the borders of pieces.

    The match that ends first wins, among these the one that starts first: the result does not depend on how the text
    was cut into pieces. Text that may still become a stop string is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._hit = False

    def push(self, piece: str, *, may_stop: bool = True) -> tuple[str, bool]:
        """Returns the text that is safe to show and whether a stop string was met; after that all text is dropped.

        A stop string that ends in this piece counts only if it ``may_stop``; else it is text like any other.
        """
        if self._hit or not piece:
            return "", self._hit
        text = self._held + piece
        first = len(self._held) + 1  # a match must end in this piece, not in what was held
        found = [(at + len(s), at) for s in self._stops if (at := text.find(s, max(0, first - len(s)))) >= 0]
        if found and may_stop:
            self._held, self._hit = "", True
            return text[: min(found)[1]], True
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def finish(self) -> str:
        """The text held back, which no stop string claimed in the end."""
        held, self._held = self._held, ""
        return held


class StreamedText:
    """One answer as it grows: tokens in, final text out, stop strings obeyed; it ends a character ``before`` it."""

    def __init__(self, text: Text, stops: Sequence[str] = (), before: Sequence[int] = ()) -> None:
        self._detokenizer = Detokenizer(text)
        self._detokenizer.push(before)
        self._stops = StopStrings(stops)

    def push(self, token: int, *, may_stop: bool = True) -> tuple[str, bool]:
        """Returns the text that is final now and whether a stop string is complete (it is not part of the text)."""
        return self._stops.push(self._detokenizer.push((token,)), may_stop=may_stop)

    def finish(self) -> str:
        """The text held back for a stop string that did not come; an unfinished character is dropped."""
        return self._stops.finish()


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
