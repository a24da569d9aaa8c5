"""Running the application: uvicorn, with an end that answers everybody."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from wager.serve.app import make_app
from wager.serve.service import Service
from wager.serve.sockets import bound

_GRACE_S = 5.0  # for answers that are being written when the server is told to end
_LOOK_S = 0.005  # how often it is looked whether a server has begun
_ENDED_S = 60.0  # longer than any grace


class Server(uvicorn.Server):
    """Serves ``service``. Told to end, it takes no more connections, waits a little, and tells the rest with 503."""

    def __init__(self, service: Service, *, grace_s: float = _GRACE_S) -> None:
        super().__init__(
            uvicorn.Config(make_app(service), log_config=None, access_log=False, timeout_graceful_shutdown=2)
        )
        self._engine, self._grace_s = service.loop, grace_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        end = time.monotonic() + self._grace_s
        while self._engine.n_sequences and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        self._engine.turn_away()
        await super().shutdown(sockets)


@contextmanager
def in_thread(service: Service, *, grace_s: float = _GRACE_S) -> Iterator[int]:
    """A server in a thread of this process, on a free port of this machine, which is given; ended at the end."""
    with bound("127.0.0.1", 0) as listening:
        server = Server(service, grace_s=grace_s)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server ended before it began"
                time.sleep(_LOOK_S)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(_ENDED_S)
            assert not thread.is_alive(), f"the server has not ended after {_ENDED_S:g} s"
