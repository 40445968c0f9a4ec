"""Load balancer: it polls /readyz of each process and sends new connections to ready ones."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PROBE_SECONDS, PROBE_PATIENCE = 0.25, 2.0
CONNECT_SECONDS = 1.0
PIECE = 2**16
READY = b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Balancer:
    """Balancer that forwards connections in a separate thread.

    Parameters
    ----------
    backends
        Addresses and ports of the processes.

    Attributes
    ----------
    ready : set
        Backends whose last /readyz was 200.

    """

    def __init__(self, host: str, backends: list[tuple[str, int]]) -> None:
        self._host = host
        self._backends = backends
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.ready: set[tuple[str, int]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _begin(self) -> None:
        server = await asyncio.start_server(self._pass_on, self._host, 0)
        self.url = f"http://{self._host}:{server.sockets[0].getsockname()[1]}"
        self._probing = [asyncio.ensure_future(self._probe(backend)) for backend in self._backends]

    async def _probe(self, backend: tuple[str, int]) -> None:
        while True:
            is_ready = False
            with suppress(OSError, TimeoutError):
                is_ready = await asyncio.wait_for(self._is_ready(backend), PROBE_PATIENCE)
            (self.ready.add if is_ready else self.ready.discard)(backend)
            await asyncio.sleep(PROBE_SECONDS)

    async def _is_ready(self, backend: tuple[str, int]) -> bool:
        reader, writer = await asyncio.open_connection(*backend)
        try:
            writer.write(READY)
            return b" 200 " in await reader.readline()
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = await self._connected()
        if streams is None:  # no process is ready: close the client's connection
            writer.close()
            return
        there, back = streams
        await asyncio.gather(_copied(reader, back), _copied(there, writer), return_exceptions=True)

    async def _connected(self) -> Streams | None:
        """Connect to the ready backends in turn; skip one that refuses the connection."""
        self._turn += 1
        for step in range(len(self._backends)):
            backend = self._backends[(self._turn + step) % len(self._backends)]
            if backend in self.ready:
                with suppress(OSError, TimeoutError):
                    return await asyncio.wait_for(asyncio.open_connection(*backend), CONNECT_SECONDS)
        return None


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until the end of the stream, and forward the end."""
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
