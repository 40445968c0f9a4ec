"""Masters with replicas, killed or replaced during work."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest

from qa.faults.chaos import checks
from qa.faults.deployment import end_server
from qa.faults.redis.nodes import CACHE, QUEUE, Replicated, run_replicated
from qa.frame import repeat
from qa.load.running import Load, run_beside
from qa.load.work import Work
from tests.conftest import until
from tests.system.conftest import Up, run_glle, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redis

    from qa.load.ledger import Ledger

    Figure = Callable[[str, object], None]

DRAWS = 500
# Mostly new jobs; a 503 is no failure, a lost job is one.
LOAD = Load(clients=8, rate=25.0, patience=0.0, keeps=10**6, only=("upload", "fit", "draws", "follow"))


class Behind(NamedTuple):
    """The service on replicated servers, and draws jobs on it."""

    up: Up
    queue: Replicated
    cache: Replicated
    work: Work


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Return the service on a queue with two replicas and a cache with one."""
    folder = tmp_path_factory.mktemp("failover")
    bound = ("min-replicas-to-write 1", "min-replicas-max-lag 5")
    with (
        run_replicated(folder, 2, (*QUEUE, *bound)) as queue,
        run_replicated(folder, 1, CACHE) as cache,
        running(folder, GLLE_REDIS_URL=f"{queue.url}?replicas=1", GLLE_CACHE_URL=cache.url) as up,
    ):
        yield Behind(up, queue, cache, Work(up.url, 1000))


def refusals(ledger: Ledger) -> list[float]:
    """Return the times of the answers of 503."""
    return [attempt.at for attempt in list(ledger.attempts) if attempt.status == 503]


def seconds_to_heal(ledger: Ledger, since: float) -> float:
    """Return the seconds from a moment to the first success that began after the last refusal."""
    last = max(refusals(ledger), default=since)
    good = (one.at + one.seconds for one in list(ledger.attempts) if one.at > last and 0 < one.status < 300)
    return min(good, default=float("inf")) - since


def broken_promises(ledger: Ledger, queue: redis.Redis) -> list[str]:
    """Return what is wrong with the answers to a load, and with the jobs that were accepted.

    A data set of the last moments may be lost with its master, because replicas confirm jobs alone
    (docs/how-to/redis.md): the client uploads it again.
    """
    rows, _ = checks.all_ended(queue, ledger, time.time())
    failed = [
        f"{one.operation}: {one.code}" for one in ledger.attempts if one.operation[:4] == "POST" and not one.status
    ]
    faults = [fault for row in (*rows, *checks.wrong(ledger), *checks.bits(ledger)) for fault in row.violations]
    return failed + [fault for fault in faults if "urn:glle:problem:dataset-not-found" not in fault]


@contextmanager
def follow_events(url: str, path: str) -> Iterator[list[tuple[str, str]]]:
    """Follow a job's events as a browser does, reconnecting if the connection breaks; yield the (id, name) pairs."""
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        if seen and seen[-1][1] == "end":
            return
        last = {"last-event-id": seen[-1][0]} if seen else {}
        with suppress(httpx.HTTPError), httpx.stream("GET", url + path, headers=last, timeout=60) as answer:
            id_ = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                id_ = value if name == "id" else id_
                if name == "event":
                    seen.append((id_, value))

    with repeat(follow, seconds=0.2):
        yield seen


def test_queue_master_killed_during_a_job(behind: Behind, figure: Figure) -> None:
    """The job ends with the engine's bits, every accepted job ends, and refusals have Retry-After."""
    up, queue, _, work = behind
    with run_beside(LOAD, [up.url]) as ledger:
        job = work.start(DRAWS)
        with follow_events(up.url, f"/v1/jobs/{job.id}/events") as seen:
            until(lambda: work.done(job) >= 50 and len(ledger.jobs) >= 5)
            killed, since = queue.kill_master()
            assert work.status(job, 120) == "succeeded"
            figure("replicas, queue master killed: the job ended after", time.time() - since)
            until(lambda: refusals(ledger) and seconds_to_heal(ledger, since) < float("inf"))
            until(lambda: len(ledger.jobs) >= 15)
            until(lambda: seen[-1:] != [] and seen[-1][1] == "end", 60)
    assert broken_promises(ledger, queue.master.client) == []
    assert work.wrong(job) == 0
    figure("replicas, queue master killed: requests accepted again after", seconds_to_heal(ledger, since))
    figure("replicas, queue master killed: accepted, refused", f"{len(ledger.jobs)}, {len(refusals(ledger))}")
    queue.restart(killed)


def test_cache_master_killed_during_a_job(behind: Behind, figure: Figure) -> None:
    """Workers wait for the new master; draws that were not replicated are computed again with the same bits."""
    _, _, cache, work = behind
    job = work.start(DRAWS)
    until(lambda: work.done(job) >= 50)
    killed, since = cache.kill_master()
    assert work.status(job, 120) == "succeeded"
    figure("replicas, cache master killed: the job ended after", time.time() - since)
    assert work.wrong(job) == 0  # some draws were lost with the master
    assert work.request("GET", "/readyz").status_code == 200
    cache.restart(killed)


def test_isolated_master_loses_no_job(behind: Behind, figure: Figure, tmp_path: Path) -> None:
    """If all replicas must confirm a job, the old master accepts no job that the promoted replica lacks."""
    up, queue, cache, _ = behind
    urls = {"GLLE_REDIS_URL": f"{queue.url}?replicas=2", "GLLE_CACHE_URL": cache.url}
    data = str(up.log.parent / "data")
    with (
        run_glle(tmp_path / "serve.log", "serve", "--port", "0", **urls, GLLE_DATA_DIR=data) as api,
        run_beside(replace(LOAD, seed=1), [api.url]) as ledger,
    ):
        until(lambda: len(ledger.jobs) >= 5)
        since = time.time()
        queue.promote()
        until(lambda: refusals(ledger) and seconds_to_heal(ledger, since) < float("inf"), 60)
        until(lambda: len(ledger.jobs) >= 15)
    assert broken_promises(ledger, queue.master.client) == []
    figure("replicas, failover by hand: requests accepted again after", seconds_to_heal(ledger, since))
    figure("replicas, failover by hand: accepted, refused", f"{len(ledger.jobs)}, {len(refusals(ledger))}")


def test_master_without_replicas_accepts_no_job(behind: Behind) -> None:
    """A master without replicas answers 503 with the reason, and accepts jobs again once a replica is back."""
    _, queue, _, work = behind
    replicas = queue.replicas()
    for node in replicas:
        end_server(node)
    path, body = f"{work.url}/v1/posteriors/{work.posterior}/draws", {"count": 2, "seed": 9001}
    answer = httpx.post(path, json=body, timeout=60)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["type"] in {"urn:glle:problem:not-replicated", "urn:glle:problem:redis-unavailable"}
    queue.restart(*replicas)
    assert work.status(work.start(2), 120) == "succeeded"
