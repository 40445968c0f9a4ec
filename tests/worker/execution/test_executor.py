"""Executors of real workers: requests, short tasks, and deaths in between."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import manifolds
from service.submission.draw_requests import requested_draw
from tests.conftest import until
from tests.worker.execution.test_worker import fit_job
from tests.worker.execution.workers import children, worker
from worker.base.problems import ProblemError
from worker.base.versions import queue_name, short_queue
from worker.execution import executor, process_guard
from worker.execution.draws import make_draws
from worker.execution.executor import Executor
from worker.execution.resident import ResidentPosteriors
from worker.jobs.executor_queue import DrawBatch, ExecutorQueue, ShortTask
from worker.observability.live_workers import begun_key
from worker.records.draws import DrawKey, DrawsSpec
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glle_engine import Draw, Posterior
    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

N = 800  # of which the embedding is trusted: an untrusted one makes a fit search for a better n_neighbors
pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def fitted(stores: Stores, n: int) -> PosteriorRecord:
    """Return a posterior that a worker fits."""
    job = fit_job(stores, n)
    until(lambda: stores.jobs.fetch(job.id).status == "succeeded")
    return stores.posteriors.fetch(job.subject)


def requested(stores: Stores, record: PosteriorRecord, *keys: DrawKey, wait: float = 20.0) -> list[Entry | None]:
    """Request draws at the same time; return them."""

    async def run() -> list[Entry | None]:
        return await asyncio.gather(
            *(requested_draw(stores, record, key, partial(cached, stores, record, key), wait) for key in keys)
        )

    return asyncio.run(run())


def cached(stores: Stores, record: PosteriorRecord, key: DrawKey) -> Entry | None:
    """Return a draw from the cache."""
    return stores.draws.get(record.arrays_id, key)


def key(index: int, seed: int = 0, scale: float = 1.0) -> DrawKey:
    """Return the address of a draw."""
    return DrawKey(seed, index, scale, "posterior", "procrustes")


def draws_job(stores: Stores, record: PosteriorRecord, count: int) -> Job:
    """Enqueue a short job of draws."""
    spec = DrawsSpec(
        n=record.n, p=2, count=count, first=0, seed=5, scales=(1.0,), grid=False, source="posterior",
        align="procrustes", shard_seconds=60.0,
    )  # fmt: skip
    job, _ = stores.jobs.create(
        kind="draws", claim=f"draws {count}", posterior=record.id, spec=spec.to_dict(), total=count, short=True
    )
    stores.queue.enqueue(job)
    return job


def begun_job(stores: Stores, record: PosteriorRecord) -> Job:
    """Return a job of many draws, some of which are made."""
    job = draws_job(stores, record, 5000)
    until(partial(has_done, stores, job.id, 1))
    return job


def has_done(stores: Stores, job: str, done: int) -> bool:
    """Return whether a job has made so many draws."""
    return stores.jobs.fetch(job).done >= done


def executor_of(pid: int) -> int:
    """Return the pid of a worker's executor."""
    until(lambda: children(pid, "glle-executor"))
    return children(pid, "glle-executor")[0]


@pytest.fixture
def resident(stores: Stores, settings: Settings) -> Iterator[tuple[int, PosteriorRecord]]:
    """Return the pid of a worker, and a posterior."""
    with worker(settings, "resident") as process:
        yield process.pid, fitted(stores, N)


def test_requests_have_the_bits_of_the_engine(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """Concurrent requests with several seeds and scales return the engine's draws; their lane groups are cached."""
    _, record = resident
    posterior = stores.posteriors.load(record.id)
    assert posterior is not None
    keys = [key(6), key(1, seed=3), key(2, scale=0.5), key(6), key(70)]
    for entry, wanted in zip(requested(stores, record, *keys), keys, strict=True):
        assert entry is not None
        direct = posterior.draw(wanted.index, seed=wanted.seed, scale=wanted.scale)
        assert entry.arrays["embedding"].tobytes() == direct.embedding.tobytes()
    (alone,) = requested(stores, record, key(9, seed=8))
    assert alone is not None
    until(lambda: all(cached(stores, record, key(index, seed=8)) for index in (8, 9, 10, 11)))
    assert not stores.jobs.index.members("default", None, 10, kind="draws"), "a request is no job"


def test_a_killed_executor_loses_no_request(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """Requests that a stopped and killed executor held are answered by its successor."""
    pid, record = resident
    first = executor_of(pid)
    os.kill(first, signal.SIGSTOP)

    async def run() -> Entry | None:
        request = asyncio.create_task(
            requested_draw(stores, record, key(3), lambda: cached(stores, record, key(3)), 20.0)
        )
        await asyncio.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        return await request

    assert asyncio.run(run()) is not None
    assert executor_of(pid) != first


def test_a_killed_executor_costs_a_job_only_time(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """A job of draws whose executor is killed twice has every draw, each with the engine's bits."""
    pid, record = resident
    posterior = stores.posteriors.load(record.id)
    assert posterior is not None
    job = draws_job(stores, record, 800)
    for done in (1, 200):
        until(partial(has_done, stores, job.id, done))
        os.kill(executor_of(pid), signal.SIGKILL)
    until(lambda: not stores.jobs.fetch(job.id).is_open)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 800)
    for index in range(0, 800, 37):
        entry = cached(stores, record, key(index, seed=5))
        assert entry is not None
        assert entry.arrays["embedding"].tobytes() == posterior.draw(index, seed=5).embedding.tobytes()


def test_an_unresponsive_executor_is_killed_for_a_cancelled_job(
    stores: Stores, resident: tuple[int, PosteriorRecord]
) -> None:
    """A stopped executor handles nothing: its job is cancelled all the same, and a successor takes the next task."""
    pid, record = resident
    job = begun_job(stores, record)
    first = executor_of(pid)
    os.kill(first, signal.SIGSTOP)
    assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelling"
    until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
    until(lambda: executor_of(pid) != first)
    assert requested(stores, record, key(0))[0] is not None


def test_a_request_is_served_between_the_lane_groups_of_a_job(
    stores: Stores, resident: tuple[int, PosteriorRecord]
) -> None:
    """The only executor answers a request while it works on a job."""
    _, record = resident
    job = begun_job(stores, record)
    assert requested(stores, record, key(0, seed=77))[0] is not None
    assert stores.jobs.fetch(job.id).status == "running"
    stores.queue.withdraw(stores.jobs.cancel(job.id))
    until(lambda: stores.jobs.fetch(job.id).status == "cancelled")


def test_an_evicted_posterior_makes_a_request_a_job(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """A request whose posterior must be fitted again is answered by None, so that a job fits it."""
    _, record = resident
    stores.cache.client.flushall()
    assert requested(stores, record, key(0)) == [None]


def test_a_deleted_posterior_refuses_its_requests(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """The executor finds no record; a posterior that it keeps in memory leaves no draws behind."""
    _, record = resident
    assert requested(stores, record, key(0))[0] is not None
    stores.posteriors.delete(record)
    with suppress(ProblemError):  # the executor may have removed the draw before the request read it
        requested(stores, record, key(4))
    until(lambda: not list(stores.cache.client.scan_iter(match="*draw:*")))
    with pytest.raises(ProblemError, match="There is no posterior"):
        requested(stores, record, key(8))


def test_a_stopping_executor_ends_its_task(stores: Stores, settings: Settings) -> None:
    """After SIGTERM the shard in work is finished; the worker ends, and its tasks are not lost."""
    with worker(replace(settings, shard_seconds=0.25), "stopping") as process:
        record = fitted(stores, N)
        job = draws_job(stores, record, 1000)
        until(lambda: stores.jobs.fetch(job.id).done)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert stores.jobs.fetch(job.id).status == "running"
    with worker(settings, "next"):
        until(lambda: stores.jobs.fetch(job.id).status == "succeeded")


def test_long_work_becomes_a_long_task(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """A short job whose posterior is evicted and slow to fit continues in a work-horse."""
    _, record = resident
    raw = stores.client.get(f"glle:posterior:{record.id}")
    assert raw is not None
    slow = text(raw).replace(f'"seconds": {record.seconds}', '"seconds": 100.0')
    assert slow != text(raw)
    stores.client.set(f"glle:posterior:{record.id}", slow)
    stores.cache.client.flushall()
    job = draws_job(stores, record, 8)
    until(lambda: not stores.jobs.fetch(job.id).is_open)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.queue) == ("succeeded", queue_name())


def test_a_draw_without_convergence_refuses_only_itself(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch, the draw that is not finite is refused, and the other is cached and published."""
    posterior = glle_engine.fit(manifolds.make("s_curve", 200, seed=0).X)
    read, write = os.pipe()
    loop = Executor(stores, "here", write)
    draws = [posterior.draw(0), posterior.draw(1)]
    draws[1].embedding.setflags(write=True)
    draws[1].embedding[0, 0] = np.nan
    published: list[tuple[Any, ...]] = []
    monkeypatch.setattr(ExecutorQueue, "publish", lambda _, __, keys, *outcome: published.append((keys, *outcome)))
    batch = type("Batch", (), {"posterior": "post_1", "arrays_id": "post_1:a", "name": "x", "keys": [key(0), key(1)]})()
    loop._store(batch, [key(0), key(1)], draws, 0.1)
    assert [(keys[0].index, outcome[0]) for keys, *outcome in published] == [(0, "drawn"), (1, "refused")]
    assert published[1][2].code == "no-convergence"
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("together", [0, executor.TOGETHER_BYTES])
def test_requested_draws_are_published_before_large_others_are_cached(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Small ones are cached with them; a request for one of them, sent meanwhile, makes no second draw."""
    posterior = glle_engine.fit(manifolds.make("s_curve", 200, seed=0).X)
    read, write = os.pipe()
    loop = Executor(stores, "here", write)
    group = [key(index) for index in range(4)]
    made: list[Sequence[DrawKey]] = []
    published: list[tuple[list[int], list[bool]]] = []

    def make(posterior: Posterior, keys: Sequence[DrawKey]) -> tuple[list[Draw], float]:
        made.append(keys)
        return make_draws(posterior, keys)

    def publish(_: object, batch: DrawBatch, keys: Sequence[DrawKey], outcome: str) -> None:
        assert outcome == "drawn"
        published.append(([key.index for key in keys], stores.draws.contains(batch.arrays_id, group)))

    monkeypatch.setattr(executor, "TOGETHER_BYTES", together)
    monkeypatch.setattr(executor, "make_draws", make)
    monkeypatch.setattr(ExecutorQueue, "publish", publish)
    monkeypatch.setattr(Executor, "_posterior", lambda *_: posterior)
    monkeypatch.setattr(type(stores.posteriors), "exists", lambda *_: True)
    with loop._writer:
        for wanted in ([key(2), key(1)], [key(0), key(3)], [key(4)]):
            loop._draw(DrawBatch("x", "post_1", "post_1:a", wanted, {}))
    assert [set(keys) for keys in made] == [set(group), {key(index) for index in range(4, 8)}]
    first, *later = published
    assert first == (([2, 1, 0, 3], [True] * 4) if together else ([2, 1], [False, True, True, False]))
    assert later == [([0, 3], [True] * 4), ([4, 5, 6, 7] if together else [4], [True] * 4)]
    os.close(read)
    os.close(write)


def test_a_draw_that_fails_refuses_only_itself(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """A scale beyond the range of float64 fails its request, and not those that are drawn with it."""
    _, record = resident

    async def run() -> list[Entry | BaseException | None]:
        keys = [key(0, seed=50), key(4, seed=50, scale=1e300), key(8, seed=50)]
        requests = (requested_draw(stores, record, each, partial(cached, stores, record, each), 20.0) for each in keys)
        return await asyncio.gather(*requests, return_exceptions=True)

    first, failed, last = asyncio.run(run())
    assert isinstance(failed, ProblemError)
    for entry in (first, last):
        assert not isinstance(entry, BaseException | None)
        assert np.isfinite(entry.arrays["embedding"]).all()


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_signal_during_the_start_stops_the_worker(stores: Stores, settings: Settings, delay: float) -> None:
    """SIGTERM reaches children that are being forked: one signal ends the worker."""
    del stores
    with worker(settings, "starting") as process:
        until(lambda: children(process.pid))
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_lost_signal_is_repeated(stores: Stores, settings: Settings) -> None:
    """A forking worker whose handler's exception is lost ends at the reminder, and not after its wait for tasks."""
    del stores
    losing = """
from rq.utils import now
from worker.execution.forking_worker import GlleWorker
GlleWorker.request_stop = lambda worker, *_: setattr(worker, "_shutdown_requested_date", now())
"""
    with worker(replace(settings, heartbeat=60), "losing", losing) as process:
        until(lambda: len(children(process.pid)) == 2)
        time.sleep(1.0)  # its handlers are installed, or the signal ends it at once
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_resident_posteriors_have_a_bound() -> None:
    """The posteriors that were used last stay; without a bound none is kept, nor one without a digest."""
    residents, posterior = ResidentPosteriors(), glle_engine.fit(manifolds.make("s_curve", 100, seed=0).X)
    residents.keep("a:1", posterior, 100)
    assert residents.get("a:1") is None
    residents.most_bytes = 1000
    residents.keep("old", posterior, 1)
    for name in ("a:1", "b:1"):
        residents.keep(name, posterior, 100)
    assert residents.get("a:1") is posterior
    residents.keep("c:1", posterior, 100)
    assert [residents.get(name) is not None for name in ("old", "a:1", "b:1", "c:1")] == [False, True, False, True]
    residents.keep("large:1", posterior, 10**6)
    assert [residents.get(name) is not None for name in ("a:1", "c:1", "large:1")] == [False, False, True]


def test_an_executor_that_grows_is_replaced(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after the work in progress once it exceeds its bytes, and not before."""
    loop = Executor(stores, "here", -1)
    loop._retire_if_large()
    assert not loop._is_stopping
    monkeypatch.setattr("worker.execution.executor.resident_bytes", lambda: loop._most_bytes + 1)
    loop._retire_if_large()
    assert loop._is_stopping


def test_an_unknown_task_is_ended(stores: Stores) -> None:
    """An executor calls a handler by its name in a table, and nothing else."""
    read, write = os.pipe()
    loop = Executor(stores, "here", write)
    loop._run(ShortTask("id", "os.system", ["touch never"], {}, "", 1))
    os.close(read)
    os.close(write)
    assert stores.client.zcard(begun_key(short_queue(queue_name()))) == 0
