"""Real worker processes and their failures."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis
from rq.timeouts import HorseMonitorTimeoutException, UnixSignalDeathPenalty
from rq.worker_registration import clean_worker_registry

from tests.conftest import until
from tests.processes import children, command_line
from tests.worker.execution.workers import enqueued_fit, horses, worker
from worker.execution import process_guard
from worker.execution.worker import TaskJob, TaskWorker, WorkerQueue
from worker.jobs.queue import MAX_RETRIES, SWEEP, SWEEP_AT
from worker.jobs.rq_tasks import fetch_tasks, open_queue
from worker.jobs.store import job_key
from worker.observability.live_workers import PATIENCE_SECONDS, live_workers
from worker.operations.embedded_redis import cache_server, queue_server
from worker.records.cache_entry import Entry
from worker.records.ids import text
from worker.records.job import BATCH, INTERACTIVE

if TYPE_CHECKING:
    from pathlib import Path

    from worker.base.settings import Settings
    from worker.stores import Stores

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


LONG = 200  # points of a fit that does not end by itself
HANGS = "test:hangs"  # list of the pids of the work-horses in such a fit, in the queue's Redis
HANGING = f"""
import os, time, redis
from worker.execution import tasks
real = tasks.fit_values
def fit_values(stores, values, *arguments):
    if len(values) == {LONG}:
        redis.Redis.from_url(os.environ["GLLE_REDIS_URL"]).rpush("{HANGS}", os.getpid())
        time.sleep(600)
    return real(stores, values, *arguments)
tasks.fit_values = fit_values
"""


def hanging_horse(stores: Stores, starts: int = 1) -> int:
    """Wait until the fit that hangs was started `starts` times; return the pid of its last process."""
    until(lambda: stores.client.llen(HANGS) == starts)
    last: Any = stores.client.lindex(HANGS, -1)
    return int(last)


def test_another_worker_finishes_the_task_of_a_killed_one(stores: Stores, settings: Settings) -> None:
    """After kill -9 no process is left; another worker notices the missing heartbeats, and finishes the job."""
    job = enqueued_fit(stores, LONG)
    with worker(settings, "first", HANGING) as first:
        horse = hanging_horse(stores)
        until(lambda: [state.busy for state in live_workers(stores.client)] == [1])
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not command_line(horse))
    assert stores.jobs.fetch(job.id).status == "running"
    with worker(settings, "second"):
        until(lambda: not stores.jobs.fetch(job.id).is_open)
        until(lambda: ("job_seconds", "fit", "succeeded") in stores.counts.read()[1])
        until(lambda: [state.busy for state in live_workers(stores.client)] == [0])
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.error) == ("succeeded", None)
    spreads = stores.counts.read()[1]
    assert sum(spreads["job_seconds", "fit", "succeeded"].counts) == 1
    assert spreads["task_seconds", "fit", "queued"].seconds > 0
    posterior = stores.posteriors.load(stores.posteriors.fetch(job.subject))
    assert np.isfinite(posterior.embedding).all()


def test_a_second_signal_leaves_the_task_to_another_worker(stores: Stores, settings: Settings) -> None:
    """The first SIGTERM waits for the task, the second kills it and ends the worker; the task has lost no retry."""
    job = enqueued_fit(stores, LONG)
    with worker(settings, "stopping", HANGING) as process:
        hanging_horse(stores)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.2)  # RQ ignores a second signal within a second
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert stores.jobs.fetch(job.id).status == "running"
    (task,) = fetch_tasks(stores.client, [job.id])
    assert task is not None
    assert task.retries_left == MAX_RETRIES


def test_a_heartbeat_does_not_interrupt_a_cold_stop(monkeypatch: pytest.MonkeyPatch, stores: Stores) -> None:
    """The worker exits even if the timer of RQ's heartbeats fires while the process of the task is killed.

    Otherwise RQ would take the end of the process for a failure, and the task would lose a retry.
    """
    worker_ = TaskWorker([BATCH], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue, name="cold")
    worker_._shutdown_requested_date = datetime.now(UTC) - timedelta(seconds=2)
    worker_._horse_pid = 1
    monkeypatch.setattr(worker_, "kill_horse", lambda: signal.raise_signal(signal.SIGALRM))
    monkeypatch.setattr(worker_, "wait_for_horse", lambda: (None, None, None))
    try:
        monitor = UnixSignalDeathPenalty(60, HorseMonitorTimeoutException)  # type: ignore[no-untyped-call] # of RQ
        with monitor, pytest.raises(SystemExit):
            worker_.request_force_stop(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_worker_that_was_cut_off_registers_again(stores: Stores) -> None:
    """If RQ has removed a worker during an outage, one heartbeat registers the worker again."""
    worker_ = TaskWorker([BATCH, INTERACTIVE], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue)
    worker_.register_birth()  # type: ignore[no-untyped-call] # of RQ
    stores.client.delete(worker_.key)
    clean_worker_registry(open_queue(BATCH, stores.client))
    assert TaskWorker.all(stores.client) == []
    worker_.heartbeat()
    (registered,) = TaskWorker.all(stores.client)
    assert (registered.key, registered.queue_names()) == (worker_.key, [BATCH, INTERACTIVE])
    assert stores.client.smembers(f"rq:workers:{BATCH}") == {worker_.key.encode()}


def test_short_tasks_cost_no_heartbeat_each(stores: Stores) -> None:
    """RQ renews the worker's keys around each task; nothing is sent again within half an interval of heartbeats."""
    worker_ = TaskWorker([BATCH], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue)
    worker_.register_birth()  # type: ignore[no-untyped-call] # of RQ
    worker_.heartbeat()
    worker_.set_state("idle")
    stores.client.delete(worker_.key)
    worker_.heartbeat()
    worker_.set_state("idle")
    assert not stores.client.exists(worker_.key)
    worker_._renewed -= worker_.job_monitoring_interval / 2
    worker_.heartbeat()
    assert stores.client.exists(worker_.key)


@pytest.mark.parametrize("is_horse", [False, True])
def test_a_task_leaves_the_list_of_taken_ones_at_its_end(stores: Stores, *, is_horse: bool) -> None:
    """RQ's list of taken tasks also loses the entry that the killed process of an earlier start has left.

    A work-horse removes the entry, too: RQ leaves it if the worker has two queues, but waited for one of them only.
    """
    job, intermediate = enqueued_fit(stores, 100), open_queue(BATCH, stores.client).intermediate_queue
    stores.client.rpush(intermediate.key, job.id, job.id)
    worker_ = TaskWorker([BATCH], connection=stores.client, job_class=TaskJob, queue_class=WorkerQueue)
    (task,) = fetch_tasks(stores.client, [job.id])
    assert task is not None
    execution = worker_.prepare_execution(task)
    worker_._is_horse = is_horse
    worker_.handle_job_failure(task, open_queue(BATCH, stores.client), execution=execution)
    assert intermediate.get_job_ids() == []
    assert task.retries_left == MAX_RETRIES - 1


# The worker imports its tasks before the fork, so that no child spends seconds on it.
LOADED = "import sys; assert 'worker.execution.tasks' in sys.modules"


def test_an_idle_worker_looks_for_work_and_stops_at_once(stores: Stores, settings: Settings, tmp_path: Path) -> None:
    """An idle worker enqueues a job that has lost its task, sweeps files, and ends on SIGTERM.

    Its alive file has a time in the future, after any wait for a silent Redis, which moves with the heartbeats.
    """
    job, file = enqueued_fit(stores, 100), tmp_path / "alive"
    stores.client.delete(f"rq:job:{job.id}", open_queue(BATCH, stores.client).key)
    unnamed = stores.files.bucket.local_path(stores.files.write_entry(Entry({}, {})).path)
    os.utime(unnamed, (0, 0))
    stores.client.set(SWEEP_AT, 0)
    with worker(replace(settings, alive_file=str(file)), "idle", LOADED) as process:
        until(lambda: stores.client.hget(job_key(job.id), "status") == b"succeeded")
        until(lambda: not unnamed.exists())
        until(lambda: stores.client.hget("rq:worker:idle.batch.1", "state") == b"idle")
        assert stores.queue.live_workers() == 1
        first = file.stat().st_mtime
        assert first > time.time() + PATIENCE_SECONDS
        until(lambda: file.stat().st_mtime > first)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert stores.queue.live_workers() == 0


def test_an_idle_worker_stops_while_the_servers_are_away(settings: Settings, tmp_path: Path) -> None:
    """A worker waits for its servers to run a task, but not to take leave."""
    servers = queue_server(settings), cache_server(settings)
    for server in servers:
        server.spawn()
    for server in servers:
        server.wait()
    urls = replace(settings, redis_url=servers[0].url, cache_url=servers[1].url, data_dir=str(tmp_path / "data"))
    try:
        with redis.Redis.from_url(servers[0].url) as client, worker(urls, "idle") as process:
            names = ("rq:worker:idle.quick.1", "rq:worker:idle.batch.1")
            until(lambda: [client.hget(name, "state") for name in names] == [b"idle"] * 2)
            for server in servers:
                server.stop()
            time.sleep(1.0)  # it tries again
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
    finally:
        for server in servers:
            server.stop()


def test_a_task_that_is_killed_or_cancelled_leaves_its_worker_to_others(stores: Stores, settings: Settings) -> None:
    """The task of a killed process is repeated, and counted once for the metrics.

    An interactive task does not wait for it. A cancelled task that handles no signal is killed, and the next task
    begins.
    """
    job = enqueued_fit(stores, LONG)
    with worker(settings, "one", HANGING):
        killed = hanging_horse(stores)
        short = enqueued_fit(stores, 100, short=True)
        until(lambda: stores.jobs.fetch(short.id).status == "succeeded")
        assert stores.jobs.fetch(job.id).status == "running"
        os.kill(killed, signal.SIGKILL)
        until(lambda: stores.counts.read()[0].get(("tasks_killed", BATCH)) == 1)
        os.kill(hanging_horse(stores, starts=2), signal.SIGSTOP)
        assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status in {"cancelling", "cancelled"}  # a quick worker
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        after = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")


SLOW = "import time; from worker.execution import tasks; tasks.fit_values = lambda *_, **__: time.sleep(60)"
DEAF = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); {SLOW}"  # as within compiled code
CRASH = "import os; from worker.execution import tasks; tasks.fit_values = lambda *_, **__: os.abort()"


@pytest.mark.parametrize(
    ("program", "code", "limit"),
    [
        (SLOW, "job-timeout", "GLLE_JOB_TIMEOUT"),
        (DEAF, "job-timeout", "GLLE_JOB_TIMEOUT"),
        (CRASH, "task-crashed", "GLLE_METHOD_BYTES"),
    ],
    ids=["slow", "deaf", "crash"],
)
def test_a_task_that_ends_by_itself_fails_once(
    stores: Stores, settings: Settings, program: str, code: str, limit: str
) -> None:
    """A task beyond its time, or that crashes, is not repeated; its problem names the limit and the setting."""
    job = enqueued_fit(stores, 100)
    with worker(replace(settings, job_timeout=1), "limited", program) as process:
        until(lambda: children(process.pid, "glle-batch"))
        forking = children(process.pid, "glle-batch")
        until(lambda: stores.jobs.fetch(job.id).status == "failed")
        error = stores.jobs.fetch(job.id).error
        assert error is not None
        assert (error.code, limit in error.remedy) == (code, True)
        until(lambda: not horses(process.pid))
        assert children(process.pid, "glle-batch") == forking
        assert not open_queue(BATCH, stores.client).get_job_ids()


def test_a_crash_of_the_sweep_does_not_end_its_worker(stores: Stores, settings: Settings) -> None:
    """The sweep has no job that could fail: its RQ worker counts the crash, and takes the next task."""
    stores.client.set(SWEEP_AT, 0)
    with worker(
        settings, "sweeps", f"import os; from worker.execution import tasks; tasks.HANDLERS['{SWEEP}'] = os.abort"
    ) as process:
        until(lambda: children(process.pid, "glle-batch"))
        forking = children(process.pid, "glle-batch")
        until(lambda: stores.counts.read()[0].get(("tasks_killed", BATCH)) == 1)
        job = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(job.id).status == "succeeded")
        assert children(process.pid, "glle-batch") == forking


CHILDREN = "test:children"  # list of "pid has_limit" in the queue's Redis
FORKING = f"""
import multiprocessing, os, resource, time, redis
from worker.execution import tasks
def sleep(limit):
    own = resource.getrlimit(resource.RLIMIT_DATA)[0]
    line = f"{{os.getpid()}} {{own == limit != resource.RLIM_INFINITY}}"
    redis.Redis.from_url(os.environ["GLLE_REDIS_URL"]).rpush("{CHILDREN}", line)
    time.sleep(600)
def fit_values(*arguments, **options):
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    child = multiprocessing.get_context("fork").Process(target=sleep, args=(limit,))
    child.start()
    child.join()
tasks.fit_values = fit_values
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "late"])
def test_processes_of_a_task_have_its_limits_and_end_with_it(
    stores: Stores, settings: Settings, *, is_killed: bool
) -> None:
    """A process that a library forks in a task has the task's limit on memory, and dies with the work-horse."""
    job = enqueued_fit(stores, 100)
    with worker(replace(settings, job_timeout=600 if is_killed else 3), "forks", FORKING) as process:
        until(lambda: stores.client.llen(CHILDREN))
        line: Any = stores.client.lindex(CHILDREN, 0)
        pid, has_limit = text(line).split()
        assert has_limit == "True"
        if is_killed:
            (horse,) = horses(process.pid)
            os.kill(horse, signal.SIGKILL)
        else:
            until(lambda: stores.jobs.fetch(job.id).status == "failed")
        until(lambda: not command_line(int(pid)))
