"""Blocking and asynchronous sessions on httpx, which retry calls and wait for jobs."""

from __future__ import annotations

import random
import time
import weakref
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import update_wrapper
from inspect import Signature, signature
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx

from glle.transport.calls import Call, Reply, path_of
from glle.transport.errors import job_error, reply_error, timeout_error, unreachable_error
from glle_engine.base.parameters import with_seed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from glle.progress import Bars
    from glle.transport.calls import Body
    from glle.types import JobOut, ProgressOut

_RETRY_STATUSES = frozenset({429, 502, 503, 504})
_OPEN = frozenset({"queued", "running", "cancelling"})
_LONG_POLL, _SMOOTH_POLL = 20.0, 0.4  # seconds of a poll for a job; the shorter one keeps the progress line moving
_IMMEDIATE_SECONDS = 0.05  # if a poll is answered sooner, the service did not wait for the end of the job
_MEGABYTE = 10**6
_MIN_BYTES_FOR_PROGRESS = 8 * _MEGABYTE  # an upload shows its progress once this many bytes are sent
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Retries:
    """Retry policy of a client.

    Parameters
    ----------
    deadline
        Seconds after the first attempt of a call until which it is repeated; then the call fails. 0: one attempt.
    connect
        Seconds until which a call is repeated if the service accepts no connection and has never answered this client,
        because there may be no such service. A service that has answered before is probably restarting, so its calls
        are repeated until the deadline.
    first, longest
        Seconds of the first and of the longest pause between attempts; each pause is twice as long as the one before.
        The client waits for a random part of the pause, at least half, so that clients that were refused together do
        not return together.

    """

    deadline: float = 120.0
    connect: float = 5.0
    first: float = 0.25
    longest: float = 20.0

    def pause(
        self, attempt: int, elapsed: float, reply: Reply | httpx.RequestError, *, is_known: bool = False
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None if that would be after the deadline.

        `attempt` counts from 0; `elapsed` is the number of seconds since the first attempt began; `is_known` says
        whether the service has answered before. No pause is shorter than the Retry-After of the reply.
        """
        seconds = min(self.longest, self.first * 2.0 ** min(attempt, 60)) * random.uniform(0.5, 1.0)  # noqa: S311 # not a secret
        if isinstance(reply, Reply):
            with suppress(ValueError):  # some proxies send a date in place of seconds
                seconds = max(seconds, float(reply.headers.get("retry-after", "0")))
        limit = self.deadline if is_known or _is_connected(reply) else min(self.connect, self.deadline)
        return seconds if elapsed + seconds <= limit else None


class Session:
    """Sends the requests of one `AsyncClient` over httpx; `BlockingSession` does the same for a `Client`.

    `classes` maps a kind of resource, such as "dataset" or "job", to the class of the client's objects.
    """

    http_class: ClassVar[Callable[..., Any]] = httpx.AsyncClient

    def __init__(
        self, options: dict[str, Any], url: str, retries: Retries, bars: Bars, classes: dict[str, Callable[..., Any]]
    ) -> None:
        self.url = url
        self.retries = retries
        self.bars = bars
        self.classes = classes
        self._http = self.http_class(**options)
        self._has_answered = False

    def close(self) -> Any:
        """Return a coroutine that closes the connections."""
        return self._http.aclose()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine unchanged, for the caller to await."""
        return coroutine

    def iterate(self, items: AsyncIterator[Any]) -> Any:
        """Return the asynchronous iterator unchanged, for the caller's `async for`."""
        return items

    async def sleep(self, seconds: float) -> None:
        """Pause this task for a number of seconds."""
        await anyio.sleep(seconds)

    @asynccontextmanager
    async def _stream(self, call: Call, **options: Any) -> AsyncIterator[tuple[httpx.Response, Any]]:
        """Send a request; yield the response, and an asynchronous iterator over the pieces of the response's body."""
        content = None if call.body is None else _read_in_thread(call.body.pieces())
        async with self._http.stream(call.method, call.path, content=content, **options) as response:
            yield response, response.aiter_bytes()

    def build(self, kind: str, metadata: Any, *arguments: Any) -> Any:
        """Return the client's object for a resource of this kind, from the resource's description `metadata`."""
        return self.classes[kind](metadata, self, *arguments)

    async def send(self, call: Call) -> Reply:
        """Send a call, repeat it while the service is unavailable or refuses it for now, and return the reply.

        Raises GlleServiceError for a status of 300 and above (the API has no redirects), and if there is no response
        until the deadline of `retries`.
        """
        started = time.monotonic()
        for attempt in count():
            reply = await self._attempt(call)
            self._has_answered |= isinstance(reply, Reply)
            if isinstance(reply, httpx.RequestError) or reply.status in _RETRY_STATUSES:
                elapsed = time.monotonic() - started
                pause = self.retries.pause(attempt, elapsed, reply, is_known=self._has_answered)
                if pause is not None:
                    await self.sleep(pause)
                    continue
            if isinstance(reply, httpx.RequestError):
                reason = str(reply) or type(reply).__name__
                raise unreachable_error(self.url, reason, is_connected=_is_connected(reply))
            # A repeated DELETE finds nothing if the first one succeeded and its reply was lost.
            is_repeated_delete = call.method == "DELETE" and attempt > 0 and reply.status == httpx.codes.NOT_FOUND
            if reply.status >= 300 and not is_repeated_delete:
                raise reply_error(reply)
            return reply
        raise AssertionError("unreachable")

    async def _attempt(self, call: Call) -> Reply | httpx.RequestError:
        """Send a call once; return the reply, or the `RequestError` if no reply came."""
        body = call.body
        length = None if body is None or body.length is None else str(body.length)
        media = None if body is None else body.media
        headers = {"Accept": call.accept, "Content-Type": media, "Content-Length": length}
        options = {"params": _without_none(call.query), "headers": _without_none(headers)}
        try:
            async with self._upload_shown(call) as shown, self._stream(shown, **options) as (response, pieces):
                status, received = response.status_code, response.headers
                if call.read is None or status != httpx.codes.OK:
                    return Reply(status, received, b"".join([piece async for piece in pieces]))
                with call.destination() as file:
                    async for piece in pieces:
                        file.write(piece)
                    if call.out is None:
                        file.seek(0)
                        return Reply(status, received, call.read(file))
                return Reply(status, received, call.read(call.out))
        except httpx.RequestError as error:
            return error

    @asynccontextmanager
    async def _upload_shown(self, call: Call) -> AsyncIterator[Call]:
        """Yield the call with a body that reports to the progress line how much of a large upload has been sent."""
        body = call.body
        if body is None:
            yield call
            return
        with self.bars.bar("upload") as show:
            yield replace(call, body=replace(body, pieces=lambda: _counted(body, show)))

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Send a GET request, and return the JSON of the reply."""
        return (await self.send(Call("GET", path, query or {}))).json()

    async def fetch(self, call: Call, timeout: float | None = None) -> Reply:
        """Send a call and return the reply; after a reply of 202, wait for the job and send the call again."""
        started = time.monotonic()
        while (reply := await self.send(call)).status == httpx.codes.ACCEPTED:
            remaining = None if timeout is None else max(0.0, timeout - (time.monotonic() - started))
            await self.follow(reply.json(), remaining)
        return reply

    async def follow(self, job: JobOut, timeout: float | None = None) -> JobOut:
        """Wait until a job has succeeded, and return its new description.

        Raises GlleServiceError if the job fails or is cancelled, and JobTimeoutError after `timeout` seconds.
        """
        started = time.monotonic()
        with self.bars.bar(job["kind"]) as show:
            while job["status"] in _OPEN:
                sent = time.monotonic()
                remaining = float("inf") if timeout is None else timeout - (sent - started)
                if timeout is not None and remaining <= 0:
                    raise timeout_error(job, timeout)
                wait = min(_SMOOTH_POLL if self.bars.is_visible else _LONG_POLL, remaining)
                job = await self.get(path_of("jobs", job["id"]), {"wait": wait})
                show(job["progress"])
                # If the service answers at once although the job has not ended, the client itself waits.
                if job["status"] in _OPEN and time.monotonic() - sent < min(_IMMEDIATE_SECONDS, wait):
                    await self.sleep(min(1.0, remaining))
        if job["status"] != "succeeded":
            raise job_error(job)
        return job


class BlockingSession(Session):
    """Sends the requests of a `Client`, and blocks until the service has answered.

    It uses the coroutines of `Session`. Here they block in place of waiting for an event loop, so that one
    `coroutine.send(None)` runs a coroutine to its end.
    """

    http_class = httpx.Client

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._close = weakref.finalize(self, self._http.close)

    def close(self) -> Any:
        """Close the connections, which also happens when the session is deleted."""
        self._close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine to its end, and return its result."""
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError(f"{coroutine!r} of a blocking client was suspended: a fault of glle")

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        """Yield the items of an asynchronous iterator to code without an event loop; the wait for an item blocks."""
        with suppress(StopAsyncIteration):
            while True:
                yield self.run(anext(items))  # type: ignore[arg-type] # a generator's `anext` is a coroutine

    async def sleep(self, seconds: float) -> None:
        """Block this thread for a number of seconds."""
        time.sleep(seconds)  # noqa: ASYNC251 # no event loop runs this coroutine

    @asynccontextmanager
    async def _stream(self, call: Call, **options: Any) -> AsyncIterator[tuple[httpx.Response, Any]]:
        content = None if call.body is None else call.body.pieces()
        with self._http.stream(call.method, call.path, content=content, **options) as response:
            yield response, _without_waiting(response.iter_bytes())


def _counted(body: Body, show: Callable[[ProgressOut], None]) -> Iterator[bytes]:
    """Yield the pieces of a body; once eight megabytes were sent, call `show` with the number of megabytes sent."""
    sent, total = 0, (body.length or 0) // _MEGABYTE
    for piece in body.pieces():
        yield piece
        sent += len(piece)
        if sent >= _MIN_BYTES_FOR_PROGRESS:
            show({"done": sent // _MEGABYTE, "total": total, "stage": "megabytes", "eta": None})


async def _without_waiting(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _read_in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body; a thread reads each piece, so that a slow disk does not block the event loop."""
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        yield piece


def _is_connected(reply: Reply | httpx.RequestError) -> bool:
    """Return whether the service accepted the connection of a request that ended with `reply`."""
    return not isinstance(reply, httpx.ConnectError | httpx.ConnectTimeout)


def _without_none(items: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in items.items() if value is not None}


def http_options(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Return the arguments of an httpx client; raise ValueError for a URL that is not HTTP or has no host."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL: give one such as http://127.0.0.1:8000.")
    return {
        "base_url": url.rstrip("/"),
        "headers": {} if key is None else {"Authorization": f"Bearer {key}"},
        "timeout": httpx.Timeout(timeout, connect=5.0),
        "mounts": dict.fromkeys(_LOOPBACK),  # a proxy would connect to its own loopback
    }


class Blocking:
    """Base class of `Client` and of its objects, whose operations block."""

    _session: Session


class Async:
    """Base class of `AsyncClient` and of its objects, whose operations are coroutines."""

    _session: Session


class operation(Generic[P, T]):  # noqa: N801 # used as a decorator
    """Decorator of a coroutine method, which makes it serve both clients.

    On a `Blocking` object it is an ordinary method, and on an `Async` object a coroutine, for type checkers as well.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.method = method
        self.shown = _without_self(method)
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self.method if instance is None else _bind(self, instance, instance._session.run)  # noqa: SLF001 # every instance has a session


class listing(Generic[P, T]):  # noqa: N801 # used as a decorator
    """Decorator of a method that returns an asynchronous iterator over the items of a list, for both clients.

    On a `Blocking` object the method returns an ordinary iterator.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self.method = method
        self.shown = _without_self(method)
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self.method if instance is None else _bind(self, instance, instance._session.iterate)  # noqa: SLF001 # every instance has a session


def _without_self(method: Callable[..., Any]) -> Signature:
    """Return the signature of a method without `self`, for `help`."""
    shown = signature(method)
    return shown.replace(parameters=[*shown.parameters.values()][1:])


def _bind(decorated: Any, instance: Any, run: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the `decorated` method bound to `instance`; `run` executes the coroutine or iterator that it returns.

    The bound method accepts `random_state` as another name of `seed`.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return run(decorated.method(instance, *args, **(with_seed(kwargs) if "random_state" in kwargs else kwargs)))

    bound = update_wrapper(call, decorated.method)
    bound.__signature__ = decorated.shown  # type: ignore[attr-defined]
    return bound
