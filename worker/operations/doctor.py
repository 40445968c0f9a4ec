"""What `glle doctor` looks at: servers, workers, disk and engine, each with what to do about it."""

from __future__ import annotations

import secrets
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import redis

import glle_engine
from glle_engine import manifolds
from glle_engine.posterior.fingerprint import PINNED, fingerprint, numerics_kind
from worker.base.problems import ProblemError
from worker.operations.health import (
    KIND_REMEDY,
    UNTOLD,
    Check,
    QueueState,
    data_folder,
    other_queues,
    queue_states,
    used,
)
from worker.records.ids import text
from worker.storage.free_space import free_bytes
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore

OLDEST_REDIS = (6, 2)  # BLMOVE, by which a worker takes a task
PINGS = 15
SLOW_SECONDS = 0.005  # a round trip; a cached draw takes three
SKEW_SECONDS = 1.0
LONG_WAIT_SECONDS = 60.0
FULL = 0.9
LITTLE_BYTES, TOO_LITTLE_BYTES = 2**30, 100 * 2**20
GOOD_SOLVERS = frozenset({"lanes", "lu"})
DRAW_POINTS = 300

State = Literal["ok", "warning", "problem"]


def deployment(settings: Settings) -> Iterator[Check]:
    """Yield the checks of servers, workers, disk and engine."""
    yield from _servers(settings)
    yield from disk(Path(settings.data_dir))
    yield from engine()


def _servers(settings: Settings) -> Iterator[Check]:
    if not settings.redis_url or not settings.cache_url:
        if settings.redis_url or settings.cache_url:
            remedy = "Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for the embedded servers of `glle up`."
            yield Check("servers", "problem", "Only one of the two servers is named.", remedy)
        else:
            remedy = "Look at a running `glle up` with --url; elsewhere set GLLE_REDIS_URL and GLLE_CACHE_URL."
            yield Check("servers", "warning", "No servers are named, so none was looked at.", remedy)
        return
    here = Stores.connect(settings)
    try:
        queue = yield from _server("queue server", here.client, "GLLE_REDIS_URL")
        cache = yield from _server("cache server", here.cache.client, "GLLE_CACHE_URL")
        if queue:
            yield from _queue_policies(queue)
        if cache:
            yield from _cache_policies(cache, settings)
        if queue and cache:
            yield _different(queue, cache)
        if queue:
            yield from _workers(here)
        if queue and here.cache.objects is not None:
            yield from _object_store(here.cache.objects)
    finally:
        here.close()


def _server(name: str, client: redis.Redis, variable: str) -> Generator[Check, None, dict[str, Any] | None]:
    """Yield whether a server answers, can be written, is near and has the right time; return its INFO, if any."""
    try:
        info = dict(client.info())
        if info.get("cluster_enabled") and isinstance(client, redis.Redis):
            yield _of_a_cluster(name, variable)
            return None
        key = f"glle:doctor:{secrets.token_hex(8)}"
        client.set(key, "1", ex=10)
        client.delete(key)
        took = median(_seconds(client.ping) for _ in range(PINGS))
        before = time.time()
        seconds, micro = client.time()
        skew = (before + time.time()) / 2 - (seconds + micro / 1e6)
    except redis.RedisError as error:
        remedy = f"Look at {variable}, at the server, and at the network between."
        yield Check(name, "problem", f"It does not do as it should: {type(error).__name__}: {error}.", remedy)
        return None
    version = str(info["redis_version"])
    told = f"Version {info.get('valkey_version', version)}, {used(info)} in use, {took * 1000:.2f} ms a round trip."
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        needed = ".".join(map(str, OLDEST_REDIS))
        yield Check(name, "problem", told, f"Use Redis {needed} or newer, or Valkey.")
    elif took > SLOW_SECONDS:
        yield Check(name, "warning", told, "Put the server nearer: every request and task makes several round trips.")
    else:
        yield Check(name, "ok", told)
    if abs(skew) > SKEW_SECONDS:
        remedy = "Synchronise the clocks (NTP): the age of a worker's last sign of life is told by them."
        yield Check(f"{name}'s clock", "warning", f"It differs by {abs(skew):.1f} s from this machine's.", remedy)
    else:
        yield Check(f"{name}'s clock", "ok", f"{abs(skew) * 1000:.0f} ms from this machine's.")
    return info


def _of_a_cluster(name: str, variable: str) -> Check:
    remedy = "Write its URL as redis+cluster://host1:6379,host2:6379."
    if variable == "GLLE_REDIS_URL":
        remedy = "Use one server, or one behind sentinels: a task and its job change together (docs/how-to/redis.md)."
    return Check(name, "problem", f"{variable} names one server of a Redis Cluster.", remedy)


def _queue_policies(info: dict[str, Any]) -> Iterator[Check]:
    policy, most = info.get("maxmemory_policy", UNTOLD), int(info.get("maxmemory", 0))
    yield _judged(
        "queue policy",
        "ok" if policy == "noeviction" else "warning" if policy == UNTOLD else "problem",
        f"maxmemory-policy {policy}.",
        "Set maxmemory-policy noeviction there: any other loses tasks and records when memory is full.",
    )
    yield _judged(
        "queue persistence",
        "ok" if info.get("aof_enabled") else "warning",
        "It keeps an append-only file." if info.get("aof_enabled") else "It tells of no append-only file.",
        "Set appendonly yes there, or jobs and posteriors' records are gone when it restarts.",
    )
    full = most > 0 and int(info.get("used_memory", 0)) > FULL * most
    yield _judged(
        "queue memory",
        "warning" if full else "ok",
        f"{used(info)} in use.",
        "Give it more memory, or keep job records for less long (GLLE_JOB_TTL): full, it refuses new jobs.",
    )


def _cache_policies(info: dict[str, Any], settings: Settings) -> Iterator[Check]:
    policy, most = str(info.get("maxmemory_policy", UNTOLD)), int(info.get("maxmemory", 0))
    evicts = policy != "noeviction"
    yield _judged(
        "cache policy",
        "ok" if policy in {"allkeys-lru", "allkeys-lfu"} else "warning" if evicts else "problem",
        f"maxmemory-policy {policy}.",
        "Set maxmemory-policy allkeys-lru there: "
        + ("the arrays used last are to stay." if evicts else "full, it refuses arrays, and jobs fail."),
    )
    if most == 0:
        yield Check("cache memory", "warning", "Its memory has no limit.", "Set maxmemory there to GLLE_CACHE_BYTES.")
    else:
        yield _judged(
            "cache memory",
            "warning" if most < settings.cache_bytes else "ok",
            f"maxmemory {most:,}; GLLE_CACHE_BYTES is {settings.cache_bytes:,}.",
            "Make GLLE_CACHE_BYTES no more than the server's maxmemory: a value of half of it would evict itself.",
        )


def _different(queue: dict[str, Any], cache: dict[str, Any]) -> Check:
    same = "run_id" in queue and queue["run_id"] == cache.get("run_id")
    return _judged(
        "two servers",
        "problem" if same else "ok",
        "Queue and cache are one server." if same else "Queue and cache are two servers.",
        "Start a second server for GLLE_CACHE_URL: one may lose nothing, the other makes room. Databases do not help.",
    )


def _workers(here: Stores) -> Iterator[Check]:
    states = queue_states(here)
    is_served = any(state.workers for state in states)
    for state in states:
        yield _judged(
            f"workers of {state.name}",
            "ok" if state.workers else "warning" if is_served else "problem",
            f"{len(state.workers)} alive, {state.busy} busy.",
            KIND_REMEDY if is_served else "Start one: `glle worker`, or look at its log.",
        )
        yield _judged(
            f"backlog of {state.name}",
            "warning" if state.oldest_seconds > LONG_WAIT_SECONDS else "ok",
            f"{state.length} tasks wait, the oldest for {state.oldest_seconds:.0f} s.",
            "Start more workers, on this or other machines: they share the work.",
        )
    yield from _other_queues(here)
    yield from _kinds(states)
    names = sorted({worker.name for state in states for worker in state.workers})
    if not names:
        return
    fields = [here.client.hmget(f"rq:worker:{name}", "engine", "threads") for name in names]
    versions = {text(engine) for engine, _ in fields if engine is not None} | {glle_engine.__version__}
    yield _judged(
        "engine versions",
        "ok" if len(versions) == 1 else "warning",
        f"Workers and this command: {', '.join(sorted(versions))}.",
        "Bring all to one version (docs/how-to/upgrades.md): the older ones refuse what only the newer can read.",
    )
    unpinned = [name for name, (_, threads) in zip(names, fields, strict=True) if threads != b"1"]
    yield _judged(
        "worker threads",
        "warning" if unpinned else "ok",
        f"Not pinned: {', '.join(unpinned)}." if unpinned else "Each worker computes with one thread.",
        "Start workers by `glle worker`: several threads each get in each other's way, three times slower.",
    )


def _kinds(states: list[QueueState]) -> Iterator[Check]:
    """Yield whether all live workers are of one numerics kind, the pinned one."""
    live = {state.numbers: len(state.workers) for state in states if state.workers}
    if not live:
        return
    pinned = all(state.is_pinned for state in states if state.workers)
    counted = ", ".join(f"{count} of {numbers}" for numbers, count in sorted(live.items()))
    yield _judged(
        "numerics kinds",
        "ok" if pinned else "problem" if len(live) > 1 else "warning",
        f"Live workers: {counted}." + ("" if pinned else " Reference results of a kind with `+` differ in bits."),
        "Install numba where these workers run (pip install 'glle[fast]'), with the versions of requirements/dev.lock, and "
        "restart them: until then they take no work of the pinned kind, and their results have separate ids.",
    )


def _other_queues(here: Stores) -> Iterator[Check]:
    """Yield a warning of each queue of another version in which tasks wait."""
    for state in queue_states(here, other_queues(here)):
        if state.length:
            yield Check(
                f"backlog of {state.name}",
                "warning",
                f"It is another version's: {state.length} tasks wait, {len(state.workers)} workers are alive.",
                "Keep workers of that version until it is empty; see docs/how-to/upgrades.md.",
            )


def _object_store(objects: ObjectStore) -> Iterator[Check]:
    """Yield whether the object store can be written, read and emptied, and whether it is swept."""
    name, path, data = "object store", f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    started = time.perf_counter()
    try:
        objects.bucket.write(path, [data], len(data))
        read = objects.bucket.read(path, 0, len(data))
        objects.bucket.remove(path)
    except ProblemError as error:
        yield Check(name, "problem", error.problem.detail, error.problem.remedy, error.problem.code)
        return
    took = 1000 * (time.perf_counter() - started)
    count, nbytes, condemned = objects.index.sums()
    yield _judged(
        name,
        "ok" if read == data else "problem",
        f"{count:,} objects of {nbytes:,} bytes; written, read and removed in {took:.0f} ms.",
        "What was written is not what is read: look at what is between, and at the store.",
    )
    overdue = objects.index.overdue()
    yield _judged(
        "object store's sweep",
        "warning" if overdue or condemned else "ok",
        f"Objects of {overdue:,} posteriors or data sets have expired; {condemned:,} could not be removed before.",
        "Run `glle store sweep`, once a day by a timer.",
    )


def disk(folder: Path) -> Iterator[Check]:
    """Yield whether a data folder can be written, and the space there."""
    yield data_folder(folder)
    free = free_bytes(folder)
    yield _judged(
        "disk space",
        "problem" if free < TOO_LITTLE_BYTES else "warning" if free < LITTLE_BYTES else "ok",
        f"{free:,} bytes are free there.",
        "Delete data sets that are no longer needed, or enlarge the disk of GLLE_DATA_DIR.",
    )


def engine() -> Iterator[Check]:
    """Yield whether lanes are there, and whether a small draw here is solved by what should solve it."""
    fast = find_spec("numba") is not None
    yield _judged(
        "numba",
        "ok" if fast else "warning",
        "It is installed." if fast else "It is not installed here.",
        "pip install 'glle[fast]' where workers run: jobs of draws are some times faster.",
    )
    kind = numerics_kind()
    yield _judged(
        "numerics kind",
        "warning" if kind else "ok",
        f"Reference results here have digest {fingerprint()}; the pinned one is {PINNED}.",
        "pip install 'glle[fast]' where workers run; a worker like this command has results with separate ids.",
    )
    started = time.perf_counter()
    posterior = glle_engine.fit(manifolds.make("s_curve", DRAW_POINTS, seed=0).X)
    solver = str(posterior.draw(0).diagnostics["solver"])
    yield _judged(
        "small draw",
        "ok" if solver in GOOD_SOLVERS else "warning",
        f"Fitted and drawn in {time.perf_counter() - started:.2f} s, solved by {solver}.",
        "Look at the versions of numpy and scipy: the solvers that should do it were refused.",
    )


def _judged(name: str, state: State, detail: str, remedy: str) -> Check:
    """Return a check whose remedy is told only where it is needed."""
    return Check(name, state, detail, "" if state == "ok" else remedy)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
