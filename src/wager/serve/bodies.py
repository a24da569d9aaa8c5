"""Request bodies: what may be in them, and what follows for the engine. An unknown field is an error, never ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from wager.serve.config import Limits
from wager.serve.errors import ApiError
from wager.types import JSON

Body = TypeVar("Body", bound=BaseModel)
_MOST_DIGITS = 10  # of a token id
_EMPTY: dict[str, object] = {"logit_bias": {}, "metadata": {}, "tools": [], "functions": []}
_AS_BY_DEFAULT: dict[str, tuple[object, ...]] = {  # accepted with these values only: they ask for what happens anyway
    "service_tier": ("auto", "default"),
    "store": (False,),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "best_of": (1,),
    "suffix": ("",),
}


def _as_by_default(name: str) -> Any:
    def check(value: object) -> object:
        allowed = _AS_BY_DEFAULT[name]
        if value is not None and value not in allowed:
            raise ValueError(f"only {' or '.join(repr(a) for a in allowed)} can be had here")
        return value

    return AfterValidator(check)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class StreamOptions(_Strict):
    include_usage: bool = False
    include_tokens: bool = Field(
        False, description="Tell of every piece its tokens: their bytes, and whether they were drafted."
    )


class _Generation(_Strict):
    """What both kinds of request have. Fields that are null count as not given."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = Field(None, max_length=512, description="Written to the log.")
    service_tier: Annotated[str | None, _as_by_default("service_tier")] = None
    store: Annotated[bool | None, _as_by_default("store")] = None
    # beyond OpenAI's
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = Field(None, validation_alias=AliasChoices("min_tokens", "min_new_tokens"))
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    speculate: bool | None = Field(None, description="Draft for this request; the text is the same either way.")
    num_draft_tokens: int | None = Field(
        None,
        ge=0,
        validation_alias=AliasChoices("num_draft_tokens", "num_assistant_tokens", "num_speculative_tokens"),
        description="Draft at most so many tokens a step.",
    )
    drafter: str | None = Field(
        None, description='One that GET /v1/models lists, or "none"; under the walk the text is the same.'
    )
    rule: str | None = Field(None, description="The verification rule served.")


class TextPart(_Strict):
    type: Literal["text"]
    text: str


class CalledFunction(_Strict):
    name: str
    arguments: str


class ToolCall(_Strict):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    refusal: None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and not self.tool_calls:
            raise ValueError("content is missing")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only the assistant calls tools")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("tool_call_id goes with role tool")
        return self


class Function(_Strict):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = Field(None, description="Calls always keep to the schema.")


class Tool(_Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(_Strict):
    name: str


class NamedChoice(_Strict):
    type: Literal["function"]
    function: NamedFunction


class NamedSchema(_Strict):
    name: str = Field(max_length=64)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = Field(None, description="The output always keeps to the schema.")


class ResponseFormat(_Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise ValueError("json_schema goes with type json_schema")
        return self


class ChatBody(_Generation):
    """``POST /v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = Field(None, max_length=64)
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: Annotated[bool | None, _as_by_default("parallel_tool_calls")] = None
    modalities: Annotated[list[str] | None, _as_by_default("modalities")] = None

    @model_validator(mode="after")
    def _answers_follow_calls(self) -> ChatBody:
        called: set[str] = set()
        for message in self.messages:
            called.update(call.id for call in message.tool_calls or ())
            if message.tool_call_id is not None and message.tool_call_id not in called:
                raise ValueError(f"no call before it has the tool_call_id {message.tool_call_id!r}")
        return self


class CompletionBody(_Generation):
    """``POST /v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = None
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    return_tokens_as_token_ids: bool | None = Field(
        None, description='Name tokens "token_id:N" in `logprobs`, as vLLM does, in place of their text.'
    )
    best_of: Annotated[int | None, _as_by_default("best_of")] = None
    suffix: Annotated[str | None, _as_by_default("suffix")] = None


class ScoreBody(_Strict):
    """``POST /v1/score``: how likely the model finds each of some continuations, end of the answer included."""

    model: str | None = None
    prompt: str | None = Field(None, description="A text; it is continued as it is.")
    messages: list[Message] | None = Field(None, min_length=1, description="Or a chat; the candidates are its answer.")
    candidates: list[str] = Field(min_length=1)
    terminator: Literal["auto", "end", "line", "none"] = "auto"
    temperature: float = Field(1.0, ge=1e-3, le=1e3)


class DecideBody(_Strict):
    """``POST /v1/decide``: the law of the answer, and the best answer for each metric.

    Either ``labels`` (scored exactly) or ``n`` (drawn and parsed).
    """

    model: str | None = None
    prompt: str | None = Field(None, description="A question; it becomes a chat's only message.")
    messages: list[Message] | None = Field(None, min_length=1)
    metrics: list[str] = Field(default_factory=lambda: ["accuracy"], min_length=1, max_length=32)
    labels: str | list[str] | None = Field(None, description='"a,b,c", "0..5:0.25", or a list of texts.')
    n: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=0, lt=2**64)
    max_tokens: int = 64


def parsed(kind: type[Body], data: object) -> Body:
    """``data`` as a body. Raises ApiError 400 that names the field."""
    if not isinstance(data, dict):
        raise ApiError(400, "the body is no JSON object: send one")
    given = {k: v for k, v in data.items() if v is not None and not (k in _EMPTY and v == _EMPTY[k])}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ApiError(
                400, f"`{where}` is not supported here: leave it out", param=where, code="unknown_parameter"
            ) from error
        raise ApiError(400, f"`{where}`: {first['msg']}", param=where, code="invalid_value") from error


def sampling_options(body: ChatBody | CompletionBody, limits: Limits) -> JSON:
    """The options of ``types.Sampling`` that the body gives. Raises ApiError beyond the server's limits."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    options: JSON = {name: getattr(body, name) for name in (*names, "min_tokens", "ignore_eos")}
    options["stop"] = _stops(body.stop, limits)
    options["stop_token_ids"] = None if body.stop_token_ids is None else tuple(body.stop_token_ids)
    options["logit_bias"] = _bias(body.logit_bias or {}, limits) or None
    options["logprobs"] = _n_logprobs(body)
    options["max_tokens"] = _max_tokens(body)
    check_n(body.n, limits)
    if len(body.stop_token_ids or ()) > limits.max_bias:
        raise ApiError(400, f"`stop_token_ids` has {len(body.stop_token_ids or ())}: at most {limits.max_bias} here")
    return {name: value for name, value in options.items() if value is not None}


def check_n(n: int | None, limits: Limits) -> int:
    """How many answers are asked for, 1 where nothing is said. Raises ApiError beyond the server's limit."""
    if n is not None and n > limits.max_n:
        raise ApiError(400, f"`n` is {n}: at most {limits.max_n} here", param="n")
    return n or 1


def _stops(stop: str | list[str] | None, limits: Limits) -> tuple[str, ...] | None:
    if stop is None:
        return None
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > limits.max_stops or any(len(s) > limits.max_stop_chars for s in stops):
        most = f"at most {limits.max_stops} of at most {limits.max_stop_chars} characters here"
        raise ApiError(400, f"`stop` has {len(stops)} strings: {most}", param="stop")
    return stops


def _bias(bias: dict[str, float], limits: Limits) -> dict[int, float]:
    if len(bias) > limits.max_bias:
        raise ApiError(400, f"`logit_bias` has {len(bias)} ids: at most {limits.max_bias} here", param="logit_bias")
    for token in bias:
        if not (token.isascii() and token.isdigit() and len(token) <= _MOST_DIGITS):
            raise ApiError(400, f"`logit_bias` has the key {token[:99]!r}: give a token id", param="logit_bias")
    return {int(token): value for token, value in bias.items()}


def _n_logprobs(body: ChatBody | CompletionBody) -> int | None:
    if isinstance(body, CompletionBody):
        return body.logprobs
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "`top_logprobs` is given without `logprobs`: set it to true", param="top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _max_tokens(body: ChatBody | CompletionBody) -> int | None:
    if isinstance(body, CompletionBody):
        return 16 if body.max_tokens is None else body.max_tokens  # as OpenAI's
    given = [v for v in (body.max_completion_tokens, body.max_tokens) if v is not None]
    if len(set(given)) > 1:
        raise ApiError(400, f"`max_tokens` and `max_completion_tokens` are {given}: give one", param="max_tokens")
    return given[0] if given else None
