"""Grammars on a real tokenizer: masks are a function of the output, whatever was asked before; what is refused."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from functools import partial

import llguidance
import numpy as np
import pytest

from wager.errors import ConstraintError, OptionError
from wager.grammar import Choice, Grammar, JsonObject, JsonSchema, Regex, Vocabulary, tool_call
from wager.schema import LIMITS, SchemaLimits, check_schema
from wager.text import Text

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["cat", "dog", "ünï \U0001f600"]},
        "visits": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            "maxItems": 3,
        },
        "weight": {"type": "number", "minimum": 0, "maximum": 90},
    },
    "required": ["name", "kind", "visits", "weight"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def text(tiny_llama):
    return Text(tiny_llama)


@pytest.fixture(scope="module")
def vocabulary(text):
    return Vocabulary(text, text.vocab_size)


def ids_of(text, said):
    return text.encode(said, add_special=False)


def wander(guide, vocabulary, rng, *, n=60, shy=()):
    """Some output that the guide allows, by taking any token but those of ``shy`` where there are others."""
    output: list[int] = []
    while len(output) < n:
        some = np.flatnonzero(guide.allowed(output)).tolist()
        some = [t for t in some if t not in shy] or some
        ends = [t for t in some if t in vocabulary.ends]
        output.append(ends[0] if ends and rng.random() < 0.8 else rng.choice(some))
        if output[-1] in vocabulary.ends:
            return output[:-1]
    return None


def test_what_the_masks_allow_is_what_the_schema_says(text, vocabulary):
    rng = random.Random(5)
    found = [wander(JsonSchema(PET).guide(vocabulary), vocabulary, rng, n=200) for _ in range(12)]
    pets = [json.loads(b"".join(map(text.token_bytes, output))) for output in found if output is not None]
    assert len(pets) > 5
    for pet in pets:
        assert list(pet) == ["name", "kind", "visits", "weight"]
        assert isinstance(pet["name"], str)
        assert len(pet["name"]) <= 12
        assert pet["kind"] in PET["properties"]["kind"]["enum"]
        assert all(isinstance(n, int) for visit in pet["visits"] for n in visit)
        assert 0 <= pet["weight"] <= 90
    assert len({pet["kind"] for pet in pets}) == 3


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Regex("[0-9]{3}-[a-z]+"), "123-ab", "12-"),
        (Choice(["red", 'a "b"\n', "red wine", "日本"]), 'a "b"\n', "redd"),
        (Choice(["red", "red wine", "日本"]), "日本", "日木"),
        (Grammar('start: "a" ("b" | "cd")+ "e"'), "abcdbe", "ae"),
        (JsonObject(), '{"a": [1, {"b": null}], "ü": -1.5e3}', "[1"),
        (JsonObject(whitespace=True), '{ "a":\n [1,2] }', "[1"),
        (JsonSchema(PET, before="<call>\n", after="\n</call>"), "<call>\n" + '{"name": "a"', "{"),
        (JsonSchema({"type": "object", "minProperties": 2}), '{"a": 1, "b": 2}', '{"a": 1}'),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_every_kind_takes_what_it_says_and_nothing_else(text, vocabulary, constraint, good, bad):
    end = min(vocabulary.ends)
    guide = constraint.guide(vocabulary)
    for said, right in ((good, True), (bad, False)):
        output = spelled(guide, text, said)
        assert (output is not None and (guide.allowed(output)[end] or said.startswith("<"))) == right
        if right and not said.startswith("<"):
            assert guide.fits([], [*output, end]) == len(output) + 1


def spelled(guide, text, said):
    """Allowed tokens that say it, shortest first tried last; None where there are none."""
    data, output, at = said.encode(), [], 0
    while at < len(data):
        some = [t for t in np.flatnonzero(guide.allowed(output)) if data[at:].startswith(text.token_bytes(t) or b"?!")]
        if not some:
            return None
        output.append(int(max(some, key=lambda t: len(text.token_bytes(t)))))
        at += len(text.token_bytes(output[-1]))
    return output


def test_a_tool_call_names_a_tool_and_has_its_arguments(text, vocabulary):
    place = {"$defs": {"city": {"enum": ["Bern", "Ulm"]}}, "properties": {"city": {"$ref": "#/$defs/city"}}}
    tools = {
        "weather": {"type": "object", "required": ["city"], "additionalProperties": False, **place},
        "time": {"type": "object", "properties": {}, "additionalProperties": False},
    }
    guide = tool_call(tools, before="<call>", after="</call>").guide(vocabulary)
    good = '<call>{"name": "weather", "arguments": {"city": "Ulm"}}</call>'
    assert set(np.flatnonzero(guide.allowed(spelled(guide, text, good)))) == vocabulary.ends
    assert spelled(guide, text, '<call>{"name": "time", "arguments": {}}</call>') is not None
    for bad in ('"weather", "arguments": {"city": "Rome"', '"time", "arguments": {"city": "Ulm"', '"other"'):
        assert spelled(guide, text, '<call>{"name": ' + bad) is None
    with pytest.raises(OptionError, match="no tools"):
        tool_call({})
    with pytest.raises(OptionError, match="'not' at #/anyOf/0"):
        tool_call({"a": {"not": {}}})


def test_a_choice_that_begins_another_may_end_or_go_on(text, vocabulary):
    guide = Choice(("red", "red wine")).guide(vocabulary)
    allowed = guide.allowed(spelled(guide, text, "red"))
    assert allowed[sorted(vocabulary.ends)].all()
    assert allowed.sum() > len(vocabulary.ends)


def test_a_complete_output_allows_ends_alone_and_nothing_follows_one(text, vocabulary):
    guide = Choice(("red",)).guide(vocabulary)
    output = spelled(guide, text, "red")
    assert set(np.flatnonzero(guide.allowed(output))) == vocabulary.ends
    end = min(vocabulary.ends)
    assert set(np.flatnonzero(guide.allowed([*output, end]))) == vocabulary.ends
    with pytest.raises(ConstraintError, match="cannot follow"):
        guide.allowed([*output, output[0]])
    assert set(np.flatnonzero(guide.allowed(output))) == vocabulary.ends


def test_special_tokens_and_ids_that_the_tokenizer_has_not_are_never_allowed(text):
    wide = Vocabulary(text, text.vocab_size)
    guide = Regex("(?s:.)*").guide(wide)
    allowed = guide.allowed([])
    assert len(allowed) == text.vocab_size
    assert not allowed[sorted(text.special_ids - text.eos_ids)].any()
    assert allowed.sum() > text.vocab_size // 2


@pytest.mark.parametrize("whitespace", [False, True])
def test_answers_do_not_depend_on_what_was_asked_before(vocabulary, whitespace):
    """One guide is asked here and there along a tree of outputs; every answer is that of a new guide."""
    rng, constraint = random.Random(7), JsonSchema(PET, whitespace=whitespace)
    asked = constraint.guide(vocabulary)
    paths = [path for _ in range(4) if (path := wander(constraint.guide(vocabulary), vocabulary, rng, n=150))]
    for _ in range(60):
        path = rng.choice(paths)
        output = path[: rng.randrange(len(path) + 1)]
        if rng.random() < 0.2:
            assert asked.fits(output, path[len(output) :][:5]) == min(5, len(path) - len(output))
            assert asked.fits(output, [min(vocabulary.ends)] * 3) <= 1
        new = constraint.guide(vocabulary)
        assert np.array_equal(asked.allowed(output), new.allowed(output))
        assert asked.forced(output) == new.forced(output)


def test_forced_tokens_are_the_only_ones_allowed(vocabulary, text):
    guide = JsonSchema(PET).guide(vocabulary)
    run = guide.forced([])
    assert b"".join(map(text.token_bytes, run)).startswith(b'{"name":')
    for i, token in enumerate(run):
        assert np.flatnonzero(guide.allowed(run[:i])).tolist() == [token]
    assert not guide.forced(run)


def test_masks_that_are_kept_are_few(vocabulary):
    guide = Regex("a*").guide(vocabulary)
    for n in range(100):
        guide.allowed([vocabulary._tokens.tokenize_str("a")[0]] * n)
    assert len(guide._masks) <= 32


def test_a_grammar_that_takes_too_much_ends_one_output(text, monkeypatch):
    few = partial(llguidance.LLParserLimits, step_max_items=40)
    monkeypatch.setattr(llguidance, "LLParserLimits", few)
    guide = Grammar('start: x\nx: x x | "a" | "b"').guide(Vocabulary(text, text.vocab_size))
    letter = spelled(guide, text, "a")
    with pytest.raises(ConstraintError, match="simplify"):
        guide.allowed(letter * 40)
    assert guide.forced(letter * 40) == []
    assert guide.allowed(letter).any()


@pytest.mark.parametrize("keyword", ["not", "uniqueItems", "if", "propertyNames", "dependentRequired", "x-guidance"])
def test_a_keyword_that_is_not_followed_is_named(keyword):
    inner = {"type": "object", "properties": {"not": {"type": "array", keyword: {}}}}
    with pytest.raises(OptionError, match=rf"'{keyword}' at #/properties/not"):
        JsonSchema(inner)
    JsonSchema({"type": "object", "properties": {keyword: {"enum": [{keyword: 1}]}}})


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (nested(500), "deeper than 32"),
        ("[" * 100_000, "no JSON"),
        (
            {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(1500)}},
            "more than 1000 schemas",
        ),
        ({"enum": ["x" * 70_000]}, "bytes"),
        ({"type": "string", "maxLength": 10**9}, "at most 100000"),
        ({"type": "array", "minItems": "3"}, "'minItems'"),
        ({"prefixItems": [{"type": "integer", "multipleOf": 997}] * 11}, "fewer digits"),
        ({"type": "number", "multipleOf": 0.12345}, "fewer digits"),
        ({"type": "integer", "multipleOf": 10**6}, "fewer digits"),
        ({"type": "number", "multipleOf": 0}, "positive"),
        ([1], "not an object"),
        ("true", "not an object"),
        ("{", "no JSON"),
        ({"enum": [object()]}, "no JSON"),
    ],
)
def test_a_schema_beyond_the_limits_is_refused_in_one_sentence(schema, says):
    with pytest.raises(OptionError, match=says) as error:
        JsonSchema(schema)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        (JsonSchema({"type": "strin"}), "strin"),
        (JsonSchema({"$ref": "https://example.com/x.json"}), "cannot be compiled"),
        (JsonSchema({"type": "integer", "minimum": 5, "maximum": 4}), "Unsatisfiable"),
        (JsonSchema({"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}), "allows no output"),
        (JsonSchema({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (Regex("("), "unclosed group"),
        (Regex("(a)\\1"), "backreferences"),
        (Grammar("start: foo"), "foo"),
        (Regex("a" * 70_000), "longer than"),
    ],
    ids=repr,
)
def test_what_cannot_be_compiled_is_refused_in_one_sentence(vocabulary, constraint, says):
    with pytest.raises(OptionError, match=says) as error:
        constraint.guide(vocabulary)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_wrong_arguments_are_refused():
    for wrong in (
        lambda: Regex(""),
        lambda: Choice(()),
        lambda: Choice("red"),
        lambda: Choice(["a", ""]),
        lambda: Grammar(""),
    ):
        with pytest.raises(OptionError):
            wrong()
    with pytest.raises(OptionError, match="needs the model's tokens"):
        Regex("a").guide(None)
    check_schema({"type": "string"}, SchemaLimits(depth=2))
    assert LIMITS.depth == 32


def test_without_llguidance_one_sentence_says_what_to_install(text, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    for constraint in (Regex("a"), JsonSchema(PET), Choice(("a",))):
        with pytest.raises(OptionError, match=re.escape("pip install 'wager[serve]'")):
            constraint.guide(Vocabulary(text, text.vocab_size))


def test_a_compiled_grammar_is_there_for_all_threads_and_samples(text, monkeypatch):
    vocabulary, made = Vocabulary(text, text.vocab_size), []
    compile_ = Vocabulary._compile
    monkeypatch.setattr(Vocabulary, "_compile", lambda self, *about: (made.append(1), compile_(self, *about))[1])
    JsonSchema(PET).guide(vocabulary)
    threads = [threading.Thread(target=JsonSchema(PET).guide, args=(vocabulary,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    for i in range(40):
        Regex(f"a{{{i + 1}}}").guide(vocabulary)
    assert len(vocabulary._compiled) == 32


def test_a_tokenizer_that_puts_a_space_in_front_spells_in_the_middle_of_a_text(text):
    from wager.grammar import _Tokens

    class Spaced:
        def __getattr__(self, name):
            return getattr(text, name)

        def encode(self, said, *, add_special):
            return text.encode(" " + said, add_special)

    for said in ("name", "ü日\n", "", " the"):
        for source in (text, Spaced()):
            spelled = _Tokens(source, text.vocab_size)(said)
            assert b"".join(map(text.token_bytes, spelled)) == said.encode()
