"""Grammars on the real default model: the output is what was asked for, and speculation does not change it."""

from __future__ import annotations

import json
import re

import pytest

from wager.grammar import Choice, JsonSchema, Regex
from wager.llm import LLM
from wager.types import Sampling

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["Katze \U0001f63a", "Hündin", "犬"]},
        "visits": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"$ref": "#/$defs/visit"}},
        "weight": {"type": "number", "minimum": 0, "maximum": 90},
    },
    "required": ["name", "kind", "visits", "weight"],
    "additionalProperties": False,
    "$defs": {
        "visit": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2},
    },
}
PROMPT = "Describe a pet: its name, its kind, its visits and its weight."


@pytest.fixture(scope="module")
def llm():
    made = LLM(drafter="lookup", num_draft_tokens=5)
    yield made
    made.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_of_a_schema(llm, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=100, seed=5, constraint=JsonSchema(PET))
    answers = llm.generate(PROMPT, sampling, n=2)
    plain = llm.generate(PROMPT, sampling, n=2, speculate=False)
    assert [a.tokens for a in answers] == [a.tokens for a in plain]
    for answer in answers:
        assert answer.finish == "stop"
        pet = json.loads(answer.text)
        assert list(pet) == list(PET["properties"])
        assert 1 <= len(pet["name"]) <= 12
        assert pet["kind"] in PET["properties"]["kind"]["enum"]
        assert 1 <= len(pet["visits"]) <= 2
        assert all(0 <= n <= 99 and isinstance(n, int) for visit in pet["visits"] for n in visit)
        assert 0 <= pet["weight"] <= 90
    assert sum(a.stats.n_forwards for a in answers) < 0.8 * sum(len(a.tokens) for a in answers)


def test_a_short_limit_cuts_json_and_says_so(llm):
    answer = llm.generate(PROMPT, Sampling(max_tokens=6, constraint=JsonSchema(PET)))
    assert answer.finish == "length"
    assert answer.text.startswith('{"name": ')


@pytest.mark.parametrize("speculate", [True, False])
def test_regex_and_choice(llm, speculate):
    date = Sampling(max_tokens=20, constraint=Regex("(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]"))
    answer = llm.generate("When did people first walk on the moon?", date, speculate=speculate)
    assert re.fullmatch("(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]", answer.text)
    colour = Sampling(temperature=1.0, max_tokens=20, seed=1, constraint=Choice(("blue", "green", "blue and green")))
    answers = llm.generate("What colour is the sky?", colour, n=4, speculate=speculate)
    assert {a.text for a in answers} <= {"blue", "green", "blue and green"}
    assert all(a.finish == "stop" for a in answers)
