"""Errors as OpenAI's clients expect them: a status and ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import re

from wager.errors import CapacityError, WagerError
from wager.types import JSON

_TYPES = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an error. ``retry_after_s``: when to come back, for 429 and 503."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after_s = retry_after_s

    def body(self) -> JSON:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def as_api_error(error: Exception) -> ApiError:
    """What a request is told of an exception: the user's mistakes in full, of ours nothing but that it was one."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, CapacityError):
        return ApiError(400, str(error), code="context_length_exceeded")
    if isinstance(error, WagerError):
        named = re.match(r"`([a-z_]+)`", str(error))  # options are named first in what is wrong with them
        return ApiError(400, str(error), param=named[1] if named else None)
    return ApiError(500, "the server failed on this request; its log says more", code="internal_error")
