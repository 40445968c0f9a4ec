"""The checks of `glle doctor`: servers, workers, disk and engine, each with a remedy."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import redis

import glle_engine
from glle_engine import manifolds
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.problems import ProblemError
from worker.observability.live_workers import live_workers
from worker.operations.health import (
    DISK_REMEDY,
    UNKNOWN,
    Check,
    State,
    data_folder,
    memory_usage,
    queue_states,
)
from worker.storage.free_space import free_bytes
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from worker.base.settings import Settings
    from worker.storage.object_store.store import ObjectStore

OLDEST_REDIS = (6, 2)  # the first with BLMOVE, by which a worker takes a task
PINGS = 15
SLOW_SECONDS = 0.005  # per round trip; a cached draw takes three
SKEW_SECONDS = 1.0
LONG_WAIT_SECONDS = 60.0
FULL = 0.9
MAX_UNSWEPT_DAYS = 2.0  # a sweep a day is usual
WARNING_BYTES, PROBLEM_BYTES = 2**30, 100 * 2**20  # of free disk space
GOOD_SOLVERS = frozenset({"lanes", "lu"})
DRAW_POINTS = 300


def deployment(settings: Settings) -> Iterator[Check]:
    """Yield the checks of servers, workers, disk and engine."""
    yield from _servers(settings)
    yield from disk(Path(settings.data_dir))
    yield from engine(settings)


def _servers(settings: Settings) -> Iterator[Check]:
    if not settings.redis_url or not settings.cache_url:
        if settings.redis_url or settings.cache_url:
            remedy = "Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for the embedded servers of `glle up`."
            yield Check("servers", "problem", "Only one of the two servers is configured.", remedy)
        else:
            remedy = "Check a running `glle up` with --url; elsewhere set GLLE_REDIS_URL and GLLE_CACHE_URL."
            yield Check("servers", "warning", "No server is configured, so none was checked.", remedy)
        return
    stores = Stores.connect(settings)
    try:
        queue = yield from _server("queue server", stores.client, "GLLE_REDIS_URL")
        cache = yield from _server("cache server", stores.cache.client, "GLLE_CACHE_URL")
        if queue:
            yield from _queue_policies(queue)
        if cache:
            yield from _cache_policies(cache, settings)
        if queue and cache:
            yield _separation(queue, cache)
        if queue:
            yield from _workers(stores)
        if queue and stores.cache.objects is not None:
            yield from _object_store(stores.cache.objects)
    finally:
        stores.close()


def _server(name: str, client: redis.Redis, variable: str) -> Generator[Check, None, dict[str, Any] | None]:
    """Yield whether a server answers, is writable, near and in sync with this clock; return its INFO, or None."""
    try:
        info = dict(client.info())
        if info.get("cluster_enabled") and isinstance(client, redis.Redis):
            remedy = "Write its URL as redis+cluster://host1:6379,host2:6379."
            if variable == "GLLE_REDIS_URL":
                remedy = "Use one server, or sentinels: a task and its job change together (docs/how-to/redis.md)."
            yield Check(name, "problem", f"{variable} names one server of a Redis Cluster.", remedy)
            return None
        key = f"glle:doctor:{secrets.token_hex(8)}"
        client.set(key, "1", ex=10)
        client.delete(key)
        round_trip = median(_seconds(client.ping) for _ in range(PINGS))
        before = time.time()
        seconds, micro = client.time()
        skew = abs((before + time.time()) / 2 - (seconds + micro / 1e6))
    except redis.RedisError as error:
        remedy = f"Check {variable}, the server, and the network between."
        yield Check(name, "problem", f"It does not answer as it should: {type(error).__name__}: {error}.", remedy)
        return None
    version = str(info["redis_version"])
    is_old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS
    state: State = "problem" if is_old else "warning" if round_trip > SLOW_SECONDS else "ok"
    yield _check(
        name,
        state,
        f"Version {info.get('valkey_version', version)}, {memory_usage(info)} in use, "
        f"{round_trip * 1000:.2f} ms per round trip.",
        f"Use Redis {'.'.join(map(str, OLDEST_REDIS))} or newer, or Valkey."
        if is_old
        else "Move the server nearer: every request and task makes several round trips.",
    )
    yield _check(
        f"{name}'s clock",
        "warning" if skew > SKEW_SECONDS else "ok",
        f"{skew * 1000:,.0f} ms from this machine's.",
        "Synchronise the clocks (NTP): they measure the age of a worker's last heartbeat.",
    )
    return info


def _queue_policies(info: dict[str, Any]) -> Iterator[Check]:
    policy, limit = info.get("maxmemory_policy", UNKNOWN), int(info.get("maxmemory", 0))
    yield _check(
        "queue policy",
        "ok" if policy == "noeviction" else "warning" if policy == UNKNOWN else "problem",
        f"maxmemory-policy {policy}.",
        "Set maxmemory-policy noeviction: any other loses tasks and records when memory is full.",
    )
    has_log = bool(info.get("aof_enabled"))
    yield _check(
        "queue persistence",
        "ok" if has_log else "warning",
        "It keeps an append-only file." if has_log else "It reports no append-only file.",
        "Set appendonly yes, or a restart loses jobs and posteriors' records.",
    )
    is_full = limit > 0 and int(info.get("used_memory", 0)) > FULL * limit
    yield _check(
        "queue memory",
        "warning" if is_full else "ok",
        f"{memory_usage(info)} in use.",
        "Give it more memory, or keep job records for a shorter time (GLLE_JOB_TTL): if full, it refuses new jobs.",
    )


def _cache_policies(info: dict[str, Any], settings: Settings) -> Iterator[Check]:
    policy, limit = str(info.get("maxmemory_policy", UNKNOWN)), int(info.get("maxmemory", 0))
    evicts = policy != "noeviction"
    yield _check(
        "cache policy",
        "ok" if policy in {"allkeys-lru", "allkeys-lfu"} else "warning" if evicts else "problem",
        f"maxmemory-policy {policy}.",
        "Set maxmemory-policy allkeys-lru: "
        + ("the arrays used last are to stay." if evicts else "if full, it refuses arrays, and jobs fail."),
    )
    if limit == 0:
        yield Check("cache memory", "warning", "Its memory has no limit.", "Set its maxmemory to GLLE_CACHE_BYTES.")
    else:
        yield _check(
            "cache memory",
            "warning" if limit < settings.cache_bytes else "ok",
            f"maxmemory {limit:,}; GLLE_CACHE_BYTES is {settings.cache_bytes:,}.",
            "Set GLLE_CACHE_BYTES to at most the server's maxmemory: a value of half of it would evict itself.",
        )


def _separation(queue: dict[str, Any], cache: dict[str, Any]) -> Check:
    is_same = "run_id" in queue and queue["run_id"] == cache.get("run_id")
    return _check(
        "two servers",
        "problem" if is_same else "ok",
        "Queue and cache are one server." if is_same else "Queue and cache are two servers.",
        "Start a second server for GLLE_CACHE_URL: the queue must lose nothing, the cache evicts. A second database "
        "of one server is not enough.",
    )


def _workers(stores: Stores) -> Iterator[Check]:
    workers = live_workers(stores.client)
    yield _check(
        "workers",
        "ok" if workers else "problem",
        f"{len(workers)} alive, {sum(worker.busy > 0 for worker in workers)} busy.",
        "Start one with `glle worker`, or read its log.",
    )
    for state in queue_states(stores):
        yield _check(
            f"backlog of {state.name}",
            "warning" if state.oldest_seconds > LONG_WAIT_SECONDS else "ok",
            f"{state.length} wait, the oldest for {state.oldest_seconds:.0f} s; {state.running} in work.",
            "Start more workers, on this or other machines: they share the work.",
        )
    if not workers:
        return
    versions = {worker.engine for worker in workers} | {glle_engine.__version__}
    yield _check(
        "engine versions",
        "ok" if len(versions) == 1 else "warning",
        f"Workers and this command: {', '.join(sorted(versions))}.",
        "Run one version everywhere (docs/how-to/upgrades.md): another one may refuse the records of this one.",
    )
    unpinned = [worker.name for worker in workers if worker.threads != "1"]
    yield _check(
        "worker threads",
        "warning" if unpinned else "ok",
        f"Not pinned: {', '.join(unpinned)}." if unpinned else "Each worker computes with one thread.",
        "Start workers with `glle worker`: several threads each compete for cores and are three times slower.",
    )


def _object_store(objects: ObjectStore) -> Iterator[Check]:
    """Yield whether objects can be written, read and removed, and whether the store is swept."""
    name, path, data = "object store", f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    started = time.perf_counter()
    try:
        objects.bucket.write(path, [data], len(data))
        read = objects.bucket.read(path, 0, len(data))
        objects.bucket.remove(path)
    except ProblemError as error:
        yield Check(name, "problem", error.problem.detail, error.problem.remedy, error.problem.code)
        return
    milliseconds = 1000 * (time.perf_counter() - started)
    count, nbytes = objects.index.sums()
    yield _check(
        name,
        "ok" if read == data else "problem",
        f"{count:,} objects of {nbytes:,} bytes; written, read and removed in {milliseconds:.0f} ms.",
        "The object read differs from the one written: check the store, and proxies before it.",
    )
    days = objects.index.unswept_seconds() / 86400
    yield _check(
        "object store's sweep",
        "warning" if days > MAX_UNSWEPT_DAYS else "ok",
        f"The last sweep, or the first object, is {days:.1f} days old.",
        "Run `glle store sweep`, once a day by a timer.",
    )


def disk(folder: Path) -> Iterator[Check]:
    """Yield whether a data folder is writable, and its free space."""
    yield data_folder(folder)
    free = free_bytes(folder)
    yield _check(
        "disk space",
        "problem" if free < PROBLEM_BYTES else "warning" if free < WARNING_BYTES else "ok",
        f"{free:,} bytes are free.",
        DISK_REMEDY,
    )


def engine(settings: Settings) -> Iterator[Check]:
    """Yield whether reference results have the deployment's bits, and whether a small draw has the expected solver."""
    expected = settings.allow_other_bits or PINNED
    yield _check(
        "fingerprint",
        "ok" if fingerprint() == expected else "warning",
        f"Reference results of this machine have the fingerprint {fingerprint()}; the deployment has {expected}.",
        "A worker does not start on this machine: install the versions of requirements/server.lock; or see "
        "docs/explanation/reproducibility.md.",
    )
    started = time.perf_counter()
    posterior = glle_engine.fit(manifolds.make("s_curve", DRAW_POINTS, seed=0).X)
    solver = str(posterior.draw(0).diagnostics["solver"])
    yield _check(
        "small draw",
        "ok" if solver in GOOD_SOLVERS else "warning",
        f"Fitted and drawn in {time.perf_counter() - started:.2f} s, solved by {solver}.",
        "Check the versions of numpy and scipy: the expected solvers were rejected.",
    )


def _check(name: str, state: State, detail: str, remedy: str) -> Check:
    """Return a check, without its remedy if the state is ok."""
    return Check(name, state, detail, "" if state == "ok" else remedy)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
