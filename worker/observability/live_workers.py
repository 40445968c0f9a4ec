"""Live workers: those whose last heartbeat is recent, and the file by which a probe sees that one lives."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from worker.base.versions import long_queue, numbers_of_queue, queue_name, short_queue
from worker.records.ids import text

if TYPE_CHECKING:
    import redis

    from worker.base.settings import Settings

_FIELDS = ("last_heartbeat", "state", "hostname")


@dataclass(frozen=True)
class WorkerState:
    """A live worker."""

    name: str
    host: str
    busy: bool


def begun_key(queue: str) -> str:
    """Return the registry of a queue's begun tasks; of short ones it has ``<task>:<executor>`` by the lease's end."""
    return f"rq:wip:{queue}"


def worker_ttl(settings: Settings) -> int:
    """Return the seconds without a heartbeat after which a worker counts as dead."""
    return 6 * settings.heartbeat


def prolong(settings: Settings) -> None:
    """Move the modification time of the alive file, if there is one, to when this worker will count as dead.

    That is later than any wait for a silent Redis. Raises `OSError`.
    """
    if settings.alive_file:
        until = time.time() + settings.redis_patience + worker_ttl(settings)
        Path(settings.alive_file).touch()
        os.utime(settings.alive_file, (until, until))


def workers_of(client: redis.Redis, settings: Settings, queue: str) -> tuple[WorkerState, ...]:
    """Return the live workers of a queue, by name; two round trips. Raises `redis.RedisError`."""
    keys = sorted(text(raw) for raw in client.smembers(f"rq:workers:{long_queue(queue)}"))
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hmget(key, _FIELDS)
        pipeline.zrange(begun_key(short_queue(queue)), 0, -1)
        *replies, begun = pipeline.execute()
    records = [[None if raw is None else text(raw) for raw in values] for values in replies]
    executors = {text(entry).rpartition(":")[2] for entry in begun}
    names = [key.removeprefix("rq:worker:") for key in keys]
    now = datetime.now(UTC)
    return tuple(
        WorkerState(name, host or "", state == "busy" or name.partition(".")[0] in executors)
        for name, (heartbeat, state, host) in zip(names, records, strict=True)
        # A heartbeat from the future predates a correction of the clock; a live worker has sent another since.
        if heartbeat is not None
        and abs((now - datetime.fromisoformat(heartbeat)).total_seconds()) < worker_ttl(settings)
    )


def own_queues(client: redis.Redis) -> tuple[str, ...]:
    """Return the names of this version's queues: the pinned kind's first, then those of other known kinds, sorted.

    A queue of short tasks has the workers of the queue of long ones and is not among them.
    """
    names = {long_queue(text(raw).removeprefix("rq:queue:")) for raw in client.smembers("rq:queues")}
    pinned = queue_name()
    return (pinned, *sorted(name for name in names - {pinned} if numbers_of_queue(name) is not None))


def workers_by_numbers(client: redis.Redis, settings: Settings) -> dict[str, tuple[WorkerState, ...]]:
    """Return this version's live workers by their numbers, without kinds that have no live worker."""
    workers = {str(numbers_of_queue(name)): workers_of(client, settings, name) for name in own_queues(client)}
    return {numbers: live for numbers, live in workers.items() if live}
