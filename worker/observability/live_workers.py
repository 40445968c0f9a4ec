"""Live workers: each has a record in the queue's Redis that expires unless the worker renews it in time."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.records.ids import text

if TYPE_CHECKING:
    import redis

    from worker.base.settings import Settings

_NAMES = "glle:workers"
PATIENCE_SECONDS = 60.0  # a call of a worker waits this long for an unreachable Redis or a new master


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """What a live worker's record says about the worker.

    Parameters
    ----------
    busy
        Number of the worker's processes that are computing.
    engine, numbers
        Version of the package `glle_engine`, and version of the engine's results (`NUMBERS`).
    threads
        Value of OPENBLAS_NUM_THREADS in the worker's processes.
    skew
        Seconds by which the worker's clock is ahead of the queue server's clock.
    memory
        Bytes of memory of the worker's container or machine.
    settings
        The worker's values of the settings on which all processes must agree (`worker.base.settings.shared_values`).

    """

    name: str
    host: str
    busy: int
    engine: str
    numbers: str
    threads: str
    skew: float = 0.0
    memory: int = 0
    settings: dict[str, str] = field(default_factory=dict)


def worker_ttl(settings: Settings) -> int:
    """Return the number of seconds without a heartbeat after which a worker counts as dead."""
    return 4 * settings.heartbeat


def announce(client: redis.Redis, settings: Settings, state: WorkerState) -> None:
    """Write or renew the record of a worker."""
    with client.pipeline(transaction=False) as pipeline:
        pipeline.set(_key(state.name), json.dumps(asdict(state)), ex=worker_ttl(settings))
        pipeline.sadd(_NAMES, state.name)
        pipeline.execute()


def withdraw(client: redis.Redis, name: str) -> None:
    """Remove the record of a worker, which is about to stop."""
    with client.pipeline(transaction=False) as pipeline:
        pipeline.delete(_key(name))
        pipeline.srem(_NAMES, name)
        pipeline.execute()


def live_workers(client: redis.Redis) -> tuple[WorkerState, ...]:
    """Return the states of the live workers, sorted by name; raises `redis.RedisError`."""
    records = _records(client).values()
    return tuple(WorkerState(**json.loads(raw)) for raw in records if raw is not None)


def forget_dead_workers(client: redis.Redis) -> None:
    """Remove the names of workers whose records have expired; a late worker's next heartbeat adds its name again."""
    if dead := [name for name, raw in _records(client).items() if raw is None]:
        client.srem(_NAMES, *dead)


def _records(client: redis.Redis) -> dict[str, Any]:
    """Return a mapping of worker names to their stored records, or to None where the record has expired."""
    names = sorted(text(raw) for raw in client.smembers(_NAMES))
    return dict(zip(names, client.mget([_key(name) for name in names]), strict=True)) if names else {}


def prolong(settings: Settings) -> None:
    """Show by the file `settings.alive_file` that this process is alive: set its modification time to the future.

    A probe may consider the process dead once this time has passed. The time is later than the end of any wait for a
    Redis that does not answer. Does nothing if the setting is empty. Raises `OSError`.
    """
    if settings.alive_file:
        until = time.time() + PATIENCE_SECONDS + worker_ttl(settings)
        Path(settings.alive_file).touch()
        os.utime(settings.alive_file, (until, until))


def _key(name: str) -> str:
    return f"glle:worker:{name}"
