"""Server-sent events of a job: its progress and its end.

An event's id is the number of changes of the job's record. Progress is a state, not a log: with Last-Event-ID a client
that reconnects gets the current state if it has changed, and always the end. FastAPI's EventSourceResponse encodes in
the router, where neither 204 nor the limit on streams can precede it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from service.responses.streaming import job_states
from service.schemas.resources import JobOut, ProgressOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.responses.streaming import StreamLimiter
    from worker.jobs.store import Job
    from worker.stores import Stores

EVENTS = "text/event-stream"
HEARTBEAT_SECONDS = 15.0  # proxies close connections that are silent for a minute or less
RETRY = "retry: 1000\n\n"  # milliseconds until a client reconnects
HEARTBEAT = ": still here\n\n"


def has_seen_end(job: Job, last_event_id: int | None) -> bool:
    """Return whether a client has received the end of a job; 204 then stops its reconnection."""
    return not job.is_open and last_event_id == job.sequence


async def events(here: Stores, limiter: StreamLimiter, job: Job, last_event_id: int | None) -> AsyncIterator[str]:
    """Yield the events of a job after `last_event_id`."""
    yield RETRY
    sent = time.monotonic()
    async for now in job_states(here, limiter, job):
        if now.is_open and now.sequence != last_event_id:
            progress = {"status": now.status, **ProgressOut.of(now).model_dump()}
            yield _event(now.sequence, "progress", json.dumps(progress))
        elif not now.is_open:
            yield _event(now.sequence, "end", JobOut.of(now).model_dump_json())
        elif time.monotonic() - sent >= HEARTBEAT_SECONDS:
            yield HEARTBEAT
        else:
            continue
        last_event_id, sent = now.sequence, time.monotonic()


def _event(number: int, name: str, data: str) -> str:
    return f"id: {number}\nevent: {name}\ndata: {data}\n\n"
