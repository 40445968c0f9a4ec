"""The two ways to run a client's steps: blocking, and awaited. All that knows httpx is here."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx

from glle.transport.calls import Call, Failure, Pause, Reply, Steps
from glle.transport.session import Session
from glle.transport.sinks import Whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from glle.transport.calls import Sink


class BlockingSession(Session):
    """Runs steps with blocking requests."""

    def __init__(self, http: httpx.Client, *shared: Any) -> None:
        super().__init__(*shared)
        self.http = http

    def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        with contextlib.closing(steps):  # an error here ends what the steps hold open
            answer: Reply | Failure | None = None
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    return end.value
                answer = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    answer = self._answer(step)

    def all(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> Iterator[Any]:
        """Iterate over the items of all pages."""
        cursor = None
        while True:
            items, cursor = self.run(page(cursor))
            yield from items
            if cursor is None:
                return

    def _answer(self, call: Call) -> Reply | Failure:
        content = None if call.body is None else call.body.pieces()
        try:
            with self.http.stream(call.method, call.path, content=content, **_asked(call)) as response:
                sink = _sink(call, response)
                with _kept(sink):
                    for piece in response.iter_bytes():
                        sink.feed(piece)
                    return Reply(response.status_code, response.headers, sink.end())
        except httpx.RequestError as error:
            return _failure(error)


class AwaitingSession(Session):
    """Runs steps with awaited requests."""

    def __init__(self, http: httpx.AsyncClient, *shared: Any) -> None:
        super().__init__(*shared)
        self.http = http

    async def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        with contextlib.closing(steps):
            answer: Reply | Failure | None = None
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    return end.value
                answer = None
                if isinstance(step, Pause):
                    await anyio.sleep(step.seconds)
                else:
                    answer = await self._answer(step)

    async def all(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> AsyncIterator[Any]:
        """Iterate over the items of all pages."""
        cursor = None
        while True:
            items, cursor = await self.run(page(cursor))
            for item in items:
                yield item
            if cursor is None:
                return

    async def _answer(self, call: Call) -> Reply | Failure:
        content = None if call.body is None else _awaited(call.body.pieces())
        try:
            async with self.http.stream(call.method, call.path, content=content, **_asked(call)) as response:
                sink = _sink(call, response)
                with _kept(sink):
                    async for piece in response.aiter_bytes():
                        sink.feed(piece)
                    return Reply(response.status_code, response.headers, sink.end())
        except httpx.RequestError as error:
            return _failure(error)


def options_of(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Return what both kinds of httpx clients are made with.

    Raises
    ------
    ValueError
        For a URL that is none.

    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is no URL: give one such as http://127.0.0.1:8000.")
    return {
        "base_url": url.rstrip("/"),
        "headers": {} if key is None else {"Authorization": f"Bearer {key}"},
        "timeout": httpx.Timeout(timeout, connect=5.0),
        "trust_env": not _is_loopback(parts.hostname),  # a proxy would look for the service on itself
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _asked(call: Call) -> dict[str, Any]:
    headers = {"Accept": call.accept}
    if call.body is not None:
        headers["Content-Type"] = call.body.media
        if call.body.length is not None:
            headers["Content-Length"] = str(call.body.length)
    if call.key is not None:
        headers["Idempotency-Key"] = call.key
    return {"params": {name: value for name, value in call.query.items() if value is not None}, "headers": headers}


def _sink(call: Call, response: httpx.Response) -> Sink:
    return call.sink() if call.sink is not None and response.status_code == httpx.codes.OK else Whole()


@contextlib.contextmanager
def _kept(sink: Sink) -> Iterator[None]:
    """Have a sink drop what it took when it does not come to its end."""
    try:
        yield
    except BaseException:
        sink.drop()
        raise


def _failure(error: httpx.RequestError) -> Failure:
    refused = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return Failure(str(error) or type(error).__name__, connected=not refused)


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces that are made in a thread: they may be read from a disk."""
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        yield piece
