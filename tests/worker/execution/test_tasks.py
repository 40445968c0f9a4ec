"""Tasks, run in this process."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis
from rq.timeouts import JobTimeoutException

import glle_engine
from glle_engine.base.errors import OutOfRangeError
from tests.conftest import error_of, in_turn
from tests.worker.execution.workers import SHEET, N, draws_job, fit_job, raiser
from worker.execution import context, draws, tasks
from worker.records.job import INTERACTIVE
from worker.storage.posteriors import PosteriorStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glle_engine import Draw, Posterior
    from worker.base.problems import Problem
    from worker.jobs.store import Job
    from worker.records.draws import DrawAddress
    from worker.stores import Stores

pytestmark = pytest.mark.usefixtures("here")


def test_draws_are_the_engines_in_every_shard(stores: Stores, posterior_id: str) -> None:
    """Each draw of the job is the draw of the engine, with its eigenvalues and diagnostics.

    The other shards wait until the first has cached the posterior; a repeated first shard enqueues nothing twice.
    """
    job, spec = draws_job(stores, posterior_id, count=22, first=729)
    names = [f"{job.id}-r0-s{shard}" for shard in range(spec.shards)]
    stores.queue.enqueue(job)
    assert in_turn(stores) == names[:1]
    for _ in range(2):
        tasks.draw(job.id, 0, 0)
        assert in_turn(stores) == names
    for shard in range(1, spec.shards):
        tasks.draw(job.id, 0, shard)
    ended = stores.jobs.fetch(job.id)
    assert (spec.shards, ended.status, ended.done) == (6, "succeeded", 22)
    direct = glle_engine.fit(SHEET.X)
    for key in spec.draws():
        entry = stores.draws.get(stores.posteriors.arrays_id(posterior_id), key)
        assert entry is not None
        draw = direct.draw(key.index)
        np.testing.assert_array_equal(entry.arrays["embedding"], draw.embedding)
        np.testing.assert_array_equal(entry.arrays["eigenvalues"], draw.eigenvalues)
        assert entry.meta["diagnostics"] == draw.diagnostics


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_further_round_draws_what_is_missing(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch, *, is_flushed: bool
) -> None:
    """Cached draws are not computed again; evicted ones get the same bits, also if the posterior is fitted again.

    A task of an earlier round does nothing.
    """
    job, spec = draws_job(stores, posterior_id, count=4)
    tasks.draw(job.id, 0, 0)
    arrays_id, keys = stores.posteriors.arrays_id(posterior_id), spec.shard_keys(0)
    before = stores.draws.get(arrays_id, keys[1])
    if is_flushed:
        stores.cache.client.flushall()
    stores.cache.delete(keys[1].cache_key(arrays_id))
    indices: list[int] = []

    def draw_and_record(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        indices.extend(key.index for key in keys)
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", draw_and_record)
    assert stores.jobs.reopen(stores.jobs.fetch(job.id))
    tasks.draw(job.id, 0, 0)
    assert (stores.jobs.fetch(job.id).done, indices) == (0, [])
    tasks.draw(job.id, 1, 0)
    after = stores.draws.get(arrays_id, keys[1])
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(before.arrays["embedding"], after.arrays["embedding"])
    assert indices == ([0, 1, 2, 3] if is_flushed else [1])
    assert stores.posteriors.load(posterior_id) is not None


def test_refusal_of_the_engine_ends_the_job_with_its_problem(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library for approximate search is a 422, whose remedy names the extra."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    job = fit_job(stores, search="approximate")
    tasks.fit(job.id)
    error = error_of(stores, job.id)
    assert (error.code, error.status) == ("missing-library", 422)
    assert "glle[ann]" in error.remedy
    assert stores.posteriors.get(job.subject) is None


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (JobTimeoutException("too long"), "job-timeout", 422),
        (MemoryError("900 GB"), "too-much-memory", 422),
        (ZeroDivisionError("oops"), "internal-error", 500),
        (OutOfRangeError("Too far.", remedy="Rescale.", details={"largest": np.inf}), "out-of-range", 422),
    ],
)
def test_errors_are_recorded(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, status: int
) -> None:
    """A time-out, a lack of memory and a bug each fail the job with a problem; the task does not raise."""
    job = fit_job(stores)
    monkeypatch.setattr(glle_engine, "fit", raiser(error))
    tasks.fit(job.id)
    failed = error_of(stores, job.id)
    assert (failed.code, failed.status) == (code, status)
    assert failed.remedy


def test_an_error_while_a_job_is_failed_is_recorded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out while recording fails the job; the task does not raise, so RQ does not retry it."""
    job = fit_job(stores)
    monkeypatch.setattr(glle_engine, "fit", raiser(ZeroDivisionError("oops")))
    record, attempts = stores.jobs.fail, []

    def interrupt_first(id_: str, problem: Problem) -> None:
        attempts.append(problem.code)
        if len(attempts) == 1:
            raise JobTimeoutException("too long")
        record(id_, problem)

    monkeypatch.setattr(stores.jobs, "fail", interrupt_first)
    tasks.fit(job.id)
    assert error_of(stores, job.id).code == "internal-error"
    assert len(attempts) == 2


def test_a_long_outage_of_redis_reaches_rq(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `AWAY_SECONDS` without a server the exception reaches RQ, which retries the task."""
    job = fit_job(stores)
    monkeypatch.setattr(tasks, "AWAY_SECONDS", -1.0)
    monkeypatch.setattr(glle_engine, "fit", raiser(redis.ConnectionError("gone")))
    with pytest.raises(redis.ConnectionError):
        tasks.fit(job.id)
    assert stores.jobs.fetch(job.id).status == "running"


def test_a_task_waits_for_redis(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task reports that it waits, starts again, and succeeds without a retry of RQ's."""
    job = fit_job(stores)
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.0)
    write, ids = stores.posteriors.cache, []

    def refused_twice(id_: str, posterior: Posterior, seconds: float) -> str:
        ids.append(id_)
        if len(ids) <= 2:
            raise redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        return write(id_, posterior, seconds)

    stages: list[str] = []
    monkeypatch.setattr(stores.posteriors, "cache", refused_twice)
    waits = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: stages.append(stores.jobs.fetch(job.id).stage))
    monkeypatch.setattr("worker.execution.tasks.time", waits)
    tasks.fit(job.id)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert len(ids) == 3
    assert stages == ["waiting for a server"] * 2


def test_cancel_stops_a_running_fit(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit checks for a cancellation between its blocks of work; the task of a cancelled job does not begin."""
    job = fit_job(stores)
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    stages: list[str] = []
    real = stores.jobs.progress

    def cancel_at_second(id_: str, done: int, total: int, stage: str) -> None:
        stages.append(stage)
        if len(stages) == 2:
            stores.jobs.cancel(id_)
        real(id_, done, total, stage)

    monkeypatch.setattr(stores.jobs, "progress", cancel_at_second)
    tasks.fit(job.id)
    assert stores.jobs.fetch(job.id).status == "cancelled"
    tasks.fit(job.id)
    assert len(stages) == 2
    assert stores.posteriors.get(job.subject) is None


def test_a_short_task_begins_without_progress(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes none for a while, and later the begin and end of each stage as a long task does."""
    clock = iter([0.0, 0.05, 0.09, 0.11, 0.12, 0.13])
    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    written: list[tuple[str, int]] = []
    monkeypatch.setattr(stores.jobs, "progress", lambda _, done, __, stage: written.append((stage, done)))
    write = context.progress_writer(stores, replace(fit_job(stores), queue=INTERACTIVE))
    for done, stage in ((3, "neighbors"), (3, "weights"), (0, "embedding"), (1, "embedding"), (3, "embedding")):
        write(done, 3, stage)
    assert written == [("embedding", 0), ("embedding", 3)]


def test_cancel_stops_a_shard_between_groups(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops within a few groups; counted draws stay cached, and no shard follows."""
    job, spec = draws_job(stores, posterior_id, count=400, shard_seconds=9.0)
    indices: list[int] = []

    def draw_and_cancel(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        indices.extend(key.index for key in keys)
        if len(indices) == 8:
            stores.jobs.cancel(job.id)
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", 0)  # each lane group is written
    monkeypatch.setattr(tasks, "make_draws", draw_and_cancel)
    assert spec.shards == 1
    tasks.draw(job.id, 0, 0)
    ended = stores.jobs.fetch(job.id)
    assert ended.status == "cancelled"
    assert len(indices) <= 8 + 4 * 2
    present = stores.draws.contains(stores.posteriors.arrays_id(posterior_id), spec.shard_keys(0))
    assert all(present[: ended.done])
    assert sum(present) <= len(indices)
    assert in_turn(stores) == []


def test_deleted_posterior_is_a_problem_of_the_job(stores: Stores, posterior_id: str) -> None:
    """Draws of a deleted posterior fail with a 404 and restore nothing."""
    job, _ = draws_job(stores, posterior_id, count=1)
    stores.posteriors.delete(posterior_id)
    tasks.draw(job.id, 0, 0)
    failed = error_of(stores, job.id)
    assert (failed.code, failed.status) == ("posterior-not-found", 404)
    assert stores.posteriors.get(posterior_id) is None
    assert list(stores.posteriors.newest()) == []
    assert list(stores.cache.client.scan_iter("*")) == []


def test_draws_of_a_posterior_deleted_meanwhile_are_removed(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results cached after the deletion are removed at the end of the task."""
    job, _ = draws_job(stores, posterior_id, count=1)

    def draw_and_delete(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        stores.posteriors.delete(posterior_id)
        stores.posteriors.calibrate(posterior_id, {"scale": 1.0})
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", draw_and_delete)
    tasks.draw(job.id, 0, 0)
    assert list(stores.cache.client.scan_iter("*")) == []
    assert stores.posteriors.calibration(posterior_id) is None


@pytest.mark.parametrize("event", ["deleted", "cancelled"])
def test_a_fit_ended_at_the_last_moment_leaves_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """A data set deleted during its first fit takes the posterior along; a job cancelled meanwhile records none.

    Both happen when the fit caches its arrays, after its last check of the job.
    """
    job, real = fit_job(stores), PosteriorStore.cache

    def cache(store: PosteriorStore, id_: str, posterior: Posterior, seconds: float) -> str:
        sha256 = real(store, id_, posterior, seconds)
        if event == "deleted":
            stores.datasets.delete(str(job.dataset))
        else:
            stores.jobs.cancel(job.id)
        return sha256

    monkeypatch.setattr(PosteriorStore, "cache", cache)
    tasks.fit(job.id)
    ended = stores.jobs.fetch(job.id)
    found = (ended.status, ended.error and ended.error.code)
    assert found == (("failed", "dataset-not-found") if event == "deleted" else ("cancelled", None))
    assert list(stores.posteriors.newest()) == []
    assert stores.posteriors.of_dataset(str(job.dataset)) == []
    assert list(stores.cache.client.scan_iter("*")) == []


class KilledError(BaseException):
    """End of a process in the middle of a task."""


def test_a_killed_task_is_repeated_completely(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends with every draw."""
    job, spec = draws_job(stores, posterior_id, count=42, shard_seconds=9.0)
    assert spec.shards == 1
    numbers = count()

    def make(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        if next(numbers) == 5:
            raise KilledError
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", make)
    with pytest.raises(KilledError):
        tasks.draw(job.id, 0, 0)
    assert stores.jobs.fetch(job.id).status == "running"
    tasks.draw(job.id, 0, 0)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 42)
    assert all(stores.draws.contains(stores.posteriors.arrays_id(posterior_id), list(spec.draws())))


@pytest.mark.parametrize("progress_seconds", [0.0, 60.0])
def test_counted_draws_are_cached(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch, progress_seconds: float
) -> None:
    """No report precedes the draws that it counts, although they are written meanwhile."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", progress_seconds)
    job, spec = draws_job(stores, posterior_id, count=64, shard_seconds=16e-6 * N)
    arrays_id = stores.posteriors.arrays_id(posterior_id)
    store, reported = draws.store_draws, []

    def store_slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.01)
        return store(*arguments, **options)

    def check(id_: str, round_: int, shard: int, count: int) -> Job | None:
        assert all(stores.draws.contains(arrays_id, spec.shard_keys(shard)[:count]))
        reported.append(count)
        return advance(id_, round_, shard, count)

    advance = stores.jobs.advance
    monkeypatch.setattr(tasks, "store_draws", store_slowly)
    monkeypatch.setattr(stores.jobs, "advance", check)
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert reported.count(spec.per_shard) == spec.shards
    assert (len(reported) > spec.shards) == (progress_seconds == 0)


def test_a_job_of_one_draw_caches_its_lane_group(stores: Stores, posterior_id: str) -> None:
    """Its draws are those of the engine; a job of five caches five."""
    for number, first, present in ((1, 6, range(4, 8)), (5, 10, range(10, 15))):
        job, spec = draws_job(stores, posterior_id, count=number, first=first)
        for shard in range(spec.shards):
            tasks.draw(job.id, 0, shard)
        assert stores.jobs.fetch(job.id).status == "succeeded"
        keys = [replace(spec.key(0), index=index) for index in range(4 * (first // 4), 4 * (first // 4) + 8)]
        cached = stores.draws.contains(stores.posteriors.arrays_id(posterior_id), keys)
        assert [key.index for key, is_cached in zip(keys, cached, strict=True) if is_cached] == list(present)
    posterior = stores.posteriors.load(posterior_id)
    assert posterior is not None
    assert [key.index for key in draws.lane_group(spec.key(0), draws.group_size(posterior))] == [10, 8, 9, 11]
    assert draws.lane_group(spec.key(0), 1) == [spec.key(0)], "without lanes there is no group"
