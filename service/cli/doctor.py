"""Checks of `glle doctor`: settings, servers, workers and engine of a deployment; with a URL, a small job over HTTP."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import closing, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import redis
from redis.exceptions import AuthorizationError
from rq import Worker as RqWorker

import glle_engine
from glle.cli import VARIABLES
from glle.client import Client, GlleServiceError, JobTimeoutError, Retries
from glle.transport.session import http_options
from glle_engine import manifolds
from glle_engine.posterior.fingerprint import PINNED_FINGERPRINT, fingerprint
from service.cli.data_folder import connect_stores
from service.cli.options import StartError
from service.middleware.access_policy import AccessPolicy
from worker.base.clock import clock_skew
from worker.base.memory import worker_need
from worker.base.problems import ProblemError
from worker.base.settings import SettingsError, shared_values, show_size, unknown_variables
from worker.execution.sweep import find_records_without_files
from worker.observability.live_workers import live_workers
from worker.operations import permissions
from worker.operations.embedded_redis import queue_server
from worker.operations.health import (
    DRAW_REQUESTS,
    OBJECT_STORE,
    RECORDS,
    UNKNOWN,
    Check,
    State,
    disk_checks,
    queue_states,
    readiness,
    records_check,
)
from worker.records.ids import text
from worker.records.job import QUEUES
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from glle.types import FitOptions
    from worker.base.settings import Settings

RESPONSE_SECONDS = 60.0
DRAW_SECONDS = 30.0
FIT_SECONDS = 90.0  # time limit of the test fit; it suffices for three retries after the death of a worker
# Size of the test fit: a batch task of some seconds, whose posterior has 30 MB. A much shorter task might succeed even
# on workers that are killed again and again.
POINTS, NEIGHBORS = 6000, 25
_STATE_TEXTS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}
MIN_REDIS_VERSION = (7, 0)  # the first version with ACL DRYRUN, and the oldest that was tested
PINGS = 15
# The doctor warns if a round trip to Redis takes longer than this, because a cached draw takes three round trips.
MAX_ROUND_TRIP_SECONDS = 0.005
SKEW_SECONDS = 1.0  # the doctor warns if clocks differ by more
LONG_WAIT_SECONDS = 60.0  # the doctor warns if a task or a draw has waited longer for a worker
# Solvers that compute small draws; other solvers are used only if the results of these are rejected.
GOOD_SOLVERS = frozenset({"lanes", "lu"})
DRAW_POINTS = 300
MAX_SHOWN_IDS = 5  # a message names at most this many records without files


def examine(settings: Settings, environ: Mapping[str, str], url: str | None) -> Iterator[Check]:
    """Yield all checks: of the settings, of the deployment and, unless `url` is None, of the service at `url`.

    `environ` has the environment variables, of which GLLE_KEY is the API key for the service at `url`.
    """
    misspelt = sorted(set(unknown_variables(environ)) - VARIABLES)
    if misspelt:
        remedy = "Correct or remove them. `glle settings` lists the settings."
        yield Check("settings", "warning", f"These variables are not settings: {', '.join(misspelt)}.", remedy)
    else:
        yield Check("settings", "ok", "All GLLE_* variables are settings.")
    yield access(settings)
    yield from deployment(settings)
    if url is not None:
        yield from service(url, environ.get("GLLE_KEY", ""))


def access(settings: Settings) -> Check:
    """Check that the access settings let the service start, and warn if they admit every web page."""
    try:
        warning = AccessPolicy(settings).page_warning
    except SettingsError as error:
        return Check("access", "problem", str(error), "Correct that setting: the service does not start with it.")
    if warning:
        return Check("access", "warning", warning, "Name the origins, or set GLLE_AUTH=required.")
    return Check("access", "ok", "Web pages of other origins have no access without a key, except the named ones.")


def service(url: str, key: str = "") -> Iterator[Check]:
    """Yield checks that the service at a URL is alive, ready and of this version, and computes a correct draw.

    Parameters
    ----------
    key
        API key; empty if the service requires none.

    """
    try:
        with httpx.Client(**http_options(url, key or None, RESPONSE_SECONDS)) as http:
            if (status := http.get("/livez").status_code) != httpx.codes.OK:
                remedy = "Check the URL and the proxies: another program may answer."
                yield Check("service", "problem", f"/livez answers {status}.", remedy)
                return
            yield Check("service", "ok", f"The service is alive at {url}.")
            yield _readiness(http.get("/readyz"))
        with Client(url, key, progress=False, retries=Retries(deadline=0.0), timeout=RESPONSE_SECONDS) as client:
            yield from _end_to_end(client)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:  # another program may have answered
        remedy = "Check the URL, the log of the API, and the network."
        yield Check("service", "problem", f"{url} does not answer: {type(error).__name__}: {error}.", remedy)


def _readiness(response: httpx.Response) -> Check:
    state = response.json()
    if response.status_code != httpx.codes.OK:
        return Check("ready", "problem", f"{response.status_code}: {state['detail']}", state["remedy"])
    if "workers" not in state:
        return Check("ready", "ok", "The service is ready. Set GLLE_KEY for details.")
    waiting = f"{state['queue_length']} tasks and draws wait"
    return Check("ready", "ok", f"The service is ready: {state['workers']} workers, {waiting}.")


def _end_to_end(client: Client) -> Iterator[Check]:
    """Yield checks that the service has the version of this command, completes a fit, and makes a correct draw.

    The draw is correct if it agrees to four digits with the draw that the engine on this machine makes from the same
    data.
    """
    name, work = "version", ""
    try:
        info = client.info()
        remote, local = info["versions"]["glle"], glle_engine.__version__
        remedy = "" if remote == local else "Check which version the service should run."
        yield Check(
            name,
            "ok" if remote == local else "warning",
            f"The service has version {remote}, this command {local}.",
            remedy,
        )
        seed = secrets.randbelow(2**31)  # a new seed, so that no result is cached
        points = min(POINTS, int(info["limits"]["max_points"]))
        name, work = "long task", f"A fit of {points:,} points failed. "
        spec: FitOptions = {"n_neighbors": min(NEIGHBORS, int(info["limits"]["max_neighbors"])), "noise": "auto"}
        dataset = client.synthetic("s_curve", points, seed=seed)
        try:
            started = time.perf_counter()
            posterior = client.fit(dataset, timeout=FIT_SECONDS, **spec)
            yield Check(name, "ok", f"Fitted {points:,} points in {time.perf_counter() - started:.2f} s.")
            name, work, started = "end to end", "A draw failed. ", time.perf_counter()
            draw = posterior.draw(0, timeout=DRAW_SECONDS)
            seconds = time.perf_counter() - started
        finally:
            dataset.delete(force=True)
    except JobTimeoutError as error:
        remedy = "Check the workers and their log: the queue may be long, or no worker runs."
        yield Check(name, "problem", f"{work}{error.detail}", remedy)
        return
    except GlleServiceError as error:
        remedy = error.remedy
        if error.status == httpx.codes.UNAUTHORIZED:
            name, remedy = "key", "Set GLLE_KEY to an API key of the service: `glle keys create --scope write`."
        yield Check(name, "problem", f"{work}{error.status}: {error.detail}", remedy)
        return
    local_draw = glle_engine.fit(manifolds.make("s_curve", points, seed=seed).X, **spec).draw(0).embedding
    tolerance = 1e-4 * float(np.abs(local_draw).max())
    if draw.shape == local_draw.shape and np.allclose(draw, local_draw, rtol=1e-4, atol=tolerance):
        yield Check(name, "ok", f"Drew in {seconds:.2f} s; the draw is correct.")
    else:
        remedy = "Compare the versions of glle, numpy and scipy: equal versions compute equal draws on every machine."
        yield Check(name, "problem", "The draw of the service differs from the draw of the local engine.", remedy)


def deployment(settings: Settings) -> Iterator[Check]:
    """Yield the checks of the deployment that the settings describe: its Redis servers, workers, disk and engine."""
    if settings.redis_url and settings.cache_url:
        with closing(Stores.connect(settings)) as stores:
            yield from _servers(stores)
    else:
        if settings.redis_url or settings.cache_url:
            remedy = "Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for the embedded servers of `glle up`."
            yield Check("servers", "problem", "Only one of the two servers is configured.", remedy)
        else:
            remedy = "Check a running `glle up` with --url; elsewhere set GLLE_REDIS_URL and GLLE_CACHE_URL."
            yield Check("servers", "warning", "No server is configured, so none was checked.", remedy)
            yield from _embedded(settings)
        yield from disk_checks(settings)
    yield from engine(settings)


def accept_loss(stores: Stores) -> Iterator[str]:
    """Let a service that has lost records or files start again with what is left; yield lines about the loss."""
    if (loss := stores.mark.find_loss()) is None:
        yield "Nothing is lost: the records in Redis and the stored files belong together. Nothing was changed."
        return
    yield loss.problem.detail
    stores.mark.accept_loss()
    yield "Accepted. The service starts again with what is left."
    if not stores.keys.is_guarded():
        yield "No API key is left. Create one with `glle keys create`; until then requests on loopback need none."


def _embedded(settings: Settings) -> Iterator[Check]:
    """If the data folder belongs to `glle up`, yield checks that no record and no file of a record is lost."""
    if not queue_server(settings).folder.is_dir():
        return
    try:
        with connect_stores(settings, allows_loss=True) as stores:
            checks = [records_check(stores), _files(stores)]
    except (StartError, SettingsError) as error:
        checks = [Check(RECORDS, "problem", str(error), "Run this command as the user of the service.")]
    yield from checks


def _servers(stores: Stores) -> Iterator[Check]:
    queue = yield from _connection("queue", stores.client, "GLLE_REDIS_URL", permissions.QUEUE)
    cache = yield from _connection("cache", stores.cache.client, "GLLE_CACHE_URL", permissions.CACHE)
    if queue and cache:
        yield from (check for check in readiness(stores) if check.name != OBJECT_STORE)
        yield _separation(queue, cache)
    else:
        if queue:
            yield records_check(stores)
        yield from disk_checks(stores.settings)
    if queue:
        yield _persistence(stores.client, queue)
        yield _replay(stores.client)
        yield _files(stores)
        yield from _workers(stores)
        if not stores.files.bucket.is_local:
            yield _object_store(stores)
    if cache:
        yield from _cache_policies(cache, stores.settings)


def _persistence(client: redis.Redis, info: dict[str, Any]) -> Check:
    """Check that the queue's Redis writes each change to its append-only file before it answers."""
    name = "queue persistence"
    if not info.get("aof_enabled"):
        remedy = "Set appendonly yes, or a restart loses jobs and posteriors' records."
        return Check(name, "warning", "The server reports no append-only file.", remedy)
    policy = UNKNOWN
    with suppress(redis.ResponseError):  # the documented user may not use CONFIG, and managed servers lack it
        policy = str(client.config_get("appendfsync").get("appendfsync", UNKNOWN))
    if policy == UNKNOWN:
        detail = "The server keeps an append-only file. It does not show its appendfsync, which should be always."
        return Check(name, "ok", detail)
    return _check(
        name,
        "ok" if policy == "always" else "warning",
        f"The server keeps an append-only file, with appendfsync {policy}.",
        "Set appendfsync always: otherwise a power cut loses the last seconds of what was answered.",
    )


def _replay(client: redis.Redis) -> Check:
    """Check that the queue's Redis, after a restart, can replay all commands in its append-only file.

    The server replays the file as the user `default`, and checks the permissions of this user at each EXEC. If they are
    missing, Redis skips the transaction and continues (redis/redis#14541).
    """
    name = "queue replay"
    try:
        answers = [client.acl_dryrun("default", "SET", f"{prefix}doctor", "") for prefix in permissions.QUEUE.keys]
    except redis.ResponseError as error:
        detail = f"The server does not tell the permissions of the user default ({str(error).rstrip('.')})."
        remedy = "Check that a restart of the server keeps the records (docs/how-to/storage.md)."
        return Check(name, "warning", detail, remedy)
    is_allowed = all(text(answer) == "OK" for answer in answers)
    return _check(
        name,
        "ok" if is_allowed else "problem",
        "The user default may replay the append-only file."
        if is_allowed
        else "The user default has too few permissions: a restart of the server loses all records and jobs.",
        "Write `user default off ~* &* +@all` into the server's ACL: the user has these permissions and cannot log in. "
        "Then send it ACL LOAD or restart it, before the file is rewritten (docs/how-to/storage.md).",
    )


def _files(stores: Stores) -> Check:
    """Check that every record has its file in the folder or the bucket."""
    name = "files"
    try:
        lost = find_records_without_files(stores)
    except ProblemError as error:
        return Check.from_problem(name, error.problem)
    shown = f"{', '.join(lost[:MAX_SHOWN_IDS])}{', ...' if len(lost) > MAX_SHOWN_IDS else ''}"
    return _check(
        name,
        "problem" if lost else "ok",
        f"{len(lost):,} records have no file: {shown}." if lost else "The files of all records are there.",
        "Set GLLE_DATA_DIR and GLLE_STORE_URL as for the API; restore a backup; or delete these records and make them "
        "again.",
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


def _connection(
    name: str, client: redis.Redis, variable: str, needed: permissions.Permissions
) -> Generator[Check, None, dict[str, Any] | None]:
    """Yield checks of a Redis server's permissions, version, latency and clock; return the server's INFO.

    Returns None if the server does not answer, is part of a cluster, or does not allow a command that glle needs.
    """
    try:
        if missing := needed.missing(client):
            detail = f"The user of {variable} may not use {', '.join(missing)}."
            remedy = "Add these rules to the user's line of the server's ACL (docs/how-to/storage.md)."
            yield Check(f"{name} permissions", "problem", detail, remedy)
            return None
        yield Check(f"{name} permissions", "ok", "The user may use all commands that glle needs.")
        info = dict(client.info())
        if info.get("cluster_enabled"):
            remedy = "Use one server, with replicas if you like (docs/how-to/storage.md)."
            yield Check(f"{name} connection", "problem", f"{variable} names one server of a Redis Cluster.", remedy)
            return None
        key = f"glle:doctor:{secrets.token_hex(8)}"
        client.set(key, "1", ex=10)
        client.delete(key)
        round_trip = median(_seconds(client.ping) for _ in range(PINGS))
        skew = abs(clock_skew(client))
    except redis.RedisError as error:
        remedy = f"Check {variable}, the server, and the network between."
        if isinstance(error, redis.AuthenticationError | AuthorizationError):
            remedy = f"Correct the user or the password of {variable}."
        detail = f"The server does not answer as it should: {type(error).__name__}: {str(error).rstrip('.')}."
        yield Check(f"{name} connection", "problem", detail, remedy)
        return None
    version = str(info["redis_version"])
    is_old = tuple(int(number) for number in version.split(".")[:2]) < MIN_REDIS_VERSION
    yield _check(
        f"{name} connection",
        "problem" if is_old else "warning" if round_trip > MAX_ROUND_TRIP_SECONDS else "ok",
        f"Version {info.get('valkey_version', version)}, {round_trip * 1000:.2f} ms per round trip.",
        f"Use Redis {'.'.join(map(str, MIN_REDIS_VERSION))} or newer, or Valkey."
        if is_old
        else "Move the server nearer: every request and task makes several round trips.",
    )
    yield _check(
        f"{name} clock",
        "warning" if skew > SKEW_SECONDS else "ok",
        f"The server's clock differs from the clock of this machine by {skew * 1000:,.0f} ms.",
        "Synchronize the clocks (NTP): they measure the age of a worker's last heartbeat.",
    )
    return info


def _cache_policies(info: dict[str, Any], settings: Settings) -> Iterator[Check]:
    policy, limit = str(info.get("maxmemory_policy", UNKNOWN)), int(info.get("maxmemory", 0))
    evicts = policy != "noeviction"
    yield _check(
        "cache policy",
        "ok" if policy in {"allkeys-lru", "allkeys-lfu"} else "warning" if evicts else "problem",
        f"The server has maxmemory-policy {policy}.",
        "Set maxmemory-policy allkeys-lru: "
        + ("the arrays used last then stay." if evicts else "a full server now refuses arrays, and jobs fail."),
    )
    if limit == 0:
        yield Check(
            "cache memory",
            "warning",
            "The server has no memory limit.",
            "Set its maxmemory to GLLE_CACHE_BYTES.",
        )
    else:
        yield _check(
            "cache memory",
            "warning" if limit < settings.cache_bytes else "ok",
            f"The server has maxmemory {limit:,}; GLLE_CACHE_BYTES is {settings.cache_bytes:,}.",
            "Set GLLE_CACHE_BYTES to at most the server's maxmemory: large arrays might otherwise never fit.",
        )


def _workers(stores: Stores) -> Iterator[Check]:
    for state in queue_states(stores):
        noun = "requests for draws" if state.name == DRAW_REQUESTS else "tasks"
        yield _check(
            f"backlog of {state.name}",
            "warning" if state.oldest_seconds > LONG_WAIT_SECONDS else "ok",
            f"{state.length} {noun} wait, the oldest for {state.oldest_seconds:.0f} s; {state.running} are running.",
            "Start more workers, on this or other machines: they share the work.",
        )
    if not (workers := live_workers(stores.client)):
        return
    versions = {worker.engine for worker in workers} | {glle_engine.__version__}
    yield _check(
        "engine versions",
        "ok" if len(versions) == 1 else "warning",
        f"Workers and this command have the versions {', '.join(sorted(versions))}.",
        "Run one version everywhere (docs/how-to/storage.md): another one may refuse the records of this one.",
    )
    need = worker_need(stores.settings)
    yield _check_each(
        "worker threads",
        "These workers may compute with several threads:",
        [worker.name for worker in workers if worker.threads != "1"],
        "Each worker computes with one thread.",
        "Start workers with `glle worker`: several threads each compete for cores and are three times slower.",
    )
    yield _check_each(
        "worker clocks",
        "The clocks of these workers differ from the clock of the queue's server:",
        [f"{worker.name} ({worker.skew:+.1f} s)" for worker in workers if abs(worker.skew) > SKEW_SECONDS],
        "The clocks of all workers agree with the clock of the queue's server.",
        "Synchronize the clocks of these machines (NTP): deadlines and waiting times are compared with them.",
    )
    yield _check_each(
        "worker memory",
        f"Long tasks may need {show_size(need)} of memory; these workers have less:",
        [f"{worker.name} ({show_size(worker.memory)})" for worker in workers if 0 < worker.memory < need],
        "Each worker has enough memory for the longest tasks.",
        "Give these workers more memory, or lower GLLE_METHOD_BYTES: the kernel kills tasks beyond it.",
    )
    shared = shared_values(stores.settings)
    others = sorted(
        f"{worker.name} has {name}={value}, this command {shared.get(name)}"
        for worker in workers
        for name, value in worker.settings.items()
        if value != shared.get(name)
    )
    yield _check(
        "shared settings",
        "warning" if others else "ok",
        f"The settings differ: {'; '.join(others)}." if others else "Workers and this command have the same settings.",
        "Start all processes with the same values; run this command with the environment of the API.",
    )
    yield from _roles(stores.client, len(workers))


def _roles(client: redis.Redis, number: int) -> Iterator[Check]:
    """Yield, for each queue, a check that every worker has a process that takes the tasks of this queue first.

    `number` is the number of workers.
    """
    for queue in QUEUES:
        takers = sum(queue == worker.queue_names()[0] for worker in RqWorker.all(client))
        yield _check(
            f"workers of {queue}",
            "ok" if takers >= number else "warning" if takers else "problem",
            f"{takers} of {number} workers have a process that takes the tasks of this queue first.",
            "Read the workers' log: a process that ends at its start is replaced, again and again.",
        )


def _object_store(stores: Stores) -> Check:
    """Check that an object can be written to the object store, read and removed."""
    name, path, data = OBJECT_STORE, f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    bucket = stores.files.bucket
    try:
        bucket.write(path, [data], len(data))
        read = bucket.read(path, 0, len(data))
        bucket.remove(path)
    except ProblemError as error:
        return Check.from_problem(name, error.problem)
    return _check(
        name,
        "ok" if read == data else "problem",
        f"Records name {stores.datasets.usage()['stored_bytes']:,} bytes of files; an object was written, read and "
        "removed.",
        "The object read differs from the one written: check the store, and proxies before it.",
    )


def engine(settings: Settings) -> Iterator[Check]:
    """Yield two checks: the bits of reference results on this machine, and the solver of a small draw.

    The first check compares a digest of reference results with the digest that every machine should compute
    (`PINNED_FINGERPRINT`).
    """
    is_allowed = settings.allow_other_bits == "on"
    yield _check(
        "fingerprint",
        "ok" if is_allowed or fingerprint() == PINNED_FINGERPRINT else "warning",
        f"Reference results of this machine have the fingerprint {fingerprint()}; the published ones have "
        f"{PINNED_FINGERPRINT}.",
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
    """Return a check with this state; the remedy is left out if the state is ok."""
    return Check(name, state, detail, "" if state == "ok" else remedy)


def _check_each(name: str, problem: str, faulty: list[str], good: str, remedy: str) -> Check:
    """Return a check of all workers: a warning that lists the `faulty` workers, or ok with `good` if there are none."""
    if not faulty:
        return _check(name, "ok", good, remedy)
    return _check(name, "warning", f"{problem} {', '.join(faulty)}.", remedy)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def lines(check: Check) -> list[str]:
    """Return a check as lines of text: its state, name and detail, and below them its remedy if it has one."""
    text = [f"{_STATE_TEXTS[check.state]:<8} {check.name}: {check.detail}"]
    return [*text, f"{'':<8} -> {check.remedy}"] if check.remedy else text


def summary(checks: Sequence[Check]) -> str:
    """Return a sentence with the numbers of checks that are ok, warnings and problems."""
    counts = _counts(checks)
    return f"{counts['ok']} ok, {counts['warning']} warnings, {counts['problem']} problems."


def as_json(checks: Sequence[Check]) -> str:
    """Return the checks, and the number of checks in each state, as a JSON object."""
    return json.dumps({"counts": _counts(checks), "checks": [check.to_dict() for check in checks]}, indent=1)


def _counts(checks: Sequence[Check]) -> dict[str, int]:
    return {state: sum(check.state == state for check in checks) for state in _STATE_TEXTS}
