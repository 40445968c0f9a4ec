"""Health of a deployment: servers, queues, workers and disk, each as a check with a remedy."""

from __future__ import annotations

import errno
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import redis

from worker.base.numerics import kind_of
from worker.base.problems import ProblemError
from worker.base.versions import long_queue, numbers_of_queue, short_queue
from worker.connections.event_loop import in_thread
from worker.jobs import priority_scripts
from worker.jobs.rq_types import NAME, script_keys
from worker.observability.live_workers import WorkerState, own_queues, workers_of
from worker.records.ids import text
from worker.storage import free_space
from worker.storage.free_space import disk_refusal, free_bytes, nearest_existing, probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores

QUEUES = (NAME,)  # always checked, even if they never had a worker
_MAX_READ = 200  # waiting tasks whose age is read, the first to arrive

FULL = 0.98  # of the queue server's memory: beyond it workers cannot register, so the service is not ready
PROBE_SECONDS = 1.0  # between two writes to a disk, because /readyz is public and each write is synchronised

KIND_REMEDY = (
    "Start a worker of that kind (the pinned one needs numba: pip install 'glle[fast]'); "
    "or fit the posterior again: it gets an id of a live kind."
)
DISK_REMEDY = "Delete data sets that are no longer needed, or enlarge the disk of GLLE_DATA_DIR."
UNKNOWN = "unknown"  # for facts that a managed server does not report

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    code: str = ""  # of a problem, as in problem+json

    def to_dict(self) -> dict[str, str]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class QueueState:
    """The waiting tasks of a numerics kind, long and short, and its live workers."""

    name: str
    length: int
    oldest_seconds: float
    workers: tuple[WorkerState, ...]

    @property
    def busy(self) -> int:
        """The number of busy workers."""
        return sum(worker.busy for worker in self.workers)

    @property
    def numbers(self) -> str:
        """The numbers of its workers; empty for another version's queue."""
        return numbers_of_queue(self.name) or ""

    @property
    def is_pinned(self) -> bool:
        """Whether its workers are of the pinned numerics kind."""
        return not kind_of(self.numbers)


def queue_states(stores: Stores, names: Sequence[str] | None = None) -> list[QueueState]:
    """Return the states of these queues, by default of this version's; raises `redis.RedisError`.

    The default leaves out queues of other numerics kinds than the pinned one without live workers and waiting tasks.
    """
    if names is not None:
        return [_queue_state(stores, name) for name in names]
    kinds = [_queue_state(stores, name) for name in own_queues(stores.client) if name not in QUEUES]
    pinned = [_queue_state(stores, name) for name in QUEUES]
    return [*pinned, *(state for state in kinds if state.workers or state.length)]


def other_queues(stores: Stores) -> list[str]:
    """Return the names of other versions' queues; raises `redis.RedisError`."""
    names = {long_queue(text(raw).removeprefix("rq:queue:")) for raw in stores.client.smembers("rq:queues")}
    return sorted(names - {*QUEUES, *own_queues(stores.client)})


def _queue_state(stores: Stores, name: str) -> QueueState:
    now = datetime.now(UTC)
    keys = [script_keys(queue)[0] for queue in (name, short_queue(name))]
    length = sum(priority_scripts.length(stores.client, key) for key in keys)
    with stores.client.pipeline(transaction=False) as pipeline:
        for id_ in chain.from_iterable(priority_scripts.waiting(stores.client, key, _MAX_READ) for key in keys):
            pipeline.hget(f"{priority_scripts.TASKS}{id_}", "enqueued_at")
        times = [datetime.fromisoformat(text(raw)) for raw in pipeline.execute() if raw is not None]
    oldest = max(((now - enqueued).total_seconds() for enqueued in times), default=0.0)
    return QueueState(name, length, max(0.0, oldest), workers_of(stores.client, stores.settings, name))


def readiness(stores: Stores) -> list[Check]:
    """Return the checks that must pass before the service can work."""
    settings, objects = stores.settings, stores.cache.objects
    return [
        _server("queue server", lambda: _queue_server(stores.client.info("memory"), settings.queue_high_water)),
        _server("cache server", lambda: Check("cache server", "ok", f"{memory_usage(stores.cache.info())} in use.")),
        *_workers_of_queues(stores),
        in_thread(data_folder, Path(settings.data_dir)),
        in_thread(disk_space, settings),
        *([] if objects is None else [in_thread(_object_store, objects)]),
    ]


def _workers_of_queues(stores: Stores) -> list[Check]:
    """Check that each queue has a worker; a worker of another numerics kind may replace a pinned one."""
    try:
        states = queue_states(stores)
    except redis.RedisError as error:
        return [_unavailable(f"workers of {name}", error) for name in QUEUES]
    is_served = any(state.workers for state in states if state.name not in QUEUES)
    return [_workers(state, is_served=(is_served and state.name == NAME) or not state.is_pinned) for state in states]


def _server(name: str, check: Callable[[], Check]) -> Check:
    """Return a check, or a problem if its server does not answer."""
    try:
        return check()
    except redis.RedisError as error:
        return _unavailable(name, error)


def _unavailable(name: str, error: redis.RedisError) -> Check:
    remedy = "Try again in some seconds; if the problem persists, check the servers behind GLLE_*_URL."
    detail = f"A Redis server does not answer as it should ({type(error).__name__})."
    return Check(name, "problem", detail, remedy, "redis-unavailable")


def _object_store(objects: ObjectStore) -> Check:
    """Check that the store answers; a failure is a warning, because most requests do not need it."""
    name = "object store"
    try:
        objects.bucket.probe()
    except ProblemError as error:
        return Check(name, "warning", error.problem.detail, error.problem.remedy, error.problem.code)
    return Check(name, "ok", "It answers.")


def _queue_server(info: dict[str, Any], high_water: float) -> Check:
    name, policy = "queue server", info.get("maxmemory_policy", UNKNOWN)
    if policy not in {"noeviction", UNKNOWN}:
        detail = f"Its policy is {policy}: it would drop tasks and records when its memory is full."
        remedy = "Set maxmemory-policy noeviction on the server of GLLE_REDIS_URL; the cache is another server."
        return Check(name, "problem", detail, remedy, "queue-evicts")
    if (share := free_space.memory_share(info)) is not None and share > high_water:
        state: State = "problem" if share > FULL else "warning"
        detail = f"{memory_usage(info)} in use: new work is refused."
        remedy = (
            "Raise GLLE_QUEUE_BYTES (or its maxmemory), or lower GLLE_QUOTA_RECORDS, GLLE_MAX_JOBS or GLLE_JOB_TTL."
        )
        return Check(name, state, detail, remedy, "redis-full")
    return Check(name, "ok", f"{memory_usage(info)} in use, policy {policy}.")


def _workers(queue: QueueState, *, is_served: bool) -> Check:
    """Check the workers of a queue; `is_served`: workers of another queue keep the service working."""
    name = f"workers of {queue.name}"
    if queue.workers:
        detail = f"{len(queue.workers)} alive, {queue.busy} busy; {queue.length} tasks wait."
        return Check(name, "ok", detail)
    if is_served:
        detail = f"No worker of numerics kind {queue.numbers} is alive; {queue.length} tasks wait for one."
        return Check(name, "warning" if queue.length else "ok", detail, KIND_REMEDY if queue.length else "")
    return Check(name, "problem", "No worker is alive.", "Start one with `glle worker`, or read its log.", "no-workers")


def data_folder(folder: Path) -> Check:
    """Check by a write that data sets can be written, or their folder made."""
    name, nearest = "data folder", nearest_existing(folder)
    try:
        _probed(nearest, int(time.monotonic() / PROBE_SECONDS))
    except OSError as error:
        detail = f"{folder} cannot be written: {error.strerror}."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return Check(name, "problem", detail, DISK_REMEDY, "storage-full")
        remedy = "Give the API's user write permission, or set GLLE_DATA_DIR to a folder that the user can write."
        return Check(name, "problem", detail, remedy, "data-folder-read-only")
    return Check(name, "ok", f"{folder} can be written.")


@lru_cache(8)
def _probed(folder: Path, period: int) -> None:
    """Write to a folder once per period; failures are not cached."""
    del period
    probe(folder)


def disk_space(settings: Settings) -> Check:
    """Check that uploads and the embedded queue server have disk space."""
    name, free = "disk space", free_bytes(Path(settings.data_dir))
    if (refusal := disk_refusal(settings)) is not None:
        problem = refusal.problem
        return Check(name, "problem", problem.detail, problem.remedy, problem.code)
    if free < settings.disk_reserve:
        return Check(name, "warning", f"{free:,} bytes are free: uploads are refused.", DISK_REMEDY, "storage-full")
    return Check(name, "ok", f"{free:,} bytes are free.")


def memory_usage(info: dict[str, Any]) -> str:
    """Return the used and maximum memory of a server as text."""
    limit, used = int(info.get("maxmemory", 0)), info.get("used_memory")
    return f"{UNKNOWN if used is None else f'{int(used):,}'} of {f'{limit:,}' if limit else 'unlimited'} bytes"
