"""HTTP server of one API process; its shutdown answers every accepted request.

    SIGTERM -> not ready -> no new connections -> waits end -> running requests end -> exit

A load balancer sees /readyz fail while the process still serves, and routes elsewhere. A second signal exits at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import uvicorn

from service.middleware.slow_clients import limited_protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import FrameType

    from fastapi import FastAPI

    from worker.base.settings import Settings

KEEP_ALIVE_SECONDS = 75  # longer than usual clients and proxies, so that they close idle connections first
SETTLE_SECONDS = 0.5  # for connections that were accepted just before the shutdown
TICK_SECONDS = 0.05


class Server(uvicorn.Server):
    """Uvicorn server with graceful shutdown.

    Parameters
    ----------
    drain
        Seconds to keep serving after the signal, until load balancers notice; 0 if another process accepts connections
        on the same socket.
    started
        Called once the server accepts requests.

    """

    def __init__(self, app: FastAPI, settings: Settings, *, drain: float, started: Callable[[], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,  # the project's logging formats its lines
                log_level="debug" if settings.log_level == "debug" else "warning",
                access_log=False,  # ObservabilityMiddleware logs the route, too
                timeout_graceful_shutdown=max(1, round(settings.stop_grace)),
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                server_header=False,
                proxy_headers=False,  # trusts any loopback client; service.middleware.proxies does not
                http=limited_protocol(settings),
            )
        )
        self._app = app
        self._drain = drain
        self._on_start = started

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 # uvicorn's signature
        """Shut down at the first signal, exit at the second; uvicorn would end by the signal and skip the drain."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down in the module's order."""
        shutdown = self._app.state.shutdown
        shutdown.begin()
        await self._serve_on(self._drain)
        for server in self.servers:
            server.close()
        await self._serve_on(SETTLE_SECONDS, lambda: not self.server_state.connections)
        shutdown.end_waits()
        await super().shutdown(sockets)

    async def _serve_on(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Keep serving until the time is over, `is_over` returns true or a second signal arrives."""
        until, ticks = time.monotonic() + seconds, 0
        while time.monotonic() < until and not (is_over() or self.force_exit):
            await self.on_tick(ticks)  # updates uvicorn's default headers
            ticks += 1
            await asyncio.sleep(TICK_SECONDS)
