"""Running the application: uvicorn, with an end that answers everybody."""

from __future__ import annotations

import asyncio
import socket
import time

import uvicorn

from wager.serve.app import make_app
from wager.serve.service import Service

_GRACE_S = 5.0  # for answers that are being written when the server is told to end


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
