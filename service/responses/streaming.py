"""Responses that stay open while a job runs, limited per process and per tenant; server-sent events of a job.

An event's id is the number of changes of the job's record. Progress is a state, not a log: with Last-Event-ID a client
that reconnects gets the current state if it has changed, and always the end. FastAPI's EventSourceResponse encodes in
the router, where neither 204 nor the limit on streams can precede it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import redis
from starlette.concurrency import run_in_threadpool

from service.encoding.arrays import AbortableResponse, ResponseAbortedError
from service.schemas.resources import JobOut, ProgressOut
from service.submission.jobs import refresh_job
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from worker.jobs.notifications import Notifications
    from worker.jobs.store import Job
    from worker.records.shares import Share
    from worker.stores import Stores

RECHECK_SECONDS = 0.15  # after a change, because one that followed at once was not published
OUTAGE_SECONDS = 60.0  # a stream survives an outage or a failover of Redis this long
LOOK_SECONDS = 1.0  # notifications may get lost, and looking at a job detects a lost worker

EVENTS = "text/event-stream"
HEARTBEAT_SECONDS = 15.0  # proxies close connections that are silent for a minute or less
RETRY = "retry: 1000\n\n"  # milliseconds until a client reconnects
HEARTBEAT = ": still here\n\n"


class StreamLimiter:
    """Limits on the open streams of a process and of each tenant.

    A stream costs a connection and one refresh_job at its job per second.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.is_stopped = False

    def enter(self, tenant: str) -> contextlib.ExitStack:
        """Count a new stream and return the context that releases it once, or raise ``too-many-streams``."""
        if not self.share.allows(tenant):
            detail = f"{self.share.held[tenant]} streams of this tenant are open, of {self.share.used} in this process."
            remedy = "Try again later, or follow the job with GET /v1/jobs/{id}?wait=30."
            raise refuse("too-many-streams", 503, detail, remedy, allowed=int(self.share.total))
        slot = contextlib.ExitStack()
        slot.enter_context(self.share.hold(tenant))
        return slot

    def stop(self, changes: Notifications) -> None:
        """End every stream, because a shutdown does not wait for jobs."""
        self.is_stopped = True
        changes.wake_all()


class LimitedStreamingResponse(AbortableResponse):
    """Streaming response that counts as an open stream from its creation until it ends or its client disconnects.

    Beyond a limit it raises ``too-many-streams``, before it calls `content`.
    """

    def __init__(
        self, limiter: StreamLimiter, tenant: str, content: Callable[[], AsyncIterator[str | bytes]], **options: Any
    ) -> None:
        slot = limiter.enter(tenant)
        try:
            super().__init__(content(), **options)
        except BaseException:
            slot.close()
            raise
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, then release its slot."""
        with self._slot:
            await super().__call__(scope, receive, send)


async def job_states(here: Stores, limiter: StreamLimiter, job: Job) -> AsyncIterator[Job]:
    """Yield the job after each notification or second, until it has ended or the process shuts down.

    Raise `ResponseAbortedError` if Redis does not answer for a minute.
    """
    sequence, answered = -1, time.monotonic()
    with here.changes.listen(job.id) as changed:
        while not limiter.is_stopped:
            changed.clear()
            try:
                job = await run_in_threadpool(refresh_job, here, job.id)
            except redis.RedisError as error:
                if time.monotonic() - answered > OUTAGE_SECONDS:
                    raise ResponseAbortedError(f"Redis does not answer ({type(error).__name__}).") from error
                await asyncio.sleep(LOOK_SECONDS)
                continue
            answered = time.monotonic()
            yield job
            if not job.is_open:
                return
            pause, sequence = RECHECK_SECONDS if job.sequence != sequence else LOOK_SECONDS, job.sequence
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()


async def events(here: Stores, limiter: StreamLimiter, job: Job, last_event_id: int | None) -> AsyncIterator[str]:
    """Yield the events of a job after `last_event_id`."""
    yield RETRY
    sent = time.monotonic()
    async for now in job_states(here, limiter, job):
        if now.is_open and now.sequence != last_event_id:
            progress = {"status": now.status, **ProgressOut.from_job(now).model_dump()}
            yield _event(now.sequence, "progress", json.dumps(progress))
        elif not now.is_open:
            yield _event(now.sequence, "end", JobOut.from_job(now).model_dump_json())
        elif time.monotonic() - sent >= HEARTBEAT_SECONDS:
            yield HEARTBEAT
        else:
            continue
        last_event_id, sent = now.sequence, time.monotonic()


def _event(number: int, name: str, data: str) -> str:
    return f"id: {number}\nevent: {name}\ndata: {data}\n\n"
