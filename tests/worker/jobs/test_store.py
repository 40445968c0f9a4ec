"""Job records; their progress and remaining time."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import refusal
from tests.worker.execution.workers import bare_fit
from worker.base.clock import now_ms
from worker.base.problems import Problem
from worker.jobs.lua_scripts import ENDED_BYTES, SWEEP_SECONDS
from worker.jobs.store import Cancelled, Job, Status
from worker.records.ids import tenant_key, text
from worker.records.quotas import Quota
from worker.records.sharding import PartsSharding

if TYPE_CHECKING:
    from worker.jobs.store import Job, JobStore, Kind
    from worker.stores import Stores

SERIES = "job_seconds"
PROBLEM = Problem(code="some-failure", status=422, detail="It failed.", remedy="Do otherwise.", details={"k": 3})
MOVES = ("start", "succeed", "fail", "cancel", "finish_cancel", "forget")


def create(stores: Stores, claim: str = "claim", **fields: Any) -> tuple[Job, bool]:
    """Create a draws job of three draws."""
    return stores.jobs.create(
        **{"kind": "draws", "claim": claim, "posterior": "post_1", "spec": {"a": [1, 2]}, "total": 3, **fields}
    )


def test_new_record(stores: Stores) -> None:
    """A new job is queued; its subject is its posterior, or else its data set."""
    job, created = create(stores)
    assert created
    assert stores.jobs.get(job.id) == job
    assert (job.kind, job.status, job.done, job.total, job.spec) == ("draws", "queued", 0, 3, {"a": [1, 2]})
    assert (job.started, job.finished, job.error) == (None, None, None)
    assert job.is_open
    analysis, _ = create(stores, "audit", kind="audit", posterior=None, spec={"dataset": "ds_1"})
    assert stores.jobs.get(analysis.id) == analysis
    assert (analysis.posterior, analysis.dataset, analysis.subject) == (None, "ds_1", "ds_1")
    other, _ = create(stores, "other", kind="transform", spec={"dataset": "ds_1"})
    assert (other.posterior, other.dataset, other.subject) == ("post_1", "ds_1", "post_1")
    assert stores.jobs.get("job_none") is None
    problem = refusal(stores.jobs.fetch, "job_none")
    assert (problem.code, problem.status) == ("job-not-found", 404)


@pytest.mark.parametrize(
    ("ends", "reuse", "shared"),
    [
        ("queued", ("queued", "running"), True),
        ("running", ("queued", "running"), True),
        ("cancelling", ("queued", "running"), False),
        ("cancelled", ("queued", "running", "succeeded"), False),
        ("failed", ("queued", "running", "succeeded"), False),
        ("succeeded", ("queued", "running"), False),
        ("succeeded", ("queued", "running", "succeeded"), True),
    ],
)
def test_a_claim_shares_jobs_of_reusable_status(
    stores: Stores,
    ends: Status,
    reuse: tuple[Status, ...],
    shared: bool,  # noqa: FBT001 # a parameter of the test
) -> None:
    """A request with an equal claim gets the open job, or an ended job if `reuse` names its status."""
    job, _ = create(stores)
    bring_to(stores, job, ends)
    again, created = create(stores, reuse=reuse)
    assert (again.id == job.id, created) == (shared, not shared)
    holder = stores.jobs.claim_holder("claim")
    assert holder is not None
    assert holder.id == again.id


def bring_to(stores: Stores, job: Job, status: Status) -> None:
    """Bring a queued job to a status."""
    jobs = stores.jobs
    if status != "queued":
        jobs.start(job.id)
    if status in {"cancelling", "cancelled"}:
        jobs.cancel(job.id)
    if status == "cancelled":
        jobs.finish_cancel(job.id)
    if status == "failed":
        jobs.fail(job.id, PROBLEM)
    if status == "succeeded":
        jobs.succeed(job.id)
    assert jobs.fetch(job.id).status == status


def test_failed_job_keeps_its_problem_and_expires(stores: Stores) -> None:
    """The problem is read back as it was, and the record of an ended job expires."""
    job, _ = create(stores)
    bring_to(stores, job, "failed")
    failed = stores.jobs.fetch(job.id)
    assert failed.error == PROBLEM
    assert failed.finished is not None
    assert 0 < int(stores.client.ttl(f"glle:job:{job.id}")) <= stores.settings.job_ttl + SWEEP_SECONDS


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_stays_ended(stores: Stores, ended: Status) -> None:
    """No later change has an effect on an ended job, and no worker starts it again."""
    job, _ = create(stores)
    bring_to(stores, job, ended)
    stores.jobs.succeed(job.id)
    stores.jobs.fail(job.id, PROBLEM)
    stores.jobs.finish_cancel(job.id)
    assert stores.jobs.cancel(job.id).status == ended
    with pytest.raises(Cancelled):
        stores.jobs.start(job.id)
    with pytest.raises(Cancelled):
        stores.jobs.progress(job.id, 1, 3, "late")
    assert stores.jobs.fetch(job.id).status == ended


def test_a_queued_job_is_cancelled_at_once_a_running_one_by_its_worker(stores: Stores) -> None:
    """A running job is `cancelling` until its worker notices."""
    queued, _ = create(stores, "one")
    assert stores.jobs.cancel(queued.id).status == "cancelled"
    running, _ = create(stores, "two")
    stores.jobs.start(running.id)
    stores.jobs.progress(running.id, 1, 3, "working")
    assert stores.jobs.cancel(running.id).status == "cancelling"
    with pytest.raises(Cancelled):
        stores.jobs.progress(running.id, 2, 3, "working")
    stores.jobs.finish_cancel(running.id)
    assert stores.jobs.fetch(running.id).status == "cancelled"
    finished, _ = create(stores, "three")
    bring_to(stores, finished, "cancelling")
    stores.jobs.succeed(finished.id)
    assert stores.jobs.fetch(finished.id).status == "succeeded", "the work was finished before"


def test_shards_add_up_and_the_last_ends_the_job(stores: Stores) -> None:
    """The progress is the sum over shards, in any order; a shard that is repeated or late changes nothing."""
    job, _ = create(stores, total=5)
    stores.jobs.start(job.id)
    for shard, count, done in ((0, 1, 1), (1, 1, 2), (0, 2, 3), (0, 1, 3), (0, 2, 3), (1, 2, 4)):
        stores.jobs.advance(job.id, shard, count)
        assert stores.jobs.fetch(job.id).done == done
    divided = replace(job, kind="summary", parts=PartsSharding("resamples", (2, 2, 1), 1))
    assert stores.jobs.unfinished_shards(divided) == [2]
    stores.jobs.advance(job.id, 2, 1)
    assert stores.jobs.fetch(job.id).status == "succeeded"


def test_the_end_of_a_job_is_counted_once(stores: Stores) -> None:
    """The duration of a job that was running is counted once, when the job ends."""

    def ends() -> int:
        return sum(sum(histogram.counts) for (name, *_), histogram in stores.counts.read()[1].items() if name == SERIES)

    job, _ = create(stores, total=1)
    stores.jobs.start(job.id)
    assert ends() == 0
    for _ in range(2):
        with suppress(Cancelled):  # it has ended
            stores.jobs.advance(job.id, 0, 1)
        assert ends() == 1
    other, _ = create(stores, claim="other", total=1)
    stores.jobs.cancel(other.id)
    assert ends() == 1
    assert stores.counts.read()[1][SERIES, "draws", "succeeded"].seconds < 60


def test_entered_counts_every_status(stores: Stores) -> None:
    """Each status that a job gets is counted for the metrics, by the kind of the job."""
    for number in range(2):
        job, _ = create(stores, f"claim{number}")
        bring_to(stores, job, "succeeded")
    statuses = ("queued", "running", "succeeded")
    assert stores.counts.read()[0] == {("jobs_entered", "draws", status): 2 for status in statuses}


def succeeded_job(jobs: JobStore, claim: str) -> Job:
    """Create a job that has succeeded."""
    job = bare_fit(jobs, claim)
    jobs.start(job.id)
    jobs.succeed(job.id)
    return jobs.fetch(job.id)


def move_job(jobs: JobStore, id_: str, move: str) -> None:
    """Apply a move to a job if its state allows it."""
    if (job := jobs.get(id_)) is None:
        return
    if move == "fail":
        jobs.fail(id_, PROBLEM)
    elif move == "forget" and not job.is_open:
        jobs.delete(id_)
    elif move == "start" and job.status in {"queued", "running"}:
        jobs.start(id_)
    elif move in {"succeed", "cancel", "finish_cancel"}:
        getattr(jobs, move)(id_)


def record_bytes(stores: Stores, job: Job) -> int:
    """Return the bytes of the record of an ended job, as its tenant's quota counts them."""
    return int(stores.client.hget(f"glle:job:{job.id}", "bytes") or 0)


def require_exact(stores: Stores, jobs: JobStore, tenant: str) -> None:
    """Assert that the lists have each job once, the newest first, and that the counters of the tenant are right."""
    jobs_by_age = [(cursor, job) for cursor, job in jobs.iterate() if job is not None]
    assert [cursor for cursor, _ in jobs_by_age] == sorted((cursor for cursor, _ in jobs_by_age), reverse=True)
    for status in get_args(Status):
        for kind in ("fit", "draws", None):
            matches = [job.id for _, job in jobs_by_age if status == job.status and kind in {None, job.kind}]
            assert [job.id for _, job in jobs.iterate(None, status, kind, limit=3) if job is not None] == matches
    for place, (cursor, _) in enumerate(jobs_by_age):
        assert [job.id for _, job in jobs.iterate(cursor) if job] == [job.id for _, job in jobs_by_age[place + 1 :]]
    entries = stores.client.zrange(tenant_key("glle:jobs:ended", tenant), 0, -1)
    assert sorted(map(text, entries)) == sorted(cursor for cursor, job in jobs_by_age if not job.is_open)
    nbytes = sum(record_bytes(stores, job) for _, job in jobs_by_age if not job.is_open)
    assert int(stores.client.get(tenant_key(ENDED_BYTES, tenant)) or 0) == nbytes
    assert jobs.counts() == (sum(job.is_open for _, job in jobs_by_age), nbytes)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(["fit", "draws", "summary"]), min_size=1, max_size=5),
    moves=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(MOVES)), max_size=25),
    tenant=st.sampled_from(["default", "alice"]),
)
def test_every_change_of_status_keeps_the_lists(
    stores: Stores, kinds: list[Kind], moves: list[tuple[int, str]], tenant: str
) -> None:
    """After any sequence of changes, lists and counters agree with the records."""
    stores.client.flushall()
    jobs = stores.for_tenant(tenant).jobs
    ids = [bare_fit(jobs, f"claim {number}", kind=kind).id for number, kind in enumerate(kinds)]
    for number, move in moves:
        move_job(jobs, ids[number % len(ids)], move)
    require_exact(stores, jobs, tenant)


def test_a_tenant_keeps_its_newest_records(stores: Stores) -> None:
    """Beyond the quota, the records of jobs that ended first are removed, with their claims.

    Records of open jobs and of other tenants stay.
    """
    other = succeeded_job(stores.jobs.for_tenant("bob", Quota(records=0)), "b")
    nbytes = record_bytes(stores, other)
    jobs = stores.jobs.for_tenant("alice", Quota(records=3 * nbytes + nbytes // 2))
    open_ones = [bare_fit(jobs, f"open {number}").id for number in range(5)]
    ids = []
    for number in range(8):
        ids.append(succeeded_job(jobs, f"claim {number}").id)
        time.sleep(0.002)  # jobs that end in one millisecond have no order
    last = bare_fit(jobs, "last").id
    assert {job and job.id for _, job in jobs.iterate()} == {last, *ids[-3:], *open_ones}
    assert stores.jobs.get(other.id) is not None
    for id_ in ids[:-3]:
        assert not stores.client.exists(f"glle:job:{id_}")
    assert jobs.claim_holder("claim 0") is None
    assert jobs.claim_holder("claim 7") is not None
    assert not stores.client.exists(tenant_key("glle:claim:claim 0", "alice"))
    require_exact(stores, jobs, "alice")


def test_expired_records_leave_the_lists(stores: Stores) -> None:
    """The sweep removes expired records from all lists."""
    jobs = stores.jobs.for_tenant("alice", Quota(records=0))
    current = succeeded_job(jobs, "kept").id
    expired = succeeded_job(jobs, "gone").id
    key = tenant_key("glle:jobs:ended", "alice")
    (entry,) = (member for member in map(text, stores.client.zrange(key, 0, -1)) if expired in member)
    stores.client.zadd(key, {entry: 1})
    assert [job and job.id for _, job in jobs.iterate()] == [expired, current]
    stores.queue.sweep()
    assert [job and job.id for _, job in jobs.iterate()] == [current]
    require_exact(stores, jobs, "alice")


def running(stores: Stores, total: int = 100) -> Job:
    """Return a running job of many draws."""
    return stores.jobs.start(bare_fit(stores.jobs, kind="draws", total=total).id)


def ago(job: Job, seconds: float) -> Job:
    """Return the job as if its stage had begun some seconds earlier."""
    return replace(job, since=now_ms() - int(1000 * seconds))


def test_eta_follows_from_the_rate_of_the_stage(stores: Stores) -> None:
    """If 40 of 100 steps took 4 s, 6 s are left; steps of earlier stages do not count."""
    job = running(stores)
    stores.jobs.advance(job.id, 0, 20)
    stores.jobs.stage(job.id, "drawing")
    stores.jobs.advance(job.id, 1, 40)
    assert ago(stores.jobs.fetch(job.id), 4.0).eta == pytest.approx(4.0, abs=0.1)
    stores.jobs.advance(job.id, 1, 60)
    assert ago(stores.jobs.fetch(job.id), 6.0).eta == pytest.approx(2.0, abs=0.1)


def test_eta_is_unknown_without_a_rate(stores: Stores) -> None:
    """There is no estimate before the first progress of a stage, or while the job does not run."""
    job = running(stores)
    assert job.eta is None
    stores.jobs.progress(job.id, 10, 100, "weights")
    assert stores.jobs.fetch(job.id).eta is None, "the rate needs two reports"
    stores.jobs.progress(job.id, 30, 100, "weights")
    assert stores.jobs.fetch(job.id).eta is not None
    stores.jobs.progress(job.id, 5, 100, "weights")
    assert stores.jobs.fetch(job.id).eta is None, "the stage has started again"
    stores.jobs.progress(job.id, 10, 100, "weights")
    stores.jobs.cancel(job.id)
    assert stores.jobs.fetch(job.id).eta is None
    stores.jobs.finish_cancel(job.id)
    assert stores.jobs.fetch(job.id).eta is None
