"""Answers that stay open while a job runs: so many a process, and each free as soon as its client is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.context import look
from worker.problems import refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Send

    from worker.jobs import Job
    from worker.news import News
    from worker.stores import Stores

log = logging.getLogger(__name__)

SOON_SECONDS = 0.15  # after a change: the one that followed it at once was not published
LOOK_SECONDS = 1.0  # news may get lost, and a job whose worker was lost ends by being looked at


class BrokenOffError(RuntimeError):
    """The rest will not come."""


class BreakableResponse(StreamingResponse):
    """A stream whose end may not come: it is broken off then, and its client sees that it is not whole."""

    async def stream_response(self, send: Send) -> None:
        """Send the stream; after a `BrokenOffError` the server hangs up, because the answer is not complete."""
        try:
            await super().stream_response(send)
        except BrokenOffError as error:
            log.warning("An answer was broken off: %s", error)


class Streams:
    """Counts the open streams of a process.

    Parameters
    ----------
    most
        How many may be open: each costs a connection and a look a second.

    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0
        self.stopped = False

    def require_room(self) -> None:
        """Raise the problem of too many streams; to be asked before the answer begins.

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

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one stream while it is open."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def stop(self, changes: News) -> None:
        """Have every stream end now: a server that stops does not wait for jobs."""
        self.stopped = True
        changes.wake_all()


async def states(here: Stores, streams: Streams, job: Job) -> AsyncIterator[Job]:
    """Yield the job as it is, again whenever there is news of it or a second has passed, until it has ended.

    Or until the streams are stopped.
    """
    seen = -1
    with here.changes.of(job.id) as changed:
        while not streams.stopped:
            changed.clear()
            job = await run_in_threadpool(look, here, job.id)
            yield job
            if not job.is_open:
                return
            pause, seen = SOON_SECONDS if job.sequence != seen else LOOK_SECONDS, job.sequence
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), pause)
