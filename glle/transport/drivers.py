"""Sessions on httpx: blocking, and awaited."""

from __future__ import annotations

import contextlib
import ipaddress
import time
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx

from glle.transport.calls import Call, Failure, Pause, Reply, Steps
from glle.transport.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from glle.transport.sinks import Sink


class BlockingSession(Session):
    """Session with blocking requests."""

    def __init__(self, options: dict[str, Any], *shared: Any) -> None:
        super().__init__(*shared)
        self._http = httpx.Client(**options)
        self._close = weakref.finalize(self, self._http.close)

    def close(self) -> None:
        """Close the connections; they also close with the last object that holds the session."""
        self._close()

    def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        with contextlib.closing(steps):  # an exception here ends the progress bars of the steps
            reply: Reply | Failure | None = None
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    return end.value
                reply = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = self._request(step)

    def iterate(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> Iterator[Any]:
        """Iterate over the items of all pages."""
        cursor = None
        while True:
            items, cursor = self.run(page(cursor))
            yield from items
            if cursor is None:
                return

    def _request(self, call: Call) -> Reply | Failure:
        content = None if call.body is None else call.body.pieces()
        try:
            with self._http.stream(call.method, call.path, content=content, **_options(call)) as response:
                if call.sink is None or response.status_code != httpx.codes.OK:
                    return Reply(response.status_code, response.headers, response.read())
                with _dropped_on_error(call.sink()) as sink:
                    for piece in response.iter_bytes():
                        sink.feed(piece)
                    return Reply(response.status_code, response.headers, sink.end())
        except httpx.RequestError as error:
            return _failure(error)


class AsyncSession(Session):
    """Session with awaited requests."""

    def __init__(self, options: dict[str, Any], *shared: Any) -> None:
        super().__init__(*shared)
        self._http = httpx.AsyncClient(**options)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        with contextlib.closing(steps):
            reply: Reply | Failure | None = None
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    return end.value
                reply = None
                if isinstance(step, Pause):
                    await anyio.sleep(step.seconds)
                else:
                    reply = await self._request(step)

    async def iterate(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> AsyncIterator[Any]:
        """Iterate over the items of all pages."""
        cursor = None
        while True:
            items, cursor = await self.run(page(cursor))
            for item in items:
                yield item
            if cursor is None:
                return

    async def _request(self, call: Call) -> Reply | Failure:
        content = None if call.body is None else _read_in_thread(call.body.pieces())
        try:
            async with self._http.stream(call.method, call.path, content=content, **_options(call)) as response:
                if call.sink is None or response.status_code != httpx.codes.OK:
                    return Reply(response.status_code, response.headers, await response.aread())
                with _dropped_on_error(call.sink()) as sink:
                    async for piece in response.aiter_bytes():
                        sink.feed(piece)
                    return Reply(response.status_code, response.headers, sink.end())
        except httpx.RequestError as error:
            return _failure(error)


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


@contextlib.contextmanager
def _dropped_on_error(sink: Sink) -> Iterator[Sink]:
    try:
        yield sink
    except BaseException:
        sink.drop()
        raise


def _failure(error: httpx.RequestError) -> Failure:
    is_refused = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return Failure(str(error) or type(error).__name__, connected=not is_refused)


async def _read_in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces from a thread, because they may come from a disk."""
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        yield piece
