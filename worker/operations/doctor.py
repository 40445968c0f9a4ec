"""The checks of `glle doctor`: those of /readyz, and more on servers, workers, object store and engine."""

from __future__ import annotations

import secrets
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import redis
from rq import Worker as RqWorker

import glle_engine
from glle_engine import manifolds
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.clock import clock_skew
from worker.base.memory import worker_need
from worker.base.problems import ProblemError
from worker.base.settings import shared_values, show_size
from worker.jobs.rq_types import QUEUES
from worker.observability.live_workers import live_workers
from worker.operations.health import OBJECT_STORE, UNKNOWN, Check, State, disk_checks, queue_states, readiness
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from worker.base.settings import Settings
    from worker.storage.object_store.results import ResultStore

OLDEST_REDIS = (6, 2)  # the first with BLMOVE, by which a worker takes a task
PINGS = 15
SLOW_SECONDS = 0.005  # per round trip; a cached draw takes three
SKEW_SECONDS = 1.0
LONG_WAIT_SECONDS = 60.0
MAX_UNSWEPT_DAYS = 2.0  # a sweep a day is usual
GOOD_SOLVERS = frozenset({"lanes", "lu"})
DRAW_POINTS = 300


def deployment(settings: Settings) -> Iterator[Check]:
    """Yield the checks of servers, workers, disk and engine."""
    if settings.redis_url and settings.cache_url:
        stores = Stores.connect(settings)
        try:
            yield from _servers(stores)
        finally:
            stores.close()
    else:
        if settings.redis_url or settings.cache_url:
            remedy = "Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for the embedded servers of `glle up`."
            yield Check("servers", "problem", "Only one of the two servers is configured.", remedy)
        else:
            remedy = "Check a running `glle up` with --url; elsewhere set GLLE_REDIS_URL and GLLE_CACHE_URL."
            yield Check("servers", "warning", "No server is configured, so none was checked.", remedy)
        yield from disk_checks(settings)
    yield from engine(settings)


def _servers(stores: Stores) -> Iterator[Check]:
    queue = yield from _connection("queue", stores.client, "GLLE_REDIS_URL")
    cache = yield from _connection("cache", stores.cache.client, "GLLE_CACHE_URL")
    if queue and cache:
        yield from (check for check in readiness(stores) if check.name != OBJECT_STORE)
        yield _separation(queue, cache)
    else:
        yield from disk_checks(stores.settings)
    if queue:
        has_log = bool(queue.get("aof_enabled"))
        yield _check(
            "queue persistence",
            "ok" if has_log else "warning",
            "It keeps an append-only file." if has_log else "It reports no append-only file.",
            "Set appendonly yes, or a restart loses jobs and posteriors' records.",
        )
        yield from _workers(stores)
        if stores.cache.objects is not None:
            yield from _object_store(stores.cache.objects)
    if cache:
        yield from _cache_policies(cache, stores.settings)


def _separation(queue: dict[str, Any], cache: dict[str, Any]) -> Check:
    is_same = "run_id" in queue and queue["run_id"] == cache.get("run_id")
    return _check(
        "two servers",
        "problem" if is_same else "ok",
        "Queue and cache are one server." if is_same else "Queue and cache are two servers.",
        "Start a second server for GLLE_CACHE_URL: the queue must lose nothing, the cache evicts. A second database "
        "of one server is not enough.",
    )


def _connection(name: str, client: redis.Redis, variable: str) -> Generator[Check, None, dict[str, Any] | None]:
    """Yield whether a server is recent, writable, near and in sync with this clock; return its INFO, or None."""
    try:
        info = dict(client.info())
        if info.get("cluster_enabled"):
            remedy = "Use one server, or sentinels (docs/how-to/redis.md)."
            yield Check(f"{name} connection", "problem", f"{variable} names one server of a Redis Cluster.", remedy)
            return None
        key = f"glle:doctor:{secrets.token_hex(8)}"
        client.set(key, "1", ex=10)
        client.delete(key)
        round_trip = median(_seconds(client.ping) for _ in range(PINGS))
        skew = abs(clock_skew(client))
    except redis.RedisError as error:
        remedy = f"Check {variable}, the server, and the network between."
        detail = f"It does not answer as it should: {type(error).__name__}: {error}."
        yield Check(f"{name} connection", "problem", detail, remedy)
        return None
    version = str(info["redis_version"])
    is_old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS
    yield _check(
        f"{name} connection",
        "problem" if is_old else "warning" if round_trip > SLOW_SECONDS else "ok",
        f"Version {info.get('valkey_version', version)}, {round_trip * 1000:.2f} ms per round trip.",
        f"Use Redis {'.'.join(map(str, OLDEST_REDIS))} or newer, or Valkey."
        if is_old
        else "Move the server nearer: every request and task makes several round trips.",
    )
    yield _check(
        f"{name} clock",
        "warning" if skew > SKEW_SECONDS else "ok",
        f"{skew * 1000:,.0f} ms from this machine's.",
        "Synchronise the clocks (NTP): they measure the age of a worker's last heartbeat.",
    )
    return info


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


def _workers(stores: Stores) -> Iterator[Check]:
    for state in queue_states(stores):
        yield _check(
            f"backlog of {state.name}",
            "warning" if state.oldest_seconds > LONG_WAIT_SECONDS else "ok",
            f"{state.length} wait, the oldest for {state.oldest_seconds:.0f} s; {state.running} in work.",
            "Start more workers, on this or other machines: they share the work.",
        )
    if not (workers := live_workers(stores.client)):
        return
    versions = {worker.engine for worker in workers} | {glle_engine.__version__}
    yield _check(
        "engine versions",
        "ok" if len(versions) == 1 else "warning",
        f"Workers and this command: {', '.join(sorted(versions))}.",
        "Run one version everywhere (docs/how-to/upgrades.md): another one may refuse the records of this one.",
    )
    need = worker_need(stores.settings)
    yield _check_each(
        "worker threads",
        "Not pinned:",
        [worker.name for worker in workers if worker.threads != "1"],
        "Each worker computes with one thread.",
        "Start workers with `glle worker`: several threads each compete for cores and are three times slower.",
    )
    yield _check_each(
        "worker clocks",
        "Not those of the queue's server:",
        [f"{worker.name} ({worker.skew:+.1f} s)" for worker in workers if abs(worker.skew) > SKEW_SECONDS],
        "They are the queue server's.",
        "Synchronise the clocks of these machines (NTP): deadlines and waiting times are compared with them.",
    )
    yield _check_each(
        "worker memory",
        f"Long tasks may need {show_size(need)}; less have",
        [f"{worker.name} ({show_size(worker.memory)})" for worker in workers if 0 < worker.memory < need],
        "It is enough.",
        "Give these workers more memory, or lower GLLE_METHOD_BYTES: the kernel kills tasks beyond it.",
    )
    own = shared_values(stores.settings)
    others = sorted(
        f"{worker.name} has {name}={value}, this command {own.get(name)}"
        for worker in workers
        for name, value in worker.settings.items()
        if value != own.get(name)
    )
    yield _check(
        "shared settings",
        "warning" if others else "ok",
        f"They differ: {'; '.join(others)}." if others else "Workers and this command have the same ones.",
        "Start all processes with the same values; run this command with the environment of the API.",
    )
    yield from _roles(stores.client, len(workers))


def _roles(client: redis.Redis, number: int) -> Iterator[Check]:
    """Yield whether each worker has its process for quick tasks and that for long ones."""
    for queue in QUEUES:
        takers = sum(queue == worker.queue_names()[0] for worker in RqWorker.all(client))
        yield _check(
            f"takers of {queue}",
            "ok" if takers >= number else "warning" if takers else "problem",
            f"{takers} of {number} workers take its tasks.",
            "Read the workers' log: a process that ends at its start is replaced, again and again.",
        )


def _object_store(objects: ResultStore) -> Iterator[Check]:
    """Yield whether objects can be written, read and removed, and whether the store is swept."""
    name, path, data = OBJECT_STORE, f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
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


def _check_each(name: str, problem: str, faulty: list[str], good: str, remedy: str) -> Check:
    """Return a check of the workers: a warning that names the faulty ones, or ok."""
    if not faulty:
        return _check(name, "ok", good, remedy)
    return _check(name, "warning", f"{problem} {', '.join(faulty)}.", remedy)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
