"""Answers that stay open while a job runs: so many a process, and each free as soon as its client is gone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import redis
from starlette.concurrency import run_in_threadpool

from service.encoding.aborted import AbortableResponse, ResponseAbortedError
from service.submission.dependencies import look
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from worker.jobs.notifications import Notifications
    from worker.jobs.store import Job
    from worker.stores import Stores

SOON_SECONDS = 0.15  # after a change: the one that followed it at once was not published
AWAY_SECONDS = 60.0  # a stream outlives a Redis that is away for so long, or changes its master
LOOK_SECONDS = 1.0  # news may get lost, and a job whose worker was lost ends by being looked at


class Place:
    """The place of one open stream; freed once, however often that is asked for.

    Parameters
    ----------
    streams
        Where it is counted.
    tenant
        Whose stream it is.

    """

    def __init__(self, streams: StreamLimiter, tenant: str) -> None:
        self._streams = streams
        self._tenant = tenant
        self._is_held = True

    def free(self) -> None:
        """Give the place back."""
        if self._is_held:
            self._is_held = False
            self._streams.leave(self._tenant)


class StreamLimiter:
    """Counts the open streams of a process.

    Parameters
    ----------
    most
        How many may be open: each costs a connection and a look a second.
    most_of_tenant
        How many of one tenant, so that one cannot take all places.

    """

    def __init__(self, most: int, most_of_tenant: int) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._of_tenant: Counter[str] = Counter()
        self.open = 0
        self.stopped = False

    def enter(self, tenant: str) -> Place:
        """Count a stream before its answer begins, and return its place, which `Place.free` gives back.

        Parameters
        ----------
        tenant
            Whose stream it is.

        Raises
        ------
        ProblemError
            ``too-many-streams``.

        """
        if self.open >= self._most:
            raise refuse(
                "too-many-streams",
                503,
                f"{self.open} streams are open; {self._most} are allowed.",
                "Try again later, follow the job with GET /v1/jobs/{id}?wait=30, or raise GLLE_MAX_STREAMS.",
                allowed=self._most,
            )
        if self._of_tenant[tenant] >= self._most_of_tenant:
            raise refuse(
                "too-many-streams",
                503,
                f"{self._of_tenant[tenant]} streams of this tenant are open; {self._most_of_tenant} are allowed.",
                "Close one, follow the job with GET /v1/jobs/{id}?wait=30, or raise GLLE_MAX_TENANT_STREAMS.",
                allowed=self._most_of_tenant,
            )
        self.open += 1
        self._of_tenant[tenant] += 1
        return Place(self, tenant)

    def leave(self, tenant: str) -> None:
        """Stop counting a stream."""
        self.open -= 1
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    def stop(self, changes: Notifications) -> None:
        """Have every stream end now: a server that stops does not wait for jobs."""
        self.stopped = True
        changes.wake_all()


class LimitedStreamingResponse(AbortableResponse):
    """An answer that stays open, and holds a place until it ends or its client is gone.

    Parameters
    ----------
    streams
        Where it is counted, from now on.
    tenant
        Whose stream it is.
    content
        Makes the parts, once it is certain that there is a place.

    Raises
    ------
    ProblemError
        ``too-many-streams``.

    """

    def __init__(
        self, streams: StreamLimiter, tenant: str, content: Callable[[], AsyncIterator[str | bytes]], **options: Any
    ) -> None:
        place = streams.enter(tenant)
        try:
            super().__init__(content(), **options)
        except BaseException:
            place.free()
            raise
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, and free its place however that ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.free()


async def states(here: Stores, streams: StreamLimiter, job: Job) -> AsyncIterator[Job]:
    """Yield the job as it is, again whenever there is news of it or a second has passed, until it has ended.

    Or until the streams are stopped.

    Raises
    ------
    ResponseAbortedError
        When Redis does not answer for a minute.

    """
    seen, answered = -1, time.monotonic()
    with here.changes.of(job.id) as changed:
        while not streams.stopped:
            changed.clear()
            try:
                job = await run_in_threadpool(look, here, job.id)
            except redis.RedisError as error:
                if time.monotonic() - answered > AWAY_SECONDS:
                    raise ResponseAbortedError(f"Redis does not answer ({type(error).__name__}).") from error
                await asyncio.sleep(LOOK_SECONDS)
                continue
            answered = time.monotonic()
            yield job
            if not job.is_open:
                return
            pause, seen = SOON_SECONDS if job.sequence != seen else LOOK_SECONDS, job.sequence
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), pause)
