"""Sessions on httpx: blocking, and awaited."""

from __future__ import annotations

import ipaddress
import time
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx

from glle.transport.session import ResponseStream, Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator

    from glle.transport.calls import Call


class BlockingSession(Session):
    """Session with blocking requests: its coroutines never suspend, so that one step runs them to their end."""

    def __init__(self, options: dict[str, Any], *shared: Any) -> None:
        super().__init__(*shared)
        self._http = httpx.Client(**options)
        self._close = weakref.finalize(self, self._http.close)

    def close(self) -> None:
        """Close the connections; they also close with the last object that holds the session."""
        self._close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its result."""
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("the coroutine waits for an event loop")

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        """Iterate over items."""
        while True:
            try:
                item = self.run(anext(items))  # type: ignore[arg-type] # of an asynchronous generator a coroutine
            except StopAsyncIteration:
                return
            yield item

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 # no event loop runs this coroutine

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[ResponseStream]:
        """Send a request."""
        content = None if call.body is None else call.body.pieces()
        with self._http.stream(call.method, call.path, content=content, **_options(call)) as response:
            yield ResponseStream(response.status_code, response.headers, _without_waiting(response.iter_bytes()))


class AsyncSession(Session):
    """Session with awaited requests."""

    def __init__(self, options: dict[str, Any], *shared: Any) -> None:
        super().__init__(*shared)
        self._http = httpx.AsyncClient(**options)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine, for the caller to await."""
        return coroutine

    def iterate(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return the iterator."""
        return items

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[ResponseStream]:
        """Send a request."""
        content = None if call.body is None else _read_in_thread(call.body.pieces())
        async with self._http.stream(call.method, call.path, content=content, **_options(call)) as response:
            yield ResponseStream(response.status_code, response.headers, response.aiter_bytes())


def http_options(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Return the arguments of httpx.Client and httpx.AsyncClient; raise ValueError for a URL without HTTP or host."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is no URL: give one such as http://127.0.0.1:8000.")
    return {
        "base_url": url.rstrip("/"),
        "headers": {} if key is None else {"Authorization": f"Bearer {key}"},
        "timeout": httpx.Timeout(timeout, connect=5.0),
        "trust_env": not _is_loopback(parts.hostname),  # a proxy would connect to its own loopback
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _options(call: Call) -> dict[str, Any]:
    body = call.body
    headers = {
        "Accept": call.accept,
        "Content-Type": None if body is None else body.media,
        "Content-Length": None if body is None or body.length is None else str(body.length),
        "Idempotency-Key": call.key,
    }
    return {"params": _without_none(call.query.items()), "headers": _without_none(headers.items())}


def _without_none(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


async def _without_waiting(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _read_in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces from a thread, because they may come from a disk."""
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        yield piece
