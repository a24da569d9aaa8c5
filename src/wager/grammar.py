"""Grammars as constraints: JSON schemas, regular expressions, choices and Lark grammars, followed by llguidance.

A constraint is data and says what is wanted; ``Vocabulary`` compiles it for a tokenizer, once for all who ask for it;
a guide (matcher.py) follows one output.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wager.errors import OptionError
from wager.matcher import GrammarGuide
from wager.schema import check_schema
from wager.text import Text

_MAX_COMPILED = 32  # grammars kept
_MAX_BYTES = 64 * 1024  # of a grammar's source


class Vocabulary:
    """The tokens of ``text`` that a model with ``n_ids`` ids can say, and the grammars compiled for them.

    ``compiled`` may be called from any thread, so that a server can compile before it queues a request.
    """

    def __init__(self, text: Text, n_ids: int) -> None:
        self._text = text
        self.n_ids = n_ids
        self.ends = frozenset(token for token in text.eos_ids if token < n_ids)
        self._lock = threading.Lock()
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def compiled(self, grammar: str, name: str) -> Any:
        """An ``LLMatcher`` at the beginning, the caller's own. Raises OptionError, naming the constraint ``name``.

        Work and memory are bounded by llguidance's limits, the same on every machine: no clock decides.
        """
        with self._lock:
            matcher = self._compiled.get(grammar)
        if matcher is None:  # outside the lock: who has a compiled grammar does not wait for one that is not
            matcher = self._compile(grammar, name)
        with self._lock:
            self._compiled[grammar] = matcher
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > _MAX_COMPILED:
                self._compiled.popitem(last=False)
            return matcher.deep_copy()

    def guide(self, grammar: str, name: str) -> GrammarGuide:
        """A guide for one sequence. Raises OptionError as ``compiled`` does."""
        return GrammarGuide(lambda: self.compiled(grammar, name), ends=self.ends, n_ids=self.n_ids)

    def _compile(self, grammar: str, name: str) -> Any:
        llguidance = _llguidance()
        if len(grammar.encode(errors="replace")) > _MAX_BYTES:
            raise OptionError(f"{name} is longer than {_MAX_BYTES} bytes: shorten it")
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            first = matcher.deep_copy()
            first.compute_bitmask()
            if not first.is_error():
                return matcher
            raise OptionError(f"{name} allows no output ({_line(first.get_error())}): loosen it")
        raise OptionError(f"{name} cannot be compiled ({_line(matcher.get_error())}): change or leave out that part")

    @cached_property
    def _tokens(self) -> Any:
        llguidance = _llguidance()
        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(self._text, self.n_ids)),
            n_vocab=self.n_ids,
            eos_token=sorted(self.ends),
        )


class _Tokens:
    """The tokenizer as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, text: Text, n_ids: int) -> None:
        self._text = text
        self.eos_token_id = min(token for token in text.eos_ids if token < n_ids)
        self.special_token_ids = sorted(token for token in text.special_ids | text.eos_ids if token < n_ids)
        special = set(self.special_token_ids)
        self.tokens = [text.vocab[t] if t in special else text.token_bytes(t) for t in range(n_ids)]
        self._ids = {piece: t for t, piece in reversed(list(enumerate(self.tokens))) if piece and t not in special}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, said: str) -> list[int]:
        """Ids whose bytes are those of ``said``, as the tokenizer would have them in the middle of a text."""
        data = said.encode(errors="replace")
        for before in ("", "\n"):  # some tokenizers put a space before a text, or drop one
            ids = self._text.encode(before + said, add_special=False)
            for first in range(len(before) * 2 + 1):
                if b"".join(self.tokens[t] for t in ids[first:] if t < len(self.tokens)) == data:
                    return ids[first:]
        return self._spelled(data)

    def _spelled(self, data: bytes) -> list[int]:
        """The longest token that fits, again and again; up to where there is none."""
        ids, at = [], 0
        while at < len(data):
            sizes = range(min(self._longest, len(data) - at), 0, -1)
            token = next((self._ids[piece] for n in sizes if (piece := data[at : at + n]) in self._ids), None)
            if token is None:
                break
            ids.append(token)
            at += len(self.tokens[token])
        return ids


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that a schema allows, keys in the schema's order, on one line as ``json.dumps`` writes it.

    ``whitespace``: the model may write spaces and line breaks as it likes. ``before`` and ``after`` are text around it.
    ``instead``: a regular expression (as ``Regex`` has them) for what may come in place of all that.
    Raises OptionError for a schema that ``schema.check_schema`` refuses.
    """

    schema: str | Mapping[str, Any]
    whitespace: bool = False
    before: str = ""
    after: str = ""
    instead: str = ""

    def __post_init__(self) -> None:
        schema = self.schema
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (json.JSONDecodeError, RecursionError) as error:
                raise OptionError(f"the JSON schema is no JSON ({error}): give an object like {{'type': …}}") from error
        check_schema(schema)
        object.__setattr__(self, "schema", json.dumps(schema, ensure_ascii=False))

    def guide(self, vocabulary: Any) -> GrammarGuide:
        style: dict[str, Any] = {"whitespace_flexible": self.whitespace, "lenient": False}
        style |= {} if self.whitespace else {"item_separator": ", ", "key_separator": ": "}
        ruled = json.dumps(json.loads(str(self.schema)) | {"x-guidance": style}, ensure_ascii=False)
        around = [json.dumps(said, ensure_ascii=False) if said else "" for said in (self.before, self.after)]
        start = f"start: {around[0]} value {around[1]}" + (f" | /{self.instead}/" if self.instead else "")
        return _vocabulary(vocabulary).guide(f"{start}\nvalue: %json {ruled}\n", "the JSON schema")


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object, written as ``JsonSchema`` says."""

    whitespace: bool = False

    def guide(self, vocabulary: Any) -> GrammarGuide:
        return JsonSchema('{"type": "object"}', self.whitespace).guide(vocabulary)


def tool_call(
    tools: Mapping[str, Mapping[str, Any]], *, before: str = "", after: str = "", instead: str = ""
) -> JsonSchema:
    """A call of one of ``tools``, whose names lead to the schemas of their arguments: a ``name`` and ``arguments``.

    ``before`` and ``after`` are the marks that the model's template puts around a call, ``instead`` what an answer may
    be that is none. Raises OptionError.
    """
    if not tools:
        raise OptionError("there are no tools: give at least one")
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": _moved(schema, f"#/anyOf/{i}/properties/arguments")},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for i, (name, schema) in enumerate(tools.items())
    ]
    return JsonSchema({"anyOf": calls}, before=before, after=after, instead=instead)


def _moved(part: Any, place: str) -> Any:
    """A schema that stands at ``place`` of another one: its references say so."""
    if isinstance(part, Mapping):
        return {
            key: place + value[1:]
            if key == "$ref" and isinstance(value, str) and value[:1] == "#"
            else _moved(value, place)
            for key, value in part.items()
        }
    return [_moved(below, place) for below in part] if isinstance(part, list | tuple) else part


@dataclass(frozen=True, slots=True)
class Regex:
    """A text that a regular expression matches as a whole (Rust's syntax: no look-around, no references back)."""

    pattern: str

    def __post_init__(self) -> None:
        _check_text("pattern", self.pattern)

    def guide(self, vocabulary: Any) -> GrammarGuide:
        from_regex = _llguidance().LLMatcher.grammar_from_regex
        return _vocabulary(vocabulary).guide(from_regex(self.pattern), "the regular expression")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts."""

    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.choices, str) or not self.choices:
            raise OptionError(f"`choices` is {self.choices!r}: give at least one text in a list")
        object.__setattr__(self, "choices", tuple(self.choices))
        for choice in self.choices:
            _check_text("choices", choice)

    def guide(self, vocabulary: Any) -> GrammarGuide:
        texts = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in self.choices)
        return _vocabulary(vocabulary).guide(f"start: {texts}\n", "the choice")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A context-free grammar in llguidance's form of Lark; ``start`` is where it begins."""

    lark: str

    def __post_init__(self) -> None:
        _check_text("lark", self.lark)

    def guide(self, vocabulary: Any) -> GrammarGuide:
        return _vocabulary(vocabulary).guide(self.lark, "the grammar")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise OptionError(f"`{name}` is {value!r}: give a text that is not empty")


def _vocabulary(vocabulary: Any) -> Vocabulary:
    if not isinstance(vocabulary, Vocabulary):
        raise OptionError("a grammar needs the model's tokens: give the engine a grammar.Vocabulary")
    return vocabulary


def _line(message: str) -> str:
    """What an error of llguidance says, without its picture of the place."""
    lines = [line.strip() for line in message.splitlines() if "|" not in line and line.strip(" ^")]
    return " ".join(lines)[:200]


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise OptionError("grammars need llguidance, which is not installed: pip install 'wager[serve]'") from error
    return llguidance
