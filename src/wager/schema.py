"""Whether a JSON schema may be compiled: bounds that hold for strangers too, and one sentence for what is not taken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from wager.errors import OptionError

# Keywords of JSON Schema (drafts 4 to 2020-12) that restrict a value and that llguidance does not follow. What it does
# not know it would ignore, and an output that breaks the schema would pass for a right one.
REFUSED = frozenset(
    (
        *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames"),
        *("dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties"),
        *("$dynamicRef", "$recursiveRef", "contentEncoding", "contentMediaType", "contentSchema", "x-guidance"),
    )
)
_Role = Literal["schema", "names", "data"]  # what a value is; names: an object from names of the user's to schemas
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_DATA = frozenset(("enum", "const", "default", "examples", "example"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaLimits:
    """Bounds of a schema: bytes of its compact JSON, levels, schemas in it, the largest count it may ask for
    (``maxLength``, ``minItems``, …), and the sum of what stands after ``multipleOf``, without the point: an automaton
    has as many states.
    """

    n_bytes: int = 64 * 1024
    depth: int = 32
    n_schemas: int = 1000
    count: int = 100_000
    n_states: int = 10_000


LIMITS = SchemaLimits()
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def check_schema(schema: Any, limits: SchemaLimits = LIMITS) -> None:
    """Raises ``OptionError`` for what is no schema object, is beyond ``limits`` or has a keyword that is not followed.

    What remains is for the compiler to refuse; its work is bounded too (``grammar.Vocabulary``).
    """
    if not isinstance(schema, Mapping):
        raise OptionError(f"the JSON schema is {type(schema).__name__}, not an object: give one like {{'type': …}}")
    n_states = 0
    for n_before, (path, part) in enumerate(_schemas(schema, limits.depth)):
        if n_before >= limits.n_schemas:
            raise OptionError(f"the JSON schema holds more than {limits.n_schemas} schemas: make it smaller")
        for keyword in part:
            if keyword in REFUSED:
                raise OptionError(f"the JSON schema has {keyword!r} at {path}, which is not supported: leave it out")
        for keyword in _COUNTS:
            value = part.get(keyword, 0)
            if not isinstance(value, int | float) or value > limits.count:
                raise OptionError(f"{keyword!r} at {path} is {value!r}: give a number of at most {limits.count}")
        n_states += _digits_of(part["multipleOf"], path) if "multipleOf" in part else 0
        if n_states > limits.n_states:
            raise OptionError(f"'multipleOf' at {path} takes too much work: give numbers of fewer digits")
    try:
        n_bytes = len(json.dumps(schema).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"the JSON schema is no JSON ({error}): give objects, lists, texts and numbers") from error
    if n_bytes > limits.n_bytes:
        raise OptionError(f"the JSON schema has {n_bytes} bytes: give at most {limits.n_bytes}")


def _schemas(schema: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema in it with its path. Raises OptionError where any value is nested deeper than ``depth``."""
    waiting: list[tuple[str, Any, int, _Role]] = [("#", schema, 1, "schema")]
    while waiting:
        path, value, level, role = waiting.pop()
        if level > depth:
            raise OptionError(f"the JSON schema is deeper than {depth} levels at {path[:80]}: make it flatter")
        if isinstance(value, Mapping):
            if role == "schema":
                yield path, value
            waiting += [(f"{path}/{key}", below, level + 1, _role_below(role, key)) for key, below in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{path}/{i}", below, level + 1, role) for i, below in enumerate(value)]


def _digits_of(multiple: Any, path: str) -> int:
    """0.25 is 25."""
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < math.inf:
        raise OptionError(f"'multipleOf' at {path} is {multiple!r}: give a positive number")
    exact = Decimal(str(multiple))
    return int(exact.scaleb(max(0, -int(exact.normalize().as_tuple().exponent))))


def _role_below(role: _Role, key: str) -> _Role:
    if role == "schema":
        return "names" if key in _NAMED else "data" if key in _DATA else "schema"
    return "schema" if role == "names" else "data"
