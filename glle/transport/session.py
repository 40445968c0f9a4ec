"""What all methods of a client share: patient calls, jobs followed to their end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from glle.transport.calls import Call, Pause, Reply, Steps
from glle.transport.errors import late, of_job, unsettled
from glle.transport.retries import Retries, patient

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle.progress import Bars
    from glle.types import JobOut

OPEN = frozenset({"queued", "running", "cancelling"})
ACCEPTED = 202
_LONG_POLL, _SMOOTH_POLL = 20.0, 0.4  # seconds; a bar that someone looks at moves more often
_SOON = 0.05  # a poll that was answered sooner was not waited for
_EVICTIONS = 5


class Session:
    """One service as one client knows it; how its steps are run is up to the subclass.

    Parameters
    ----------
    kinds
        The classes that data sets, posteriors and jobs are told as.

    """

    def __init__(self, url: str, retries: Retries, bars: Bars, kinds: dict[str, Callable[..., Any]]) -> None:
        self.url = url
        self.retries = retries
        self.bars = bars
        self.kinds = kinds

    def run(self, steps: Steps[Any]) -> Any:
        """Run steps to their result."""
        raise NotImplementedError

    def all(self, page: Callable[[str | None], Steps[tuple[list[Any], str | None]]]) -> Any:
        """Iterate over the items of all pages."""
        raise NotImplementedError

    def ask(self, call: Call) -> Steps[Reply]:
        """Make one call, with patience."""
        return (yield from patient(call, self.retries, self.url))

    def follow(self, job: JobOut, timeout: float | None = None) -> Steps[JobOut]:
        """Wait until a job has succeeded.

        Raises
        ------
        GlleServiceError
            The problem that it failed with, or that it was cancelled.
        JobTimeoutError
            It goes on after `timeout` seconds.

        """
        started = time.monotonic()
        with self.bars.bar(job["kind"]) as bar:
            while job["status"] in OPEN:
                asked = time.monotonic()
                left = float("inf") if timeout is None else timeout - (asked - started)
                if timeout is not None and left <= 0:
                    raise late(job, timeout)
                wait = min(_SMOOTH_POLL if bar.shown else _LONG_POLL, left)
                reply = yield from self.ask(Call("GET", f"/v1/jobs/{job['id']}", {"wait": wait}))
                job = reply.json()
                bar.tell(job["progress"])
                soon = time.monotonic() - asked < min(_SOON, wait)
                if job["status"] in OPEN and soon:  # the service allows no waiting
                    yield Pause(min(1.0, left))
        if job["status"] != "succeeded":
            raise of_job(job)
        return job

    def settled(self, call: Call, timeout: float | None = None) -> Steps[Reply]:
        """Make a call whose answer may have to be made first: until it is no 202."""
        started = time.monotonic()
        for _ in range(_EVICTIONS):
            reply = yield from self.ask(call)
            if reply.status != ACCEPTED:
                return reply
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - started))
            yield from self.follow(reply.json(), left)
        raise unsettled(call.path)
