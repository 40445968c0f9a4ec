"""Who works on a queue: the workers that gave a sign of life lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from worker.base.versions import numbers_of_queue, queue_name
from worker.records.ids import text

if TYPE_CHECKING:
    import redis

    from worker.base.settings import Settings

_TOLD = ("last_heartbeat", "state", "hostname")


@dataclass(frozen=True)
class WorkerState:
    """A worker that gave a sign of life lately."""

    name: str
    host: str
    busy: bool


def worker_ttl(settings: Settings) -> int:
    """Return the seconds after which a worker that gave no sign of life counts as gone."""
    return 6 * settings.heartbeat


def at_work(client: redis.Redis, settings: Settings, queue: str) -> tuple[WorkerState, ...]:
    """Return the workers of a queue, by name; two round trips. Raises `redis.RedisError`."""
    keys = sorted(text(raw) for raw in client.smembers(f"rq:workers:{queue}"))
    with client.pipeline(transaction=False) as together:
        for key in keys:
            together.hmget(key, _TOLD)
        found = [[None if raw is None else text(raw) for raw in told] for told in together.execute()]
    now = datetime.now(UTC)
    return tuple(
        WorkerState(key.removeprefix("rq:worker:"), host or "", state == "busy")
        for key, (beat, state, host) in zip(keys, found, strict=True)
        # A sign of life from the future is of before the clock was set back: those who live have given another.
        if beat is not None and abs((now - datetime.fromisoformat(beat)).total_seconds()) < worker_ttl(settings)
    )


def own_queues(client: redis.Redis) -> tuple[str, ...]:
    """Return the names of this version's queues: the pinned kind's first, then those of other known kinds, sorted."""
    known = {text(raw).removeprefix("rq:queue:") for raw in client.smembers("rq:queues")}
    pinned = queue_name()
    return (pinned, *sorted(name for name in known - {pinned} if numbers_of_queue(name) is not None))


def workers_by_numbers(client: redis.Redis, settings: Settings) -> dict[str, tuple[WorkerState, ...]]:
    """Return this version's live workers by their numbers; a kind without a live worker is left out."""
    found = {str(numbers_of_queue(name)): at_work(client, settings, name) for name in own_queues(client)}
    return {numbers: workers for numbers, workers in found.items() if workers}
