"""Room on the queue server: new work is refused first, and what was accepted ends."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from rq import SimpleWorker

from tests.worker.jobs.test_queue import fit_job
from worker.base.problems import ProblemError
from worker.jobs.rq_types import NAME, SERIALIZER, SafeQueue
from worker.jobs.store import Cancelled
from worker.storage import free_space
from worker.tenancy.quotas import JobLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.stores import Stores


@contextmanager
def used(stores: Stores, share: float) -> Iterator[None]:
    """Fill the queue server's memory to a share; the ballast makes the rest large enough for what may go on."""
    before = str(stores.client.config_get("maxmemory")["maxmemory"])
    stores.client.setbit("ballast", 2**26 - 1, 0)  # 8 MB, without a buffer that shrinks later
    stores.client.config_set("maxmemory", int(int(stores.client.info("memory")["used_memory"]) / share))
    stores.room._look_again = 0.0
    try:
        yield
    finally:
        stores.client.config_set("maxmemory", before)
        stores.client.delete("ballast")
        stores.room._look_again = 0.0


def test_above_the_mark_new_jobs_are_refused_and_others_end(stores: Stores) -> None:
    """Workers register, jobs are done, cancelled and removed; a job that is known is shared."""
    done, cancelled, known = (fit_job(stores, claim) for claim in ("done", "cancelled", "known"))
    for job in (done, cancelled):
        stores.queue.enqueue(job)
    with used(stores, 0.9):
        with pytest.raises(ProblemError) as caught:
            fit_job(stores, "new")
        problem = caught.value.problem
        assert (problem.code, problem.status) == ("redis-full", 503)
        assert problem.details["retry_after"] > 0
        assert fit_job(stores, "known").id == known.id
        worker = SimpleWorker([NAME], connection=stores.client, serializer=SERIALIZER, queue_class=SafeQueue)
        worker.register_birth()  # type: ignore[no-untyped-call] # RQ's
        worker.heartbeat()
        assert stores.queue.live_workers() == 1
        stores.jobs.start(done.id)
        stores.jobs.succeed(done.id)
        with pytest.raises(ProblemError):
            stores.jobs.reopen(stores.jobs.fetch(done.id))
        stores.queue.withdraw(stores.jobs.cancel(cancelled.id))
        with pytest.raises(Cancelled):
            stores.jobs.start(cancelled.id)
        stores.jobs.delete(done.id)
    assert fit_job(stores, "new").is_open


def test_memory_without_a_limit_is_never_full() -> None:
    """A server without a limit, or that reports nothing, has room; buffers that are not data do not count."""
    assert free_space.memory_share({"used_memory": 5, "maxmemory": 0}) is None
    assert free_space.memory_share({}) is None
    assert free_space.memory_share({"used_memory": 60, "maxmemory": 100, "mem_not_counted_for_evict": 10}) == 0.5


def test_jobs_of_all_tenants_are_bounded(stores: Stores) -> None:
    """The job beyond the number is refused whoever asks; an end makes room, and a shared job takes none."""
    alice, bob = (stores.jobs.of(name, JobLimits(all_open=2)) for name in ("alice", "bob"))
    asked = {"kind": "fit", "posterior": "post_1", "spec": {}, "total": 1}
    first, _ = alice.create(claim="a", **asked)  # type: ignore[arg-type] # of a test
    bob.create(claim="b", **asked)  # type: ignore[arg-type]
    for jobs in (alice, bob):
        with pytest.raises(ProblemError) as caught:
            jobs.create(claim="c", **asked)  # type: ignore[arg-type]
        problem = caught.value.problem
        assert (problem.code, problem.status) == ("too-many-jobs", 503)
        assert problem.details["retry_after"] > 0
    assert not alice.create(claim="a", **asked)[1]  # type: ignore[arg-type]
    alice.cancel(first.id)
    assert bob.create(claim="c", **asked)[1]  # type: ignore[arg-type]
