"""Lists of jobs by status and kind, and limits on a tenant's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.base.problems import Problem, ProblemError
from worker.jobs.index import INDEX, KINDS, STATUSES
from worker.records.ids import tenant_key, text
from worker.records.quotas import JobLimits

if TYPE_CHECKING:
    from worker.jobs.store import Job, JobStore
    from worker.stores import Stores

PROBLEM = Problem(code="some-failure", status=422, detail="It failed.", remedy="Do otherwise.")
MOVES = ("start", "succeed", "fail", "cancel", "finish_cancel", "reopen", "forget")


def create(jobs: JobStore, claim: str, **more: Any) -> Job:
    """Create a job of a fit."""
    return jobs.create(**{"kind": "fit", "claim": claim, "posterior": "post_1", "spec": {}, "total": 1, **more})[0]


def ended(jobs: JobStore, claim: str) -> Job:
    """Create a job that has succeeded."""
    job = create(jobs, claim)
    jobs.start(job.id)
    jobs.succeed(job.id)
    return jobs.fetch(job.id)


def move_job(jobs: JobStore, id_: str, move: str) -> None:
    """Apply a move to a job if its state allows it."""
    if (job := jobs.get(id_)) is None:
        return
    if move == "fail":
        jobs.fail(id_, PROBLEM)
    elif move == "reopen":
        jobs.reopen(job)
    elif move == "forget" and not job.is_open:
        jobs.delete(id_)
    elif move == "start" and job.status in {"queued", "running"}:
        jobs.start(id_)
    elif move in {"succeed", "cancel", "finish_cancel"}:
        getattr(jobs, move)(id_)


def require_exact(stores: Stores, jobs: JobStore, tenant: str) -> None:
    """Assert that each filter lists the jobs of its status and kind, newest first, and no other member."""
    jobs_by_age = list(jobs.newest())
    assert [at for at, _ in jobs_by_age] == sorted((at for at, _ in jobs_by_age), reverse=True)
    for status in (None, *STATUSES):
        for kind in (None, *KINDS):
            fits = [job.id for _, job in jobs_by_age if status in {None, job.status} and kind in {None, job.kind}]
            listed = list(jobs.listed(None, status, kind, limit=3))
            assert [job and job.id for _, job in listed] == fits
    entries = stores.client.zrange(tenant_key(f"{INDEX}:ended", tenant), 0, -1)
    assert len(entries) == sum(not job.is_open for _, job in jobs_by_age)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(["fit", "draws", "summary"]), min_size=1, max_size=5),
    moves=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(MOVES)), max_size=25),
    tenant=st.sampled_from(["default", "alice"]),
)
def test_every_change_of_status_keeps_the_lists(
    stores: Stores, kinds: list[str], moves: list[tuple[int, str]], tenant: str
) -> None:
    """After any sequence of changes a filtered list has exactly the jobs of its status and kind."""
    stores.client.flushall()
    jobs = stores.of(tenant).jobs
    ids = [create(jobs, f"claim {number}", kind=kind).id for number, kind in enumerate(kinds)]
    for number, move in moves:
        move_job(jobs, ids[number % len(ids)], move)
    require_exact(stores, jobs, tenant)


def test_a_tenant_keeps_its_newest_records(stores: Stores) -> None:
    """Surplus records leave in the order of their ends, with their claims; other tenants' and open ones stay."""
    jobs = stores.jobs.of("alice", JobLimits(ended=3))
    other = ended(stores.jobs.of("bob", JobLimits(ended=3)), "b")
    open_ones = [create(jobs, f"open {number}").id for number in range(5)]
    ids = [ended(jobs, f"claim {number}").id for number in range(8)]
    last = create(jobs, "last").id
    remaining = [job.id for _, job in jobs.newest()]
    assert set(remaining) == {last, *ids[-3:], *open_ones}
    assert stores.jobs.get(other.id) is not None
    for id_ in ids[:-3]:
        assert not stores.client.exists(f"glle:job:{id_}")
    assert jobs.claim_holder("claim 0") is None
    assert jobs.claim_holder("claim 7") is not None
    assert not stores.client.exists(tenant_key("glle:claim:claim 0", "alice"))
    require_exact(stores, jobs, "alice")


def test_create_and_cancel_leaves_no_more_keys(stores: Stores) -> None:
    """Creating and cancelling jobs repeatedly does not increase the number of keys."""
    jobs = stores.jobs.of("alice", JobLimits(ended=4))
    counted = []
    for number in range(60):
        jobs.cancel(create(jobs, f"claim {number}").id)
        counted.append(stores.client.dbsize())
    assert len(set(counted[10:])) == 1


def test_expired_records_leave_the_lists(stores: Stores) -> None:
    """The sweep removes expired records from all lists."""
    jobs = stores.jobs.of("alice", JobLimits())
    current = ended(jobs, "kept").id
    expired = ended(jobs, "gone").id
    stores.client.delete(f"glle:job:{expired}")
    key = tenant_key(f"{INDEX}:ended", "alice")
    (entry,) = (member for member in map(text, stores.client.zrange(key, 0, -1)) if expired in member)
    stores.client.zadd(key, {entry: 1})
    assert [job and job.id for _, job in jobs.listed()] == [None, current]
    stores.recovery.sweep()
    assert [job and job.id for _, job in jobs.listed()] == [current]
    require_exact(stores, jobs, "alice")


def test_an_open_record_is_not_removed(stores: Stores) -> None:
    """Only the record of an ended job can be removed; that of an open one is refused with a remedy."""
    job = create(stores.jobs, "claim")
    with pytest.raises(ProblemError) as caught:
        stores.jobs.delete(job.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("job-not-ended", 409)
    assert stores.jobs.fetch(job.id).is_open
    stores.jobs.cancel(job.id)
    assert stores.jobs.delete(job.id).status == "cancelled"
    assert stores.jobs.get(job.id) is None
    assert create(stores.jobs, "claim").id != job.id


def test_restored_records_are_listed(stores: Stores) -> None:
    """A restored record is in the lists of its status and kind."""
    jobs = stores.jobs.of("alice", JobLimits())
    id_ = ended(jobs, "claim").id
    ((_, record, ttl),) = stores.jobs.all_ended()
    stores.client.flushall()
    assert stores.jobs.put(record, ttl)
    assert [job and job.id for _, job in jobs.listed(None, "succeeded", "fit")] == [id_]
    require_exact(stores, jobs, "alice")
