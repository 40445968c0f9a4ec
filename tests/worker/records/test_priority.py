"""The terms of jobs: deadlines, and what counts for who shares a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import until
from tests.worker.execution.test_worker import fit_job, worker
from worker.base.clock import iso, now_ms
from worker.jobs.store import Cancelled
from worker.records.priority import ANY_TIME, Terms

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.jobs.store import Job
    from worker.stores import Stores

PAST = Terms(deadline=1000)


def create(stores: Stores, terms: Terms = ANY_TIME) -> Job:
    """Create a job, or share it."""
    return stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1, terms=terms)[0]


def test_within_is_from_now() -> None:
    """Seconds become a moment; none stays none."""
    deadline = Terms.within(2.5).deadline
    assert deadline == pytest.approx(now_ms() + 2500, abs=100)
    assert Terms.within(None) == ANY_TIME


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [(5000, 9000, 9000), (9000, 5000, 9000), (5000, None, None), (None, 5000, None), (None, None, None)],
)
def test_of_two_that_share_the_later_deadline_counts(
    stores: Stores, first: int | None, second: int | None, counts: int | None
) -> None:
    """Nobody's job fails earlier because somebody else was in a hurry."""
    ahead = now_ms()
    given = [None if at is None else ahead + at for at in (first, second)]
    jobs = [create(stores, Terms(deadline=at)) for at in given]
    assert len({job.id for job in jobs}) == 1
    assert jobs[1].deadline == (None if counts is None else ahead + counts)


def test_interactive_stays_interactive(stores: Stores) -> None:
    """A batch becomes interactive by who waits for it, never the other way."""
    assert create(stores).priority == "batch"
    assert create(stores, Terms(priority="interactive")).priority == "interactive"
    assert create(stores).priority == "interactive"


@pytest.mark.parametrize("status", ["queued", "running"])
def test_late_job_fails_by_being_looked_at(stores: Stores, status: str) -> None:
    """It ends with its problem, and what waits of it is taken off the queue."""
    job = create(stores, PAST)
    stores.queue.enqueue(job)
    if status == "running":
        stores.client.hset(f"glle:job:{job.id}", "status", "running")
    assert job.is_late
    ended = stores.recovery.repair(stores.jobs.fetch(job.id))
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.status) == ("deadline-exceeded", 504)
    assert ended.error.details == {"deadline": iso(1000)} == {"deadline": "1970-01-01T00:00:01.000Z"}
    assert stores.queue.length() == 0


def test_late_job_is_not_begun(stores: Stores) -> None:
    """A worker that takes it up too late ends it instead."""
    job = create(stores, PAST)
    with pytest.raises(Cancelled):
        stores.jobs.start(job.id)
    assert stores.jobs.fetch(job.id).status == "failed"


def test_a_later_deadline_that_comes_meanwhile_saves_it(stores: Stores) -> None:
    """Between the look and the verdict someone may share the job: then it goes on, and waits where it waited."""
    job = create(stores, PAST)
    stores.queue.enqueue(job)
    create(stores, Terms.within(60))
    assert stores.recovery.repair(job).status == "queued"
    assert stores.queue._queue.get_job_ids() == [job.id]
    assert stores.jobs.expire(job.id).status == "queued"
    create(stores)
    assert stores.jobs.expire(job.id).deadline is None


def test_what_has_ended_or_is_cancelled_is_not_late(stores: Stores) -> None:
    """A deadline says nothing of a job that is over, or being stopped."""
    job = create(stores, Terms.within(60))
    stores.jobs.start(job.id)
    stores.jobs.cancel(job.id)
    stores.client.hset(f"glle:job:{job.id}", "deadline", 1000)
    assert not stores.jobs.fetch(job.id).is_late
    assert stores.jobs.expire(job.id).status == "cancelling"
    stores.jobs.finish_cancel(job.id)
    assert stores.jobs.expire(job.id).status == "cancelled"


def test_made_again_on_new_terms(stores: Stores) -> None:
    """A job whose result was evicted has the deadline of who wants it again, not that of long ago."""
    job = create(stores, Terms.within(60))
    stores.jobs.start(job.id)
    stores.jobs.succeed(job.id)
    ended = stores.jobs.fetch(job.id)
    hurry, more = Terms.within(1, "interactive"), Terms.within(100)
    assert stores.jobs.reopen(ended, hurry)
    again = stores.jobs.fetch(job.id)
    assert (again.deadline, again.priority) == (hurry.deadline, "interactive")
    assert not stores.jobs.reopen(ended, more), "the second shares"
    assert stores.jobs.fetch(job.id).deadline == more.deadline


def test_late_work_is_stopped(stores: Stores, settings: Settings) -> None:
    """A running fit fails at its deadline though nobody looks, and its worker soon does something else."""
    with worker(settings, "timely"):
        until(stores.queue.live_workers)
        job = fit_job(stores, 400_000, Terms.within(1.5))
        until(lambda: stores.jobs.fetch(job.id).status == "running")
        until(lambda: not stores.jobs.fetch(job.id).is_open, 10)
        late = now_ms() - (job.deadline or 0)
        assert 0 <= late < 1000
        ended = stores.jobs.fetch(job.id)
        assert ended.error is not None
        assert ended.error.code == "deadline-exceeded"
        started = time.monotonic()
        after = fit_job(stores, 500)
        until(lambda: stores.jobs.fetch(after.id).status == "succeeded", 10)
        assert time.monotonic() - started < 3
