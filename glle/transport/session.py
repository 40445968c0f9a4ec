"""Session of a client: calls with retries, jobs followed to their end, results."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from glle.transport.calls import Call, Failure, Reply, path_of
from glle.transport.errors import eviction_error, job_error, reply_error, timeout_error, unreachable_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from glle.progress import Bars
    from glle.transport.retries import Retries
    from glle.transport.sinks import Sink
    from glle.types import JobOut

_RETRY_STATUSES = frozenset({429, 502, 503, 504})
_OPEN = frozenset({"queued", "running", "cancelling"})
_LONG_POLL, _SMOOTH_POLL = 20.0, 0.4  # seconds; the shorter one keeps a visible progress bar moving
_SOON = 0.05  # seconds; the service did not wait if it answered a poll sooner
_EVICTIONS = 5


class ResponseStream(NamedTuple):
    """Response whose body is still to be received."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Session:
    """Connection of one client to one service; `classes` are those of the `dataset`, `posterior`, `job` it returns."""

    def __init__(self, url: str, retries: Retries, bars: Bars, classes: dict[str, Callable[..., Any]]) -> None:
        self.url = url
        self.retries = retries
        self.bars = bars
        self.classes = classes

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine over this session, or the coroutine, if the caller awaits it."""
        raise NotImplementedError

    def iterate(self, items: AsyncIterator[Any]) -> Any:
        """Return an iterator over items, of the kind of this session."""
        raise NotImplementedError

    def close(self) -> Any:
        """Close the connections."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        raise NotImplementedError

    def stream(self, call: Call) -> AbstractAsyncContextManager[ResponseStream]:
        """Send a request, and receive the head of its response."""
        raise NotImplementedError

    def build(self, kind: str, metadata: Any, *more: Any) -> Any:
        """Return the client's object of a resource."""
        return self.classes[kind](metadata, self, *more)

    async def send(self, call: Call) -> Reply:
        """Send a call until it succeeds, the deadline passes, or a repetition could have two effects.

        Raise GlleServiceError for a status of 300 and above (the API has no redirects), and for no response.
        """
        started = self.retries.clock()
        for attempt in count():
            reply = await self._attempt(call)
            if call.is_repeatable and (isinstance(reply, Failure) or reply.status in _RETRY_STATUSES):
                pause = self.retries.pause(attempt, self.retries.clock() - started, reply)
                if pause is not None:
                    await self.sleep(pause)
                    continue
            if isinstance(reply, Failure):
                raise unreachable_error(self.url, reply.reason)
            is_repeated_delete = call.method == "DELETE" and attempt > 0 and reply.status == httpx.codes.NOT_FOUND
            if reply.status >= 300 and not is_repeated_delete:  # the first reply of a repeated DELETE was lost
                raise reply_error(reply)
            return reply
        raise AssertionError("unreachable")

    async def _attempt(self, call: Call) -> Reply | Failure:
        try:
            async with self.stream(call) as (status, headers, pieces):
                if call.sink is None or status != httpx.codes.OK:
                    return Reply(status, headers, b"".join([piece async for piece in pieces]))
                with _dropped_on_error(call.sink()) as sink:
                    async for piece in pieces:
                        sink.feed(piece)
                    return Reply(status, headers, sink.end())
        except httpx.RequestError as error:
            is_refused = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            return Failure(str(error) or type(error).__name__, connected=not is_refused)

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a GET."""
        return (await self.send(Call("GET", path, query or {}))).json()

    async def fetch(self, call: Call, timeout: float | None = None) -> Reply:
        """Send a call, and again after the job of each 202, until the reply is the result."""
        started = time.monotonic()
        for _ in range(_EVICTIONS):
            reply = await self.send(call)
            if reply.status != httpx.codes.ACCEPTED:
                return reply
            remaining = None if timeout is None else max(0.0, timeout - (time.monotonic() - started))
            await self.follow(reply.json(), remaining)
        raise eviction_error(call.path, _EVICTIONS)

    async def run_job(
        self,
        path: str,
        body: Any,
        timeout: float | None,
        result: Callable[[str], Call] = lambda path: Call("GET", path),
    ) -> tuple[JobOut, Reply]:
        """Submit a job, follow it, and fetch its result with the call of a path."""
        reply = await self.send(Call.command(path, body))
        job = await self.follow(reply.json(), timeout)
        return job, await self.fetch(result(path_of("jobs", job["id"], "result")), timeout)

    async def picture(self, path: str, query: dict[str, Any], out: str | Path | None, timeout: float | None) -> bytes:
        """Fetch a picture; with `out`, also write it to that file."""
        body: bytes = (await self.fetch(Call("GET", path, query, accept="image/*"), timeout)).body
        if out is not None:
            Path(out).write_bytes(body)  # noqa: ASYNC240 # small
        return body

    async def follow(self, job: JobOut, timeout: float | None = None) -> JobOut:
        """Wait until a job has succeeded; raise its problem, or JobTimeoutError after `timeout` seconds."""
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
                if job["status"] in _OPEN and time.monotonic() - sent < min(_SOON, wait):  # no long polls
                    await self.sleep(min(1.0, remaining))
        if job["status"] != "succeeded":
            raise job_error(job)
        return job


@contextmanager
def _dropped_on_error(sink: Sink) -> Iterator[Sink]:
    try:
        yield sink
    except BaseException:
        sink.drop()
        raise
