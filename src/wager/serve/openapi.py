"""The server's own description, from the same classes that check its requests."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel

import wager
from wager.serve.bodies import ChatBody, CompletionBody, DecideBody, ScoreBody
from wager.types import JSON

_BODIES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/score": ScoreBody,
    "/v1/decide": DecideBody,
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


@cache
def description() -> JSON:
    """OpenAPI 3.1."""
    schemas: JSON = {"Error": _ERROR}
    paths: JSON = {}
    for path, kind in _BODIES.items():
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}", by_alias=False)
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
        paths[path] = {
            "post": {"requestBody": {"required": True, "content": content}, "responses": _answers(stream=True)}
        }
    paths["/v1/embeddings"] = {"post": {"responses": _errors(400, 401)}}
    for path in ("/v1/models", "/health", "/ready"):
        paths[path] = {"get": {"responses": _answers()}}
    paths["/metrics"] = {
        "get": {"responses": {"200": {"description": "counters", "content": {"text/plain": {}}}, **_errors(401)}}
    }
    info = {
        "title": "wager",
        "version": wager.__version__,
        "description": "OpenAI-compatible text generation that speculates.",
    }
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _answers(*, stream: bool = False) -> JSON:
    content: JSON = {"application/json": {"schema": {"type": "object"}}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"200": {"description": "the answer", "content": content}, **_errors(400, 401, 404, 413, 429, 503, 504)}


def _errors(*statuses: int) -> JSON:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": "an error", "content": content} for status in statuses}
