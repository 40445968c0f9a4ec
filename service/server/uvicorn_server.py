"""The HTTP server of one API process, which leaves no request unanswered when it stops.

    SIGTERM -> draining -> no new connections -> nobody waits -> what is under way ends -> gone

A balancer sees /readyz fail while every request is still served, and sends the next ones elsewhere. A second signal
ends it at once.
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

KEEP_ALIVE_SECONDS = 75  # longer than clients and proxies keep an idle connection: they hang up, not the server
SETTLE_SECONDS = 0.5  # in which a connection that was accepted a moment ago says what it is for
TICK = 0.05


class Server(uvicorn.Server):
    """Serves an app until a signal, then drains.

    Parameters
    ----------
    drain
        Seconds of serving on after the signal, for balancers to notice; none where another process accepts the
        connections to the same socket.
    started
        Called once requests are answered.

    """

    def __init__(self, app: FastAPI, settings: Settings, *, drain: float, started: Callable[[], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,  # its lines are as all others are
                log_level="debug" if settings.log_level == "debug" else "warning",
                access_log=False,  # ours has the route
                timeout_graceful_shutdown=max(1, round(settings.stop_grace)),
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                server_header=False,
                proxy_headers=False,  # it would believe any client on loopback: see service.middleware.proxies
                http=limited_protocol(settings),
            )
        )
        self._app = app
        self._drain = drain
        self._on_start = started

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 # uvicorn's signature
        """Stop on a first signal, at once on a second; uvicorn would end by the signal, and skip what follows."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in the order that is told above."""
        self._app.state.shutdown.begin()
        await self._pass(self._drain)
        for server in self.servers:
            server.close()
        await self._pass(SETTLE_SECONDS, lambda: not self.server_state.connections)
        self._app.state.shutdown.end_waits()
        await super().shutdown(sockets)

    async def _pass(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Go on for a time, until it is over or a second signal comes."""
        until, ticks = time.monotonic() + seconds, 0
        while time.monotonic() < until and not (over() or self.force_exit):
            await self.on_tick(ticks)  # the headers of every answer, once a second by its count of tenths
            ticks += 1
            await asyncio.sleep(TICK)
