"""Supervision of jobs in real worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
import redis

from tests.conftest import until
from tests.worker.execution.test_worker import fit_job
from tests.worker.execution.workers import horses, worker
from worker.execution import process_guard
from worker.execution.supervisor import GRACE_SECONDS, LOOK_SECONDS, JobSupervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

PATIENCE = 30.0  # seconds within which a process has ended
HASTE = 0.05  # seconds between two looks


@pytest.fixture
def horse() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a separate group and handles no signal."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and give little time to stop."""
    monkeypatch.setattr("worker.execution.supervisor.LOOK_SECONDS", HASTE)
    monkeypatch.setattr("worker.execution.supervisor.GRACE_SECONDS", 2 * HASTE)


def running(stores: Stores) -> Job:
    """Return a running job."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    return stores.jobs.start(job.id)


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_cancel_kills_an_unresponsive_process(stores: Stores, settings: Settings) -> None:
    """A work-horse that handles no signal is killed; its worker lives and takes the next task."""
    job = fit_job(stores, 60_000)
    with worker(settings, "deaf") as process:
        until(lambda: stores.jobs.fetch(job.id).stage in {"weights", "embedding"})
        (horse,) = horses(process.pid)
        os.kill(horse, signal.SIGSTOP)  # a stopped process handles no signal but SIGKILL
        assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelling"
        until(lambda: stores.jobs.fetch(job.id).status == "cancelled")
        until(lambda: not horses(process.pid))
        assert stores.posteriors.get(job.subject) is None
        assert not list(stores.cache.client.scan_iter(match="posterior:*"))
        after = fit_job(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")
        assert process.poll() is None
    assert stores.queue.length() == 0


@pytest.mark.usefixtures("_hasty")
def test_wanted_work_is_left_alone(stores: Stores, horse: subprocess.Popen[bytes]) -> None:
    """A running or just succeeded job is not killed; the thread ends with the work."""
    job = running(stores)
    with JobSupervisor(stores.jobs, job.id, horse.pid, 60, lambda: None) as overseer:
        time.sleep(4 * HASTE)
        stores.jobs.succeed(job.id)
        time.sleep(4 * HASTE)
    assert not overseer.has_killed
    assert horse.poll() is None
    assert "supervisor" not in {thread.name for thread in threading.enumerate()}


def test_work_has_a_grace_period(stores: Stores, horse: subprocess.Popen[bytes]) -> None:
    """A work-horse that ends within the grace period is not killed."""
    job = running(stores)
    with JobSupervisor(stores.jobs, job.id, horse.pid, 60, lambda: None) as overseer:
        stores.jobs.cancel(job.id)
        time.sleep(LOOK_SECONDS + GRACE_SECONDS / 2)
    assert not overseer.has_killed
    assert horse.poll() is None


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("end", ["failed", "deleted"])
def test_work_of_an_ended_job_is_killed(stores: Stores, horse: subprocess.Popen[bytes], end: str) -> None:
    """The work of a failed or removed job is killed."""
    job = running(stores)
    result: list[str] = []
    with JobSupervisor(stores.jobs, job.id, horse.pid, 60, lambda: result.append("before")) as overseer:
        if end == "failed":
            stores.jobs._transition(job.id, {"running": "failed"})
        else:
            stores.client.delete(f"glle:job:{job.id}")
        assert horse.wait(PATIENCE) == -signal.SIGKILL
    assert overseer.has_killed
    assert result == ["before"]


@pytest.mark.usefixtures("_hasty")
def test_work_that_takes_too_long_ends_its_job(stores: Stores, horse: subprocess.Popen[bytes]) -> None:
    """Beyond the time limit the job fails with the reason, and the work-horse is killed."""
    job = running(stores)
    with JobSupervisor(stores.jobs, job.id, horse.pid, 0, lambda: None) as overseer:
        assert horse.wait(PATIENCE) == -signal.SIGKILL
    assert overseer.has_killed
    error = stores.jobs.fetch(job.id).error
    assert error is not None
    assert error.code == "job-timeout"


@pytest.mark.usefixtures("_hasty")
def test_a_silent_server_kills_no_process(
    stores: Stores, horse: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work continues while the server does not answer."""
    ids: list[str] = []

    def fail(id_: str) -> bool:
        ids.append(id_)
        raise redis.ConnectionError

    monkeypatch.setattr(stores.jobs, "is_wanted", fail)
    with JobSupervisor(stores.jobs, "job_1", horse.pid, 60, lambda: None) as overseer:
        until(lambda: len(ids) > 1)
    assert not overseer.has_killed
    assert horse.poll() is None


def test_cancel_removes_waiting_tasks(stores: Stores) -> None:
    """A job between two tasks is cancelled at once, and none of its tasks waits."""
    job, other = fit_job(stores, 100), fit_job(stores, 101)
    stores.jobs.start(job.id)  # its worker is lost, and the task waits again
    assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelled"
    assert stores.queue._queue.get_job_ids() == [other.id]
    queued = stores.jobs.cancel(other.id)
    assert stores.queue.withdraw(queued).status == "cancelled"
    assert stores.queue.length() == 0
