"""Tasks, run in this process."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis
from rq.timeouts import JobTimeoutException

import glle_engine
from glle_engine.base.errors import OutOfRangeError
from tests.conftest import error_of, in_turn, stored_files
from tests.worker.execution.workers import SHEET, N, draws_job, fit_job, raiser, store_dataset
from worker.execution import context, draws, tasks
from worker.records.job import INTERACTIVE
from worker.records.quotas import Quotas
from worker.storage.object_store.files import STORED_BYTES
from worker.storage.posteriors import PosteriorStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glle_engine import Draw, Posterior
    from worker.base.problems import Problem
    from worker.jobs.store import Job
    from worker.records.draws import DrawAddress
    from worker.records.stored_file import StoredFile
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

pytestmark = pytest.mark.usefixtures("here")


def results(stores: Stores) -> int:
    """Return the number of results of all tenants."""
    return stores.results.usage()["results"]


def test_draws_are_the_engines_in_every_shard(stores: Stores, posterior_id: str) -> None:
    """Each draw of the job is the draw of the engine, with its eigenvalues and diagnostics.

    Each shard is one result, and a repeated shard draws nothing. The first shard enqueues the others, once.
    """
    job, spec = draws_job(stores, posterior_id, n_draws=22, first=729)
    names = [f"{job.id}-s{shard}" for shard in range(spec.shards)]
    stores.queue.enqueue(job)
    assert in_turn(stores) == names[:1]
    for _ in range(2):
        tasks.draw(job.id, 0)
        assert in_turn(stores) == names
    for shard in range(1, spec.shards):
        tasks.draw(job.id, shard)
    ended = stores.jobs.fetch(job.id)
    assert (spec.shards, ended.status, ended.done) == (6, "succeeded", 22)
    direct = glle_engine.fit(SHEET.X)
    for shard in range(spec.shards):
        entry = stores.results.fetch_entry(spec.result_key(posterior_id, shard))
        for number, key in enumerate(spec.shard_keys(shard)):
            draw = direct.draw(key.index)
            np.testing.assert_array_equal(entry.arrays["embeddings"][number], draw.embedding)
            np.testing.assert_array_equal(entry.arrays["eigenvalues"][number], draw.eigenvalues)
            assert entry.meta["draws"][number]["diagnostics"] == draw.diagnostics
            assert entry.meta["draws"][number]["index"] == key.index
    (result,) = {record.job for _, record in stores.results.newest() if record is not None}
    assert (result, stores.results.usage()["results"]) == (job.id, spec.shards)


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
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: str,
    status: int,
) -> None:
    """A timeout, a lack of memory and a bug fail the job with a problem; the task raises nothing, and logs a bug."""
    job = fit_job(stores)
    monkeypatch.setattr(glle_engine, "fit", raiser(error))
    tasks.fit(job.id)
    failed = error_of(stores, job.id)
    assert (failed.code, failed.status) == (code, status)
    assert failed.remedy
    assert (f"Job {job.id} failed" in caplog.text) is (status == 500)


def test_an_error_while_a_job_is_failed_is_recorded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout that interrupts the recording of an error fails the job, too, and does not make RQ repeat the task."""
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
    """After `AWAY_SECONDS` without a server, the task raises the error, so that RQ repeats it."""
    job = fit_job(stores)
    monkeypatch.setattr(tasks, "AWAY_SECONDS", -1.0)
    monkeypatch.setattr(glle_engine, "fit", raiser(redis.ConnectionError("gone")))
    with pytest.raises(redis.ConnectionError):
        tasks.fit(job.id)
    assert stores.jobs.fetch(job.id).status == "running"


def test_a_task_waits_for_redis(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server does not answer, the task reports that it waits, starts again, and succeeds without RQ's retries."""
    job = fit_job(stores)
    monkeypatch.setattr(tasks, "RETRY_DELAY_SECONDS", 0.0)
    record, ids = stores.posteriors.record, list[str]()

    def refused_twice(new: PosteriorRecord, **options: Any) -> bool:
        ids.append(new.id)
        if len(ids) <= 2:
            raise redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        return record(new, **options)

    stages: list[str] = []
    monkeypatch.setattr(stores.posteriors, "record", refused_twice)
    waits = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: stages.append(stores.jobs.fetch(job.id).stage))
    monkeypatch.setattr("worker.execution.tasks.time", waits)
    tasks.fit(job.id)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert len(ids) == 3
    assert stages == ["waiting for a server"] * 2


def test_cancel_stops_a_running_fit(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running fit notices the cancellation within its work; the task of a cancelled job does not begin."""
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
    """An interactive task writes no progress for a while, and then the begin and end of each stage."""
    clock = iter([0.0, 0.05, 0.24, 0.26, 0.27, 0.28])
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
    """The task of a shard stops within a few lane groups; it stores nothing, and no other shard is enqueued."""
    job, spec = draws_job(stores, posterior_id, n_draws=400, shard_seconds=9.0)
    indices: list[int] = []

    def draw_and_cancel(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        indices.extend(key.index for key in keys)
        if len(indices) == 8:
            stores.jobs.cancel(job.id)
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", 0)  # each lane group is written
    monkeypatch.setattr(tasks, "make_draws", draw_and_cancel)
    assert spec.shards == 1
    tasks.draw(job.id, 0)
    ended = stores.jobs.fetch(job.id)
    assert ended.status == "cancelled"
    assert len(indices) <= 8 + 4 * 2
    assert results(stores) == 0
    assert in_turn(stores) == []


def test_the_memory_of_a_task_grows_with_the_points_that_are_stored(stores: Stores, posterior_id: str) -> None:
    """Points of the posterior count, or else of the data set; deleted points, and points in a request, do not."""
    draws_, _ = draws_job(stores, posterior_id)
    dataset = stores.posteriors.fetch(posterior_id).dataset
    spec = {"dataset": dataset}
    both = replace(draws_, spec=spec)
    fit = replace(both, posterior="post_0")
    inline = replace(both, posterior=None, is_inline=True)
    other = store_dataset(stores, SHEET.X[:50])
    jobs = [draws_, replace(both, spec={"dataset": other}), fit, replace(fit, posterior=None), inline]
    assert [tasks._points(stores, job) for job in jobs] == [N, N, N, N, 0]
    stores.posteriors.delete(posterior_id)
    assert [tasks._points(stores, job) for job in jobs] == [0, 50, N, N, 0]
    stores.datasets.delete(dataset)
    assert [tasks._points(stores, job) for job in jobs] == [0, 50, 0, 0, 0]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_draws_of_a_deleted_posterior_fail_and_are_not_stored(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The job has a 404 as its problem; nothing but the file of the data set is left."""
    job, _ = draws_job(stores, posterior_id, n_draws=1)

    def draw_and_delete(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        stores.posteriors.delete(posterior_id)
        stores.posteriors.calibrate(posterior_id, {"scale": 1.0})
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", draw_and_delete)
    if when == "before":
        stores.posteriors.delete(posterior_id)
    tasks.draw(job.id, 0)
    error = error_of(stores, job.id)
    assert (error.code, error.status) == ("posterior-not-found", 404)
    assert (results(stores), len(stored_files(stores))) == (0, 1)
    assert stores.posteriors.calibration(posterior_id) is None
    assert list(stores.posteriors.newest()) == []


@pytest.mark.parametrize("event", ["deleted", "cancelled"])
def test_a_fit_ended_at_the_last_moment_leaves_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """A fit whose data set is deleted, or whose job is cancelled, at its end leaves no posterior.

    Both happen after the file of the posterior is written, and before its record.
    """
    job, real = fit_job(stores), PosteriorStore.write

    def write(store: PosteriorStore, posterior: Posterior) -> tuple[StoredFile, str]:
        written = real(store, posterior)
        if event == "deleted":
            stores.datasets.delete(str(job.dataset))
        else:
            stores.jobs.cancel(job.id)
        return written

    monkeypatch.setattr(PosteriorStore, "write", write)
    tasks.fit(job.id)
    ended = stores.jobs.fetch(job.id)
    outcome = (ended.status, ended.error and ended.error.code)
    assert outcome == (("failed", "dataset-not-found") if event == "deleted" else ("cancelled", None))
    assert list(stores.posteriors.newest()) == []
    assert stores.posteriors.of_dataset(str(job.dataset)) == []
    assert len(stored_files(stores)) == (event == "cancelled"), "the file of the data set"


class KilledError(BaseException):
    """End of a process in the middle of a task."""


@pytest.mark.parametrize("progress_seconds", [0.0, 60.0])
def test_a_shard_is_stored_before_it_is_counted(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch, progress_seconds: float
) -> None:
    """Reports of progress leave out the last draw until the shard is stored, so that no job ends without its draws."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", progress_seconds)
    job, spec = draws_job(stores, posterior_id, n_draws=64, shard_seconds=16e-6 * N)
    reported = list[int]()

    def check(id_: str, shard: int, count: int) -> Job | None:
        assert count < spec.per_shard or stores.results.contains([spec.result_key(posterior_id, shard)]) == [True]
        reported.append(count)
        return advance(id_, shard, count)

    advance = stores.jobs.advance
    monkeypatch.setattr(stores.jobs, "advance", check)
    for shard in range(spec.shards):
        tasks.draw(job.id, shard)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert reported.count(spec.per_shard) == spec.shards
    assert (len(reported) > spec.shards) == (progress_seconds == 0)


def test_a_repeated_task_finds_what_a_killed_one_has_recorded(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated fit or shard whose result is stored ends its job, computes nothing, and writes no second file."""
    job, spec = draws_job(stores, posterior_id, n_draws=4)
    with monkeypatch.context() as patch:
        patch.setattr(stores.jobs, "advance", raiser(KilledError()))
        with pytest.raises(KilledError):
            tasks.draw(job.id, 0)
    again, before = fit_job(stores), stored_files(stores)
    monkeypatch.setattr(glle_engine, "fit", raiser(AssertionError("a second fit")))
    monkeypatch.setattr(tasks, "make_draws", raiser(AssertionError("a second draw")))
    tasks.fit(again.id)
    tasks.draw(job.id, 0)
    ended = [stores.jobs.fetch(id_) for id_ in (again.id, job.id)]
    assert [(fetched.status, fetched.done) for fetched in ended] == [("succeeded", 1), ("succeeded", spec.total)]
    assert stored_files(stores) == before


def test_the_cache_holds_nothing_that_a_job_has_made(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the cache is emptied, posterior and draws are read with the same bits, and nothing is computed."""
    record = stores.posteriors.fetch(posterior_id)
    before = stores.posteriors.load(record).embedding.tobytes()
    job, spec = draws_job(stores, posterior_id, n_draws=4)
    tasks.draw(job.id, 0)
    key = spec.result_key(posterior_id, 0)
    drawn = stores.results.fetch_entry(key).arrays["embeddings"].tobytes()
    assert stores.cache.client.dbsize() == 0
    stores.cache.client.flushall()
    monkeypatch.setattr(glle_engine, "fit", raiser(AssertionError("a second fit")))
    assert stores.posteriors.load(record).embedding.tobytes() == before
    assert stores.results.fetch_entry(key).arrays["embeddings"].tobytes() == drawn


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?")])
def test_a_damaged_posterior_is_a_problem_and_not_fitted_again(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    """Neither a draw nor an equal fit repairs it; the remedy is to delete the posterior, and to fit it again."""
    record = stores.posteriors.fetch(posterior_id)
    damage(stores.files.bucket.local_path(record.file.path))
    with monkeypatch.context() as patch:
        patch.setattr(glle_engine, "fit", raiser(AssertionError("a second fit")))
        job, _ = draws_job(stores, posterior_id, n_draws=1)
        tasks.draw(job.id, 0)
        error = error_of(stores, job.id)
        assert (error.code, error.status) == ("posterior-damaged", 500)
        assert f"DELETE /v1/posteriors/{posterior_id}" in error.to_dict()["remedy"]
        tasks.fit(fit_job(stores).id)
    stores.posteriors.delete(posterior_id)
    assert len(stored_files(stores)) == 1
    tasks.fit(fit_job(stores).id)
    assert stores.posteriors.load(stores.posteriors.fetch(posterior_id)).n_points == N


@pytest.mark.parametrize("kind", ["fit", "draws"])
def test_a_result_beyond_the_quota_fails_its_job(stores: Stores, posterior_id: str, kind: str) -> None:
    """The job leaves no file; the quota counts the bytes of data sets, posteriors and results together."""
    used = stores.datasets.for_tenant("default").usage()[STORED_BYTES]
    assert used == sum(path.stat().st_size for path in stored_files(stores))
    limited = replace(stores, quotas=Quotas(replace(stores.settings, quotas=f"*=bytes:{used + 500}")))
    before = stored_files(stores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "process_stores", lambda: limited)
        if kind == "fit":
            job = fit_job(stores, n_neighbors=11)
            tasks.fit(job.id)
        else:
            job, _ = draws_job(stores, posterior_id, n_draws=1)
            tasks.draw(job.id, 0)
    error = error_of(stores, job.id)
    assert (error.code, error.details["used"]) == ("quota-exceeded", used)
    assert stored_files(stores) == before


def test_an_hourly_task_sweeps(stores: Stores, posterior_id: str, caplog: pytest.LogCaptureFixture) -> None:
    """A failure of the sweep is logged and not raised, because RQ would record a failed task."""
    del posterior_id
    with caplog.at_level(logging.INFO, "worker.execution.tasks"):
        tasks.sweep_files()
        stores.client.set("glle:result:res_1", "{")
        tasks.sweep_files()
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "Swept: 0 expired results, 0 files without a record"
    assert messages[1].startswith("The stored files were not swept: ")
