"""HTTP server of one API process, whose shutdown still answers every request that was accepted.

    SIGTERM -> /readyz answers 503 -> no new connections -> waits end -> running requests end -> exit

A load balancer sees /readyz fail while the process still serves, and routes elsewhere. A second signal exits at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

import redis
import uvicorn
from starlette.concurrency import run_in_threadpool

from service.schemas.addresses import root_path
from service.server.http_protocol import HttpProtocol
from service.server.listening import ACCEPTED, STOP_SECONDS
from worker.base.problems import ProblemError, refuse
from worker.observability.live_workers import prolong
from worker.storage.mark import RENEW_SECONDS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import FrameType

    from fastapi import FastAPI

    from worker.base.settings import Settings
    from worker.storage.mark import RecordsMark
    from worker.stores import Stores

KEEP_ALIVE_SECONDS = 75  # longer than in most clients and proxies, so that these close idle connections first
# Iterations of the event loop before the socket is closed, in which it accepts queued connections. Closing resets the
# connections that are still queued.
LAST_ITERATIONS = 16
SETTLE_SECONDS = 0.5  # time in which connections that were accepted just before the shutdown may send a request
TICK_SECONDS = 0.05
TICKS_PER_SECOND = 10  # uvicorn calls `on_tick` ten times a second

log = logging.getLogger(__name__)


class Shutdown:
    """Tells whether an API process is shutting down, and answers the requests that wait for jobs and draws.

    From the signal on, `draining` is set: /readyz answers 503, and responses close their connections, so that clients
    connect to another process.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.draining = Event()

    def end_waits(self) -> None:
        """End the waits of all requests for jobs and draws: each is answered at once with the current state."""
        self._stores.endings.end()
        self._stores.drawn.end()

    def require_not_draining(self) -> None:
        """Raise `ProblemError` (``draining``, 503) if the process is shutting down."""
        if self.draining.is_set():
            raise refuse(
                "draining",
                503,
                "This process is shutting down; it still answers requests.",
                "Send the next requests to another process, or to this address again in some seconds.",
            )


class ApiServer(uvicorn.Server):
    """Uvicorn server with graceful shutdown.

    After the signal it continues to serve for `settings.drain` seconds, so that load balancers notice the shutdown. 0
    suffices if another process accepts connections on the same socket.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                backlog=ACCEPTED,
                loop="asyncio",  # uvloop ignores `SharedSocket.listen`, and was no faster
                log_config=None,  # the project's logging formats its lines
                # Uvicorn's warnings are only about malformed requests, which any client can send.
                log_level="debug" if settings.log_level == "debug" else "error",
                access_log=False,  # `RequestMiddleware` writes the access log, with the route
                timeout_graceful_shutdown=max(1, round(STOP_SECONDS)),
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                server_header=False,
                proxy_headers=False,  # would trust any loopback client, unlike `service.middleware.access_policy`
                http=HttpProtocol,
                root_path=root_path(settings.root_path),
                # No limit_concurrency: unlike `RequestLimits`, it counts idle connections, and also refuses probes.
                ws="none",
            )
        )
        self._app = app
        self._settings = settings
        self._renewal: asyncio.Task[None] | None = None  # the event loop itself holds only a weak reference to a task
        self._publication: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 # uvicorn's signature
        """Shut down at the first signal, exit at the second; uvicorn would also raise the signal again at the end."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Do the regular work of the process; uvicorn calls this ten times a second.

        Each second, touch GLLE_ALIVE_FILE, and write to the cache's Redis how much each tenant uses in this process of
        the resources that tenants share, such as requests in progress. Every `RENEW_SECONDS`, renew the mark, a small
        file beside the stored files, by which a loss of records or files is noticed (worker/storage/mark.py).
        """
        if counter % TICKS_PER_SECOND == 0:
            with suppress(OSError):  # the disk may be full
                prolong(self._settings)
            if self._publication is None or self._publication.done():
                self._publication = asyncio.create_task(run_in_threadpool(self._publish_shares))
        if counter % (TICKS_PER_SECOND * RENEW_SECONDS) == 0 and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(run_in_threadpool(renew_mark, self._app.state.stores.mark))
        return await super().on_tick(counter)

    def _publish_shares(self) -> None:
        stores = self._app.state.stores
        with suppress(redis.RedisError):  # the cache's server does not answer
            stores.shares.publish(stores.cache.client)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down without losing a request.

        Serve on until load balancers have noticed that /readyz fails, and close the listening sockets. Then answer at
        once the requests that wait for jobs or draws, and let all others end.
        """
        shutdown = self._app.state.shutdown
        shutdown.draining.set()
        await self._serve_on(self._settings.drain)
        for _ in range(LAST_ITERATIONS):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        await self._serve_on(SETTLE_SECONDS, lambda: not self.server_state.connections)
        shutdown.end_waits()
        await super().shutdown(sockets)

    async def _serve_on(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Serve for `seconds`, or until `is_over` returns true or a second signal arrives."""
        until, ticks = time.monotonic() + seconds, 0
        while time.monotonic() < until and not (is_over() or self.force_exit):
            await self.on_tick(ticks)  # also updates the header Date of responses
            ticks += 1
            await asyncio.sleep(TICK_SECONDS)


def renew_mark(mark: RecordsMark, *, is_last: bool = False) -> None:
    """Renew the mark: write the numbers of records into the file by which a later loss of records or files is noticed.

    A usual renewal leaves out the changes of the last seconds, which a failover of Redis may lose. `is_last` says that
    the process stops; the mark then has all changes. If a Redis server or the file store does not answer, only a
    warning is logged. See worker/storage/mark.py.
    """
    try:
        mark.renew(is_last=is_last)
    except (ProblemError, redis.RedisError) as error:
        log.warning("The mark by which a loss of records or files is noticed could not be renewed yet: %s", error)
