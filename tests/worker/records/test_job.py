"""Terms of jobs: deadlines and priorities, also of shared jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import in_turn, until
from tests.worker.execution.workers import enqueued_fit, worker
from worker.base.clock import now_ms
from worker.jobs.store import Cancelled
from worker.records.job import ANY_TIME, Terms

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

PAST = Terms(deadline=1000)


def create(stores: Stores, terms: Terms = ANY_TIME) -> Job:
    """Create or share a job."""
    return stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1, terms=terms)[0]


def test_within_is_from_now() -> None:
    """Seconds become a time from now; None stays None."""
    deadline = Terms.within(2.5).deadline
    assert deadline == pytest.approx(now_ms() + 2500, abs=100)
    assert Terms.within(None) == ANY_TIME


def test_interactive_stays_interactive(stores: Stores) -> None:
    """An interactive request promotes a batch; a batch request never demotes a job."""
    assert create(stores).priority == "batch"
    assert create(stores, Terms(priority="interactive")).priority == "interactive"
    assert create(stores).priority == "interactive"


def test_a_late_job_leaves_the_queue(stores: Stores) -> None:
    """Its waiting tasks are removed with its failure."""
    job = create(stores, PAST)
    stores.queue.enqueue(job)
    assert stores.queue.repair(job).status == "failed"
    assert in_turn(stores) == []


def test_a_late_job_is_not_started(stores: Stores) -> None:
    """A worker that takes it after the deadline ends it."""
    job = create(stores, PAST)
    with pytest.raises(Cancelled):
        stores.jobs.start(job.id)
    assert stores.jobs.fetch(job.id).status == "failed"


def test_a_later_deadline_of_a_second_request_saves_the_job(stores: Stores) -> None:
    """The job may be shared between the check and the expiry; then it keeps its place."""
    job = create(stores, PAST)
    stores.queue.enqueue(job)
    create(stores, Terms.within(60))
    assert stores.queue.repair(job).status == "queued"
    assert in_turn(stores) == [job.id]
    assert stores.jobs.expire(job.id).status == "queued"
    create(stores)
    assert stores.jobs.expire(job.id).deadline is None


def test_an_ended_or_cancelled_job_is_not_late(stores: Stores) -> None:
    """A deadline does not apply to a job that has ended or is being cancelled."""
    job = create(stores, Terms.within(60))
    stores.jobs.start(job.id)
    stores.jobs.cancel(job.id)
    stores.client.hset(f"glle:job:{job.id}", "deadline", 1000)
    assert not stores.jobs.fetch(job.id).is_late
    assert stores.jobs.expire(job.id).status == "cancelling"
    stores.jobs.finish_cancel(job.id)
    assert stores.jobs.expire(job.id).status == "cancelled"


def test_late_work_is_stopped(stores: Stores, settings: Settings) -> None:
    """A running fit fails at its deadline without a request, and its worker takes the next task."""
    with worker(settings, "timely"):
        job = enqueued_fit(stores, 60_000)
        until(lambda: stores.jobs.fetch(job.id).status == "running")
        stores.client.hset(f"glle:job:{job.id}", "deadline", now_ms())
        until(lambda: not stores.jobs.fetch(job.id).is_open)
        ended = stores.jobs.fetch(job.id)
        assert ended.error is not None
        assert ended.error.code == "deadline-exceeded"
        after = enqueued_fit(stores, 100)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded")
