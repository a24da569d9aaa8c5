"""Answers in OpenAI's shapes: whole, and as the chunks of a stream."""

from __future__ import annotations

import codecs
import json
import time
import uuid
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field

from wager.record import summed_by_depth
from wager.serve.loop import Ask, Part, Ticket
from wager.serve.tools import called
from wager.text import Detokenizer, Text, incomplete_tail
from wager.types import JSON, Event, TokenLogprob

_FLOOR = -9999.0  # for log-probabilities of minus infinity, which JSON does not have


def dumps(value: object) -> bytes:
    """JSON in UTF-8; what is not Unicode (half a surrogate pair) is replaced."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def sse(value: object) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


SSE_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Echoed:
    """Prompts as they are given back: their ``texts``, ``tokens``, and ``logprobs`` of all tokens but the first.

    ``open``: the last tokens of each where they end inside a character, which is shown with the answer then.
    """

    texts: ListLike[str]
    tokens: ListLike[ListLike[int]]
    logprobs: ListLike[ListLike[TokenLogprob]] | None
    open: ListLike[ListLike[int]]

    @classmethod
    def of(
        cls,
        given: ListLike[str | list[int]],
        tokens: ListLike[list[int]],
        logprobs: ListLike[ListLike[TokenLogprob]] | None,
        text: Text,
    ) -> Echoed:
        """Of prompts as they were ``given``, as texts or ids."""
        opened = [() if isinstance(prompt, str) else unfinished(text, prompt) for prompt in given]
        shown = [
            prompt if isinstance(prompt, str) else Detokenizer(text).push(prompt) if ids else text.decode(prompt)
            for prompt, ids in zip(given, opened, strict=True)
        ]
        return cls(shown, tokens, logprobs, opened)


@dataclass(slots=True)
class Style:
    """What the answers to one request have in common. ``chat``: of which end point. ``echo``: the prompts.
    ``ids``: a completion's log-probabilities name tokens by id. ``tools``: an answer may be a call, which comes whole.
    """

    chat: bool
    model: str
    fingerprint: str
    text: Text
    n: int
    include_usage: bool = False
    include_tokens: bool = False
    echo: Echoed | None = None
    ids: bool = False
    tools: bool = False
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    # by choice, for text_offset: characters so far, and the bytes of an unfinished one
    shown: dict[int, tuple[int, codecs.IncrementalDecoder]] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)  # text that may become a call, by choice

    def __post_init__(self) -> None:
        self.id = self.id or ("chatcmpl-" if self.chat else "cmpl-") + uuid.uuid4().hex

    def whole(self, ticket: Ticket, parts: ListLike[Part]) -> JSON:
        """The answer in one piece, from all its parts."""
        choices = [self._choice(ticket, index, parts) for index in range(len(ticket.sequences))]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": usage(ticket), "metrics": metrics(ticket)}

    def opening(self, n_choices: int) -> list[JSON]:
        """What a stream begins with."""
        if self.chat:
            delta = {"role": "assistant", "content": ""}
            return [self._chunk({"index": i, "delta": delta, "finish_reason": None}) for i in range(n_choices)]
        if self.echo is None:
            return []
        chunks = []
        for i in range(n_choices):
            logprobs = None if self.echo.logprobs is None else self._logprobs([], i)
            shown = {"text": self.echo.texts[i // self.n], "logprobs": logprobs}
            chunks.append(self._chunk({"index": i, **shown, "finish_reason": None}))
        return chunks

    def chunk(self, part: Part) -> JSON | None:
        """A part of a stream; None where there is nothing to show yet."""
        event, index = part.event, part.index
        delta, finish = self._delta(index, event)
        shown = {"delta": delta} if self.chat else {"text": event.text}
        choice: JSON = {"index": index, **shown, "logprobs": None, "finish_reason": finish}
        if event.logprobs:
            choice["logprobs"] = self._logprobs(event.logprobs, index)
        if self.include_tokens:
            drafted = [i < event.n_drafted for i in range(len(event.tokens))]
            pieces = [list(self.text.token_bytes(token)) for token in event.tokens]
            choice["tokens"] = [{"bytes": b, "drafted": d} for b, d in zip(pieces, drafted, strict=True)]
        if not (event.text or event.finish or event.logprobs or self.include_tokens):
            return None
        return self._chunk(choice)

    def _delta(self, index: int, event: Event) -> tuple[JSON, str | None]:
        """What is new of a chat's message, and how it ended. What begins like a call is held back to its end."""
        text = event.text
        if self.tools:
            text = self.held.pop(index, "") + text
            if text.startswith("<") and event.finish is None:
                self.held[index] = text
                return {}, None
            calls = called(text) if event.finish is not None else None
            if calls is not None:
                return {"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}, "tool_calls"
        return ({"content": text} if text else {}), event.finish

    def closing(self, ticket: Ticket) -> list[JSON]:
        """What a stream ends with, where it was asked for."""
        if not self.include_usage:
            return []
        return [{**self._head(self._chunk_kind), "choices": [], "usage": usage(ticket), "metrics": metrics(ticket)}]

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, kind: str) -> JSON:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "system_fingerprint": self.fingerprint}

    def _chunk(self, choice: JSON) -> JSON:
        usage = {"usage": None} if self.include_usage else {}
        return {**self._head(self._chunk_kind), "choices": [choice], **usage}

    def _choice(self, ticket: Ticket, index: int, parts: ListLike[Part]) -> JSON:
        text = "".join(part.event.text for part in parts if part.index == index)
        seq = ticket.sequences[index]
        logprobs = self._logprobs(seq.logprobs, index) if seq.sampling.logprobs is not None else None
        if self.chat:
            message: JSON = {"role": "assistant", "content": text, "refusal": None}
            calls = called(text) if self.tools else None
            if calls is not None:
                message = {**message, "content": None, "tool_calls": calls}
                return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": "tool_calls"}
            return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": seq.finish}
        if self.echo is not None:
            text = self.echo.texts[index // self.n] + text
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": seq.finish}

    def _logprobs(self, tokens: ListLike[TokenLogprob], index: int) -> JSON:
        if self.chat:
            return {"content": [self._token(t) for t in tokens], "refusal": None}
        pieces: list[str] = []
        values: list[float | None] = []
        top: list[JSON | None] = []
        offsets: list[int] = []
        if self.echo is not None and index not in self.shown and self.echo.logprobs is not None:
            prompt = index // self.n  # in front of the first tokens come those of the prompt
            first = self.echo.tokens[prompt][0]
            pieces, values, top = [self._piece(first)], [None], [None]
            offsets.append(self._show(index, first))
            tokens = [*self.echo.logprobs[prompt], *tokens]
        pieces += [self._piece(t.token) for t in tokens]
        values += [max(t.logprob, _FLOOR) for t in tokens]
        top += [self._top(t) for t in tokens]
        offsets += [self._show(index, t.token) for t in tokens]
        return {"tokens": pieces, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}

    def _piece(self, token: int) -> str:
        return _numbered(token) if self.ids else self.text.token_text(token)

    def _top(self, t: TokenLogprob) -> JSON:
        """The likeliest tokens and the chosen one, by text; of several with one text the likeliest has it, and the
        others go by their ids.
        """
        found: JSON = {}
        chosen = () if t.token in dict(t.top) else ((t.token, t.logprob),)
        for token, logprob in (*t.top, *chosen):
            piece = self._piece(token)
            found[piece if piece not in found else _numbered(token)] = max(logprob, _FLOOR)
        return found

    def _show(self, index: int, token: int) -> int:
        """Characters before ``token``: one of several tokens counts with the token that completes it."""
        if index not in self.shown:
            at, decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")
            if self.echo is not None and self.echo.logprobs is None:
                at = len(self.echo.texts[index // self.n])
                decoder.decode(b"".join(map(self.text.token_bytes, self.echo.open[index // self.n])))
            self.shown[index] = at, decoder
        at, known = self.shown[index]
        self.shown[index] = at + len(known.decode(self.text.token_bytes(token))), known
        return at

    def _token(self, t: TokenLogprob) -> JSON:
        return {**self._named(t.token, t.logprob), "top_logprobs": [self._named(i, lp) for i, lp in t.top]}

    def _named(self, token: int, logprob: float) -> JSON:
        data = self.text.token_bytes(token) or self.text.token_text(token).encode()
        return {"token": self.text.token_text(token), "logprob": max(logprob, _FLOOR), "bytes": list(data)}


def _numbered(token: int) -> str:
    return f"token_id:{token}"  # as vLLM's return_tokens_as_token_ids


def usage(ticket: Ticket) -> JSON:
    """Counts are token ids of the engine; a prompt counts once, whatever its samples."""
    assert isinstance(ticket.ask, Ask)
    n_prompt = sum(len(tokens) for tokens in ticket.ask.prompts)
    n_output = sum(seq.n_output for seq in ticket.sequences)
    n_drafted, n_accepted = sum(s.n_drafted for s in ticket.stats), sum(s.n_accepted for s in ticket.stats)
    details = {"accepted_prediction_tokens": n_accepted, "rejected_prediction_tokens": n_drafted - n_accepted}
    counts = {"prompt_tokens": n_prompt, "completion_tokens": n_output, "total_tokens": n_prompt + n_output}
    return {**counts, "completion_tokens_details": details}


def metrics(ticket: Ticket) -> JSON:
    """What docs/numbers.md defines, over all samples of the request; and the seed, drawn where none was given."""
    stats = ticket.stats
    n_forwards, n_tokens = sum(s.n_forwards for s in stats), sum(s.n_tokens for s in stats)
    assert isinstance(ticket.ask, Ask)
    speculative = {
        "drafter": ticket.ask.drafter,
        "num_draft_tokens": sum(s.n_drafted for s in stats),
        "num_accepted_tokens": sum(s.n_accepted for s in stats),
        "tokens_per_forward": n_tokens / n_forwards if n_forwards else 0.0,
        "accepted_by_depth": summed_by_depth([s.accepted_by_depth for s in stats]),
    }
    first_s = min((s.first_token_s for s in stats), default=0.0)
    total_s = max((s.total_s for s in stats), default=0.0)
    return {"seed": ticket.ask.seed, "first_token_s": first_s, "total_s": total_s, "speculative_decoding": speculative}


def unfinished(text: Text, ids: ListLike[int]) -> list[int]:
    """The last of ``ids`` where they end inside a character: those that hold what there is of it."""
    last = [text.token_bytes(token) for token in ids[-3:]]
    n_open = incomplete_tail(b"".join(last))
    n = 0
    while n_open > 0:
        n += 1
        n_open -= len(last[-n])
    return list(ids[len(ids) - n :])
