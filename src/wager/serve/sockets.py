"""The socket a server listens on, taken before anything slow begins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from wager.errors import OptionError


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A TCP socket bound to ``host`` and ``port`` (0: a free one). Raises OptionError where that cannot be."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise OptionError(f"--host `{host}` --port `{port}` is no address ({error}): give others") from error
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except (OSError, OverflowError) as error:
            raise OptionError(f"`{host}:{port}` cannot be listened on ({error}): give another --port") from error
        yield listening
