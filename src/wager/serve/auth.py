"""Who may ask, and how much at once."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from wager.serve.config import Settings
from wager.serve.errors import ApiError


class Gate:
    """Checks keys in constant time, and counts each key's requests in flight."""

    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in settings.keys]
        self._hosts = {name.lower() for name in settings.hosts}
        self._most = settings.limits.max_per_key
        self._n_in_flight: Counter[int] = Counter()

    def check_host(self, host: str | None) -> None:
        """Raises ApiError 403 for a Host that is not ours: a web page that had its name point here (DNS rebinding)."""
        given = (host or "").lower()
        name = given if given.endswith("]") else given.rsplit(":", 1)[0]
        if "*" not in self._hosts and name not in self._hosts:
            raise ApiError(403, f"the host {name!r} is not served: start with --allow-host {name}", code="wrong_host")

    def identify(self, authorization: str | None) -> int:
        """The number of the key (0 where none are asked for). Raises ApiError 401."""
        if not self._keys:
            return 0
        scheme, _, token = (authorization or "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""
        matches = [hmac.compare_digest(given, key) for key in self._keys]  # all of them, whichever is right
        if not any(matches):
            message = "this server asks for an API key: send it as `Authorization: Bearer KEY`"
            raise ApiError(401, message, code="invalid_api_key")
        return matches.index(True) + 1

    @contextmanager
    def admitted(self, who: int) -> Iterator[None]:
        """A request of ``who`` is in flight. Raises ApiError 429 beyond ``max_per_key``."""
        if self._most is not None and self._n_in_flight[who] >= self._most:
            message = f"{self._most} requests of yours are in flight already: wait for one of them"
            raise ApiError(429, message, code="too_many_requests", retry_after_s=1)
        self._n_in_flight[who] += 1
        try:
            yield
        finally:
            self._n_in_flight[who] -= 1
