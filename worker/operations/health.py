"""How a deployment is: its servers, queues, workers and disk, each as a check with a remedy."""

from __future__ import annotations

import errno
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import redis

from worker.base.numerics import kind_of
from worker.base.problems import ProblemError
from worker.base.versions import numbers_of_queue
from worker.jobs import priority_scripts
from worker.jobs.live_workers import WorkerState, own_queues, workers_of
from worker.jobs.rq_types import NAME
from worker.records.ids import text
from worker.storage import free_space
from worker.storage.free_space import disk_refusal, free_bytes, nearest_existing, probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore
    from worker.stores import Stores

QUEUES = (NAME,)  # that are looked at whether or not a worker of theirs was ever seen
_LOOKED_AT = 200  # of the waiting tasks, the first that came, among which the oldest is looked for

FULL = 0.98  # of the queue server's memory: soon workers cannot register, so the service is not ready
PROBE_SECONDS = 1.0  # of a disk: anyone may ask /readyz, and each write is synchronised

KIND_REMEDY = (
    "Start a worker of that kind (the pinned one needs numba: pip install 'glle[fast]'); "
    "or fit the posterior again: it gets an id of a live kind."
)
UNTOLD = "unknown"  # what a managed server does not say of itself

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and what to do about it.

    Parameters
    ----------
    code
        The stable name of what is wrong, as in problem+json; empty when all is well.

    """

    name: str
    state: State
    detail: str
    remedy: str = ""
    code: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class QueueState:
    """A queue: what waits in it, since when, and who works on it."""

    name: str
    length: int
    oldest_seconds: float
    workers: tuple[WorkerState, ...]

    @property
    def busy(self) -> int:
        """How many of its workers work."""
        return sum(worker.busy for worker in self.workers)

    @property
    def numbers(self) -> str:
        """The numbers of its workers; empty for another version's queue."""
        return numbers_of_queue(self.name) or ""

    @property
    def is_pinned(self) -> bool:
        """Whether its workers are of the pinned numerics kind."""
        return not kind_of(self.numbers)


def queue_states(here: Stores, names: Sequence[str] | None = None) -> list[QueueState]:
    """Return the queues of these names, by default this version's; raises `redis.RedisError`.

    Of a numerics kind other than the pinned one the queue is left out where no worker lives and no task waits.
    """
    if names is not None:
        return [_queue_state(here, name) for name in names]
    kinds = [_queue_state(here, name) for name in own_queues(here.client) if name not in QUEUES]
    return [*(_queue_state(here, name) for name in QUEUES), *(one for one in kinds if one.workers or one.length)]


def other_queues(here: Stores) -> list[str]:
    """Return the names of the queues that other versions made; raises `redis.RedisError`."""
    found = {text(raw).removeprefix("rq:queue:") for raw in here.client.smembers("rq:queues")}
    return sorted(found - {*QUEUES, *own_queues(here.client)})


def _queue_state(here: Stores, name: str) -> QueueState:
    now = datetime.now(UTC)
    key = f"rq:queue:{name}"
    length = priority_scripts.length(here.client, key)
    with here.client.pipeline(transaction=False) as together:
        for id_ in priority_scripts.waiting(here.client, key, _LOOKED_AT):
            together.hget(f"{priority_scripts.TASKS}{id_}", "enqueued_at")
        since = [datetime.fromisoformat(text(raw)) for raw in together.execute() if raw is not None]
    oldest = max(((now - at).total_seconds() for at in since), default=0.0)
    return QueueState(name, length, max(0.0, oldest), workers_of(here.client, here.settings, name))


def readiness(here: Stores) -> list[Check]:
    """Return what must be well before the service can work."""
    return [
        _answering("queue server", lambda: _queue_server(here.client.info("memory"), here.settings.queue_high_water)),
        _answering("cache server", lambda: Check("cache server", "ok", f"{used(here.cache.info())} in use.")),
        *_workers_of_queues(here),
        data_folder(Path(here.settings.data_dir)),
        disk_space(here.settings),
        *([] if here.cache.objects is None else [_object_store(here.cache.objects)]),
    ]


def _workers_of_queues(here: Stores) -> list[Check]:
    """Check that each queue has a worker; in place of a pinned worker one of another numerics kind is as good."""
    try:
        states = queue_states(here)
    except redis.RedisError as error:
        return [_away(f"workers of {name}", error) for name in QUEUES]
    is_served = any(state.workers for state in states if state.name not in QUEUES)
    return [_workers(state, is_served=(is_served and state.name == NAME) or not state.is_pinned) for state in states]


def _answering(name: str, look: Callable[[], Check]) -> Check:
    """Return a check, or that its server does not answer."""
    try:
        return look()
    except redis.RedisError as error:
        return _away(name, error)


def _away(name: str, error: redis.RedisError) -> Check:
    remedy = "Try again in some seconds; if it stays, look at the servers behind GLLE_*_URL."
    detail = f"A Redis server does not answer as it should ({type(error).__name__})."
    return Check(name, "problem", detail, remedy, "redis-unavailable")


def _object_store(objects: ObjectStore) -> Check:
    """Check that the store answers; away, it is no reason to send requests elsewhere: most need it not."""
    name = "object store"
    try:
        objects.bucket.probe()
    except ProblemError as error:
        return Check(name, "warning", error.problem.detail, error.problem.remedy, error.problem.code)
    return Check(name, "ok", "It answers.")


def _queue_server(info: dict[str, Any], high_water: float) -> Check:
    policy = info.get("maxmemory_policy", UNTOLD)
    if policy not in {"noeviction", UNTOLD}:
        return Check(
            "queue server",
            "problem",
            f"Its policy is {policy}: it would drop tasks and records when its memory is full.",
            "Set maxmemory-policy noeviction on the server of GLLE_REDIS_URL; the cache is another server.",
            "queue-evicts",
        )
    if (in_use := free_space.memory_share(info)) is not None and in_use > high_water:
        return Check(
            "queue server",
            "problem" if in_use > FULL else "warning",
            f"{used(info)} in use: new work is refused.",
            "Raise GLLE_QUEUE_BYTES (or its maxmemory), or lower GLLE_QUOTA_RECORDS, GLLE_MAX_JOBS or GLLE_JOB_TTL.",
            "redis-full",
        )
    return Check("queue server", "ok", f"{used(info)} in use, policy {policy}.")


def _workers(queue: QueueState, *, is_served: bool) -> Check:
    """Check the workers of a queue; `is_served`: the service works without them, with those of another queue."""
    name = f"workers of {queue.name}"
    if not queue.workers and is_served:
        detail = f"No worker of numerics kind {queue.numbers} is alive; {queue.length} tasks wait for one."
        return Check(name, "warning" if queue.length else "ok", detail, KIND_REMEDY if queue.length else "")
    if not queue.workers:
        return Check(
            name, "problem", "No worker is alive.", "Start one: `glle worker`, or look at its log.", "no-workers"
        )
    told = f"{len(queue.workers)} alive, {queue.busy} busy; {queue.length} tasks wait."
    return Check(name, "ok", told)


def data_folder(folder: Path) -> Check:
    """Check by writing that data sets can be written, or their folder made."""
    name, nearest = "data folder", nearest_existing(folder)
    try:
        _probed(nearest, int(time.monotonic() / PROBE_SECONDS))
    except OSError as error:
        detail = f"{folder} cannot be written: {error.strerror}."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "Delete data sets that are no longer needed, or enlarge the disk of GLLE_DATA_DIR."
            return Check(name, "problem", detail, remedy, "storage-full")
        remedy = "Give the API's user the right to write there, or set GLLE_DATA_DIR to a folder where it has it."
        return Check(name, "problem", detail, remedy, "data-folder-read-only")
    return Check(name, "ok", f"{folder} can be written.")


@lru_cache(8)
def _probed(folder: Path, period: int) -> None:
    """Write in a folder once a period, however often a probe comes; a failure is looked at again each time."""
    del period
    probe(folder)


def disk_space(settings: Settings) -> Check:
    """Check that uploads, and the embedded queue server, have room."""
    name, free = "disk space", free_bytes(Path(settings.data_dir))
    if (refusal := disk_refusal(settings)) is not None:
        problem = refusal.problem
        return Check(name, "problem", problem.detail, problem.remedy, problem.code)
    if free < settings.disk_reserve:
        remedy = "Delete data sets that are no longer needed, or enlarge the disk of GLLE_DATA_DIR."
        return Check(name, "warning", f"{free:,} bytes are free: uploads are refused.", remedy, "storage-full")
    return Check(name, "ok", f"{free:,} bytes are free.")


def used(info: dict[str, Any]) -> str:
    """Return how much of a server's memory is in use, in words."""
    most, is_used = int(info.get("maxmemory", 0)), info.get("used_memory")
    return f"{UNTOLD if is_used is None else f'{int(is_used):,}'} of {f'{most:,}' if most else 'unlimited'} bytes"
