"""HTTP: routes, the request's way in and out, and what is refused at the door."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from wager.serve.auth import Gate
from wager.serve.bodies import Body, ChatBody, CompletionBody, DecideBody, ScoreBody, parsed
from wager.serve.errors import ApiError, as_api_error
from wager.serve.formats import SSE_DONE, dumps, sse
from wager.serve.loop import Part, Ticket
from wager.serve.openapi import description
from wager.serve.service import Hold, Running, Service
from wager.types import JSON

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_STALLED_S = 120.0  # a step that takes longer than this is no step
_LOG = logging.getLogger("wager.serve")
Result = TypeVar("Result")
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service) -> Starlette:
    """The ASGI application over ``service``; its lifespan starts and ends the engine's thread."""
    edge = _Edge(service, Gate(service.settings))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.loop.start()
        yield
        await asyncio.get_running_loop().run_in_executor(None, service.loop.close)

    settings = service.settings
    middleware = []
    if settings.cors_origins:
        origins = list(settings.cors_origins)
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]))
    routes = [
        Route("/v1/chat/completions", edge.door(edge.chat), methods=["POST"]),
        Route("/v1/completions", edge.door(edge.completions), methods=["POST"]),
        Route("/v1/score", edge.door(edge.score), methods=["POST"]),
        Route("/v1/decide", edge.door(edge.decide), methods=["POST"]),
        Route("/v1/embeddings", edge.door(edge.embeddings), methods=["POST"]),
        Route("/v1/models", edge.door(edge.models), methods=["GET"]),
        Route("/v1/models/{name:path}", edge.door(edge.model), methods=["GET"]),
        Route("/health", edge.health, methods=["GET"]),
        Route("/ready", edge.ready, methods=["GET"]),
        Route("/metrics", edge.door(edge.metrics), methods=["GET"]),
        Route("/openapi.json", edge.openapi, methods=["GET"]),
        *(Route(path, edge.page, methods=["GET"]) for path in PAGE),
    ]
    handlers: dict[int | type[Exception], Callable[..., Awaitable[Response]]] = {404: _not_found, 405: _not_allowed}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False  # it would lead to whatever Host a request names
    return app


@dataclass(slots=True)
class _Edge:
    service: Service
    gate: Gate

    def door(self, handler: Handler) -> Handler:
        """``handler`` for those who may ask; every error leaves in OpenAI's shape, and every request in the log."""

        async def wrapped(request: Request) -> Response:
            request_id, start = uuid.uuid4().hex, time.monotonic()
            request.state.id = request_id
            try:
                self.gate.check_host(request.headers.get("host"))
                request.state.who = self.gate.identify(request.headers.get("authorization"))
                response = await handler(request)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:
                response = self._refusal(error, request_id)
            response.headers["x-request-id"] = request_id
            if isinstance(response, _Stream):  # logged once it has ended
                response.holds.callback(lambda: _log(request, 200, time.monotonic() - start))
            else:
                _log(request, response.status_code, time.monotonic() - start)
            return response

        return wrapped

    def _refusal(self, error: Exception, request_id: str) -> Response:
        answer = as_api_error(error)
        if answer.status >= 500 and not isinstance(error, ApiError):
            _LOG.error("request %s failed", request_id, exc_info=error)
        self.service.metrics.errors.labels(str(answer.status)).inc()
        headers = {} if answer.retry_after_s is None else {"retry-after": str(answer.retry_after_s)}
        if answer.status == 401:
            headers["www-authenticate"] = "Bearer"
        return _json(answer.body(), answer.status, headers)

    # -- end points ----------------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        body = await self._body(ChatBody, request)
        self._note(request, body.user, [m.model_dump() for m in body.messages])
        return await self._answer(request, lambda hold: self.service.chat(body), stream=bool(body.stream))

    async def completions(self, request: Request) -> Response:
        body = await self._body(CompletionBody, request)
        self._note(request, body.user, body.prompt)
        return await self._answer(request, lambda hold: self.service.complete(body, hold), stream=bool(body.stream))

    async def score(self, request: Request) -> Response:
        body = await self._body(ScoreBody, request)
        self._note(request, None, body.model_dump(include={"prompt", "messages", "candidates"}))
        return await self._held(request, lambda hold: self.service.score(body, hold))

    async def decide(self, request: Request) -> Response:
        body = await self._body(DecideBody, request)
        self._note(request, None, body.model_dump(include={"prompt", "messages", "labels"}))
        return await self._held(request, lambda hold: self.service.decide(body, hold))

    async def embeddings(self, request: Request) -> Response:
        raise ApiError(400, "embeddings are not served: this server generates text", code="unsupported")

    async def models(self, request: Request) -> Response:
        return _json(self.service.models())

    async def model(self, request: Request) -> Response:
        self.service.check_model(request.path_params["name"])
        return _json(self.service.models()["data"][0])

    async def health(self, request: Request) -> Response:
        """The process lives."""
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """The engine takes requests."""
        if self.service.loop.stalled_s() < _STALLED_S:
            return _json({"status": "ready", "model": self.service.name})
        return _json({"status": "the engine does not move"}, 503)

    async def metrics(self, request: Request) -> Response:
        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self, request: Request) -> Response:
        name, kind = PAGE[request.url.path]
        content = resources.files("wager.serve").joinpath("page", name).read_bytes()
        return Response(content, headers=_PAGE_HEADERS, media_type=kind)

    async def openapi(self, request: Request) -> Response:
        return _json(description())

    # -- inside --------------------------------------------------------------------------------------------------

    def _note(self, request: Request, user: str | None, prompt: object) -> None:
        """What the log will say of the request."""
        noted = {"user": user, "prompt": prompt if self.service.settings.log_prompts else None}
        request.state.noted = {name: value for name, value in noted.items() if value is not None}

    async def _body(self, kind: type[Body], request: Request) -> Body:
        most, data = self.service.settings.limits.max_body_bytes, bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > most:
                raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")
        try:
            value = json.loads(bytes(data), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ApiError(
                400, f"the body is not JSON ({_brief(error)}): send an object", code="invalid_json"
            ) from error
        return parsed(kind, value)

    async def _answer(self, request: Request, begin: Callable[[Hold], Awaitable[Running]], *, stream: bool) -> Response:
        """The answer of a request that ``begin`` starts; whatever happens to it, what it holds is free afterwards."""
        with ExitStack() as holds:
            hold = self._holder(request, holds)
            running = await _unless_gone(request, begin(hold))
            hold(running.ticket)
            parts = running.ticket.parts()
            if not stream:
                answer = await _unless_gone(request, _all(parts))
                return _json(running.style.whole(running.ticket, answer))
            # The first part is waited for: what is wrong with a request is its status then, not a line in a stream.
            first = await _unless_gone(request, anext(parts))
            return _Stream(self._lines(running, first, parts), holds.pop_all())

    async def _held(self, request: Request, answer: Callable[[Hold], Awaitable[JSON]]) -> Response:
        """An answer in one piece that may hold a place in the engine while it is made."""
        with ExitStack() as holds:
            return _json(await _unless_gone(request, answer(self._holder(request, holds))))

    def _holder(self, request: Request, holds: ExitStack) -> Hold:
        """Admit the request; what is given to the function returned ends with ``holds``."""
        holds.enter_context(self.gate.admitted(request.state.who))

        def hold(ticket: Ticket) -> None:
            holds.callback(self.service.loop.cancel, ticket)

        return hold

    async def _lines(self, running: Running, first: Part, rest: AsyncIterator[Part]) -> AsyncIterator[bytes]:
        style = running.style
        try:
            for chunk in style.opening(running.ticket.ask.n_sequences):
                yield sse(chunk)
            async for part in _chained(first, rest):
                shown = style.chunk(part)
                if shown is not None:
                    yield sse(shown)
            for chunk in style.closing(running.ticket):
                yield sse(chunk)
            yield SSE_DONE
        except Exception as error:  # the status has been sent: what is left is a line
            answer = as_api_error(error)
            self.service.metrics.errors.labels(str(answer.status)).inc()
            yield sse(answer.body())


class _Stream(StreamingResponse):
    """Server-sent events; ``holds`` is let go at the end, also where the stream never began."""

    def __init__(self, lines: AsyncIterator[bytes], holds: ExitStack) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self.holds = holds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.holds:
            await super().__call__(scope, receive, send)


async def _chained(first: Part, rest: AsyncIterator[Part]) -> AsyncIterator[Part]:
    yield first
    async for part in rest:
        yield part


async def _all(parts: AsyncIterator[Part]) -> list[Part]:
    return [part async for part in parts]


async def _unless_gone(request: Request, answer: Awaitable[Result]) -> Result:
    """``answer``, for which nobody waits once the client has hung up (ClientDisconnect)."""

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    waiting, gone = asyncio.ensure_future(answer), asyncio.ensure_future(hung_up())
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return waiting.result()
    finally:
        for task in (waiting, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(value), status, headers, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    message = f"there is nothing at {request.url.path!r}: the API is under /v1"
    return _json(ApiError(404, message, code="not_found").body(), 404)


async def _not_allowed(request: Request, error: Exception) -> Response:
    message = f"{request.method} is not possible at {request.url.path!r}"
    headers = dict(getattr(error, "headers", None) or {})
    return _json(ApiError(405, message, code="method_not_allowed").body(), 405, headers)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _brief(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number of thousands of digits" if "digits" in str(error) else str(error)[:120]


def _log(request: Request, status: int, seconds: float) -> None:
    fields = {
        "request_id": request.state.id,
        "method": request.method,
        "path": request.url.path,
        "status": status,
        "seconds": round(seconds, 4),
    }
    _LOG.info("request", extra={"fields": {**fields, **getattr(request.state, "noted", {})}})
