"""Session of a client: calls with retries, jobs followed to their end, results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.transport.calls import Call, Pause, Reply, Steps, path_of
from glle.transport.errors import eviction_error, job_error, timeout_error
from glle.transport.retries import Retries, send_with_retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle.progress import Bars
    from glle.types import JobOut

_ACCEPTED = 202
_OPEN = frozenset({"queued", "running", "cancelling"})
_LONG_POLL, _SMOOTH_POLL = 20.0, 0.4  # seconds; the shorter one keeps a visible progress bar moving
_SOON = 0.05  # seconds; the service did not wait if it answered a poll sooner
_EVICTIONS = 5


class Session:
    """Connection of one client to one service; `classes` are those of the `dataset`, `posterior`, `job` it returns."""

    def __init__(self, url: str, retries: Retries, bars: Bars, classes: dict[str, Callable[..., Any]]) -> None:
        self.url = url
        self.retries = retries
        self.bars = bars
        self.classes = classes

    def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        raise NotImplementedError

    def iterate(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> Any:
        """Iterate over the items of all pages."""
        raise NotImplementedError

    def close(self) -> Any:
        """Close the connections."""
        raise NotImplementedError

    def build(self, kind: str, metadata: Any, *more: Any) -> Any:
        """Return the client's object of a resource."""
        return self.classes[kind](metadata, self, *more)

    def send(self, call: Call) -> Steps[Reply]:
        """Send one call, with retries."""
        return (yield from send_with_retries(call, self.retries, self.url))

    def fetch(self, call: Call, timeout: float | None = None) -> Steps[Reply]:
        """Send a call, and again after the job of each 202, until the reply is the result."""
        started = time.monotonic()
        for _ in range(_EVICTIONS):
            reply = yield from self.send(call)
            if reply.status != _ACCEPTED:
                return reply
            remaining = None if timeout is None else max(0.0, timeout - (time.monotonic() - started))
            yield from self.follow(reply.json(), remaining)
        raise eviction_error(call.path, _EVICTIONS)

    def run_job(
        self,
        path: str,
        body: Any,
        timeout: float | None,
        result: Callable[[str], Call] = lambda path: Call("GET", path),
    ) -> Steps[tuple[JobOut, Reply]]:
        """Submit a job, follow it, and fetch its result with the call of a path."""
        reply = yield from self.send(Call.command(path, body))
        job = yield from self.follow(reply.json(), timeout)
        return job, (yield from self.fetch(result(path_of("jobs", job["id"], "result")), timeout))

    def picture(self, path: str, query: dict[str, Any], out: str | Path | None, timeout: float | None) -> Steps[bytes]:
        """Fetch a picture; with `out`, also write it to that file."""
        body: bytes = (yield from self.fetch(Call("GET", path, query, accept="image/*"), timeout)).body
        if out is not None:
            Path(out).write_bytes(body)
        return body

    def follow(self, job: JobOut, timeout: float | None = None) -> Steps[JobOut]:
        """Wait until a job has succeeded; raise its problem, or JobTimeoutError after `timeout` seconds."""
        started = time.monotonic()
        with self.bars.bar(job["kind"]) as show:
            while job["status"] in _OPEN:
                sent = time.monotonic()
                remaining = float("inf") if timeout is None else timeout - (sent - started)
                if timeout is not None and remaining <= 0:
                    raise timeout_error(job, timeout)
                wait = min(_SMOOTH_POLL if self.bars.is_visible else _LONG_POLL, remaining)
                job = (yield from self.send(Call("GET", path_of("jobs", job["id"]), {"wait": wait}))).json()
                show(job["progress"])
                if job["status"] in _OPEN and time.monotonic() - sent < min(_SOON, wait):  # no long polls
                    yield Pause(min(1.0, remaining))
        if job["status"] != "succeeded":
            raise job_error(job)
        return job
