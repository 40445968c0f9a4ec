"""Health of a deployment: checks of servers, workers, files and disk, with remedies, and the state of the queues."""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import redis
from rq.rate_limit import RateLimitRegistry

from worker.base.disk import DISK_REMEDY, disk_reserve, free_bytes, nearest_existing
from worker.base.problems import ProblemError
from worker.connections.failures import redis_problem
from worker.jobs.draw_stream import stream_state
from worker.jobs.rq_tasks import fetch_tasks, open_queue
from worker.observability.live_workers import live_workers
from worker.records.job import QUEUES
from worker.storage import free_space
from worker.storage.free_space import disk_refusal, probe
from worker.storage.mark import MAX_CHECK_AGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import Problem
    from worker.base.settings import Settings
    from worker.storage.object_store.files import ObjectFiles
    from worker.stores import Stores

OBJECT_STORE = "object store"  # name of the check of the object store
RECORDS = "records"  # name of the check whether records and files belong together
DRAW_REQUESTS = "draws"  # name, in `queue_states`, of the requests for single draws

FULL = 0.98  # above this used share of the queue server's memory, workers cannot register: not ready
PROBE, PROBE_TTL = "glle:probe", 60  # key of the test write to the queue's server, and seconds until it expires
PROBE_SECONDS = 1.0  # pause between two test writes, because /readyz is public and each write waits for the disk

UNKNOWN = "unknown"  # shown for facts that a managed server does not report

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """Result of one check: what was found, and a remedy unless the state is ``ok``."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    code: str = ""  # code of the problem, as in problem+json; empty if the state is ``ok``

    @classmethod
    def from_problem(cls, name: str, problem: Problem, state: State = "problem") -> Self:
        """Return the result of a check that found a problem: its detail, remedy and code."""
        return cls(name, state, problem.detail, problem.remedy, problem.code)

    def to_dict(self) -> dict[str, str]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class QueueState:
    """State of a queue of tasks, or of the requests for single draws.

    Parameters
    ----------
    length
        Number of waiting tasks or requests.
    oldest_seconds
        Seconds for which the oldest of these tasks or requests has waited; 0 if none waits.
    running
        Number of tasks or requests that are being processed.

    """

    name: str
    length: int
    oldest_seconds: float
    running: int


def queue_states(stores: Stores) -> list[QueueState]:
    """Return the states of the queues of tasks and of the requests for draws.

    Raises `redis.RedisError` if the queue's server does not answer. If the cache's server does not answer, the requests
    for draws are left out.
    """
    states = [_queue_state(stores, name) for name in QUEUES]
    with suppress(redis.RedisError):  # a separate check reports the cache's server
        draws = stream_state(stores.cache.client)
        waiting = max(0, draws.length - draws.drawing)
        states.append(QueueState(DRAW_REQUESTS, waiting, draws.oldest_seconds if waiting else 0.0, draws.drawing))
    return states


def _queue_state(stores: Stores, name: str) -> QueueState:
    queue, now = open_queue(name, stores.client), datetime.now(UTC)
    limited = [registry.get_rate_limited_job_ids() for registry in _limits(stores, name)]
    first = queue.get_job_ids(0, 1)
    tasks = fetch_tasks(stores.client, [*first, *(ids[0] for ids in limited if ids)])
    # A task that RQ holds back for its tenant's limit gets `enqueued_at` only when it enters the queue, and has waited
    # since `created_at`.
    times = [task.enqueued_at or task.created_at for task in tasks if task is not None]
    oldest = max(((now - since).total_seconds() for since in times), default=0.0)
    running = queue.started_job_registry.get_job_count(cleanup=False)
    return QueueState(name, queue.count + sum(map(len, limited)), max(0.0, oldest), running)


def _limits(stores: Stores, name: str) -> list[RateLimitRegistry]:
    """Return RQ's rate limits for a queue: how many tasks of each tenant may wait there or run.

    From a limit one can also read the ids of the tenant's tasks that RQ holds back.
    """
    return [registry for registry in RateLimitRegistry.all(stores.client) if registry.key.startswith(f"{name}:")]


def readiness(stores: Stores) -> list[Check]:
    """Make the checks of `/readyz`; the service is ready if no result is a ``problem``."""
    settings = stores.settings
    return [
        _check_server("queue server", lambda: _queue_server(stores.client)),
        _check_server(
            "cache server", lambda: Check("cache server", "ok", f"{memory_usage(stores.cache.client.info())} in use.")
        ),
        _check_server("workers", lambda: _workers(stores.client)),
        records_check(stores),
        *disk_checks(settings),
        *([] if stores.files.bucket.is_local else [_object_store(stores.files)]),
    ]


def records_check(stores: Stores) -> Check:
    """Check that neither records nor files are lost (`worker.storage.mark`); only warn if the store does not answer."""
    state: State = "problem"
    try:
        loss = stores.mark.find_loss(MAX_CHECK_AGE_SECONDS)
    except ProblemError as error:
        state, loss = "warning", error
    except redis.RedisError as error:
        return Check.from_problem(RECORDS, redis_problem(error))
    if loss is not None:
        return Check.from_problem(RECORDS, loss.problem, state)
    return Check(RECORDS, "ok", "The records in the queue's Redis and the mark beside their files belong together.")


def _workers(client: redis.Redis) -> Check:
    """Return the check "workers": a problem if no worker has sent a heartbeat lately, otherwise how many are busy."""
    if workers := live_workers(client):
        return Check("workers", "ok", f"{len(workers)} alive, {sum(worker.busy > 0 for worker in workers)} busy.")
    return Check(
        "workers", "problem", "No worker is alive.", "Start one with `glle worker`, or read its log.", "no-workers"
    )


def _check_server(name: str, check: Callable[[], Check]) -> Check:
    """Return `check()`; if a Redis server does not answer, return a problem as the result of the check `name`."""
    try:
        return check()
    except redis.RedisError as error:
        return Check.from_problem(name, redis_problem(error))


def _object_store(files: ObjectFiles) -> Check:
    """Check that the object store of the files answers; if not, only warn, because many requests do not need files."""
    try:
        files.bucket.probe()
    except ProblemError as error:
        return Check.from_problem(OBJECT_STORE, error.problem, "warning")
    return Check(OBJECT_STORE, "ok", "The object store answers.")


def _queue_server(client: redis.Redis) -> Check:
    """Check, also by a test write, that the queue's Redis has memory for new jobs and evicts nothing.

    Raises `redis.RedisError`.
    """
    info = client.info("memory")
    name, policy = "queue server", info.get("maxmemory_policy", UNKNOWN)
    if policy not in {"noeviction", UNKNOWN}:
        detail = f"The eviction policy of the queue server is {policy}: it would delete tasks and records when full."
        remedy = "Set maxmemory-policy noeviction on the server of GLLE_REDIS_URL; use another server as the cache."
        return Check(name, "problem", detail, remedy, "queue-evicts")
    if (share := free_space.memory_share(info)) is not None and share > free_space.HIGH_WATER:
        state: State = "problem" if share > FULL else "warning"
        detail = f"{memory_usage(info)} in use: new work is refused."
        remedy = "Raise GLLE_QUEUE_BYTES (or its maxmemory), or lower GLLE_JOB_TTL or `records` in GLLE_QUOTAS."
        return Check(name, state, detail, remedy, "redis-full")
    _probe_server(client, int(time.monotonic() / PROBE_SECONDS))
    return Check(name, "ok", f"{memory_usage(info)} in use, policy {policy}.")


@lru_cache(8)
def _probe_server(client: redis.Redis, period: int) -> None:
    """Make a test write to a server, at most once in each period of `PROBE_SECONDS`; `period` is its number.

    `lru_cache` remembers a success for the rest of the period, but no error: a failed write is tried again.
    """
    client.set(PROBE, period, ex=PROBE_TTL)


def disk_checks(settings: Settings) -> list[Check]:
    """Return the results of the checks of the data folder and of its disk."""
    return [data_folder(Path(settings.data_dir)), disk_space(settings)]


def data_folder(folder: Path) -> Check:
    """Check, by a test write, that files can be written to the data folder, or that the folder can be created."""
    name, nearest = "data folder", nearest_existing(folder)
    try:
        _probe_folder(nearest, int(time.monotonic() / PROBE_SECONDS))
    except OSError as error:
        detail = f"The folder {folder} cannot be written: {error.strerror}."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return Check(name, "problem", detail, DISK_REMEDY, "storage-full")
        remedy = "Give the API's user write permission, or set GLLE_DATA_DIR to a folder that the user can write."
        return Check(name, "problem", detail, remedy, "data-folder-read-only")
    return Check(name, "ok", f"{folder} can be written.")


@lru_cache(8)
def _probe_folder(folder: Path, period: int) -> None:
    """Make a test write to a folder, at most once in each period of `PROBE_SECONDS`; `period` is its number.

    `lru_cache` remembers a success for the rest of the period, but no error: a failed write is tried again.
    """
    del period
    probe(folder)


def disk_space(settings: Settings) -> Check:
    """Check that the disk has space for the log of the embedded queue server; warn if uploads are refused."""
    name, free = "disk space", free_bytes(Path(settings.data_dir))
    if (refusal := disk_refusal(settings)) is not None:
        return Check.from_problem(name, refusal.problem)
    if free < disk_reserve(Path(settings.data_dir)):
        return Check(name, "warning", f"{free:,} bytes are free: uploads are refused.", DISK_REMEDY, "storage-full")
    return Check(name, "ok", f"{free:,} bytes are free.")


def memory_usage(info: dict[str, Any]) -> str:
    """Return used and maximum memory of a Redis server, from its INFO, as text such as ``1,000 of 2,000 bytes``."""
    limit, used = int(info.get("maxmemory", 0)), info.get("used_memory")
    return f"{UNKNOWN if used is None else f'{int(used):,}'} of {f'{limit:,}' if limit else 'unlimited'} bytes"
