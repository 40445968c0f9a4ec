"""Server-sent events of a job: its progress as it goes, then its end.

The id of an event is the number of changes of the job's record. Progress is a state and no log: who comes back with
Last-Event-ID gets what is the case now, if it has changed since, and never misses the end.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from service.responses.streaming import states
from service.schemas.resources import JobOut, ProgressOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.responses.streaming import StreamLimiter
    from worker.jobs.store import Job
    from worker.stores import Stores

EVENTS = "text/event-stream"
HEARTBEAT_SECONDS = 15.0  # proxies close what is silent for a minute or less
RETRY = "retry: 1000\n\n"  # milliseconds after which a client whose connection broke comes back
HEARTBEAT = ": still here\n\n"


def has_seen_end(job: Job, seen: int | None) -> bool:
    """Say whether a client that comes back got the end already; 204 then tells it to stay away."""
    return not job.is_open and seen == job.sequence


async def events(here: Stores, streams: StreamLimiter, job: Job, seen: int | None) -> AsyncIterator[str]:
    """Yield the events of a job after the one numbered `seen`."""
    yield RETRY
    sent = time.monotonic()
    async for now in states(here, streams, job):
        if now.is_open and now.sequence != seen:
            yield _event(now.sequence, "progress", _progress(now))
        elif not now.is_open:
            yield _event(now.sequence, "end", JobOut.of(now).model_dump_json())
        elif time.monotonic() - sent >= HEARTBEAT_SECONDS:
            yield HEARTBEAT
        else:
            continue
        seen, sent = now.sequence, time.monotonic()


def _progress(job: Job) -> str:
    return json.dumps({"status": job.status, **ProgressOut.of(job).model_dump()})


def _event(number: int, name: str, data: str) -> str:
    return f"id: {number}\nevent: {name}\ndata: {data}\n\n"
