"""Job records."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.base.problems import Problem, ProblemError
from worker.jobs.lua_scripts import ENDED_INDEX
from worker.jobs.store import Cancelled, Job, Status
from worker.records.ids import tenant_key, text
from worker.records.quotas import JobLimits
from worker.records.sharding import PartsSharding

if TYPE_CHECKING:
    from worker.jobs.store import JobStore, Kind
    from worker.stores import Stores

SERIES = "job_seconds"
PROBLEM = Problem(code="some-failure", status=422, detail="It failed.", remedy="Do otherwise.", details={"k": 3})
MOVES = ("start", "succeed", "fail", "cancel", "finish_cancel", "reopen", "forget")


def create(stores: Stores, claim: str = "claim", **more: Any) -> tuple[Job, bool]:
    """Create a draws job of three draws."""
    return stores.jobs.create(
        **{"kind": "draws", "claim": claim, "posterior": "post_1", "spec": {"a": [1, 2]}, "total": 3, **more}
    )


def test_new_record(stores: Stores) -> None:
    """A new job is queued, with the request as its spec."""
    job, created = create(stores)
    assert created
    assert stores.jobs.get(job.id) == job
    assert (job.kind, job.status, job.done, job.total, job.spec) == ("draws", "queued", 0, 3, {"a": [1, 2]})
    assert (job.started, job.finished, job.error) == (None, None, None)
    assert job.is_open


def test_job_without_a_posterior(stores: Stores) -> None:
    """Its subject is its data set."""
    job, _ = create(stores, kind="advice", posterior=None, spec={"dataset": "ds_1"})
    assert stores.jobs.get(job.id) == job
    assert (job.posterior, job.dataset, job.subject) == (None, "ds_1", "ds_1")
    other, _ = create(stores, "other", kind="transform", spec={"dataset": "ds_1"})
    assert (other.posterior, other.dataset, other.subject) == ("post_1", "ds_1", "post_1")


def test_unknown_job(stores: Stores) -> None:
    """A missing job is None, or a 404 with a remedy."""
    assert stores.jobs.get("job_none") is None
    with pytest.raises(ProblemError) as caught:
        stores.jobs.fetch("job_none")
    assert (caught.value.problem.code, caught.value.problem.status) == ("job-not-found", 404)


def test_racing_claims_share_one_job(stores: Stores) -> None:
    """Of sixteen simultaneous identical requests one creates the job, and all get it."""
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: create(stores), range(16)))
    assert sum(created for _, created in results) == 1
    assert len({job.id for job, _ in results}) == 1
    assert len(list(stores.jobs.iterate())) == 1


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
    """An open job is shared, an ended one only if `reuse` names its status."""
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
    """The problem is read back completely, and the record has its time to live."""
    job, _ = create(stores)
    bring_to(stores, job, "failed")
    failed = stores.jobs.fetch(job.id)
    assert failed.error == PROBLEM
    assert failed.finished is not None
    assert 0 < int(stores.client.ttl(f"glle:job:{job.id}")) <= stores.settings.job_ttl


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_stays_ended(stores: Stores, ended: Status) -> None:
    """Late changes leave an ended job as it is, and no worker starts it again."""
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


def test_work_finished_before_its_cancellation_counts(stores: Stores) -> None:
    """A cancellation after the end of the work leaves the result."""
    job, _ = create(stores)
    bring_to(stores, job, "cancelling")
    stores.jobs.succeed(job.id)
    assert stores.jobs.fetch(job.id).status == "succeeded"


def test_shards_add_up_and_the_last_ends_the_job(stores: Stores) -> None:
    """Counts of shards add up in any order; a repeated shard counts once and subtracts nothing."""
    job, _ = create(stores, total=5)
    stores.jobs.start(job.id)
    for shard, count, done in ((0, 1, 1), (1, 1, 2), (0, 2, 3), (0, 1, 3), (0, 2, 3), (1, 2, 4)):
        stores.jobs.advance(job.id, 0, shard, count)
        assert stores.jobs.fetch(job.id).done == done
    divided = replace(job, kind="summary", parts=PartsSharding("resamples", (2, 2, 1), 1))
    assert stores.jobs.shard_counts(divided) == [2, 2, 0]
    assert stores.jobs.unfinished_shards(divided) == [2]
    stores.jobs.advance(job.id, 0, 2, 1)
    assert stores.jobs.fetch(job.id).status == "succeeded"


def test_the_end_of_the_first_round_is_counted_once(stores: Stores) -> None:
    """The change that ends a job counts it; a later round and the end of a queued job are not counted."""

    def ends() -> int:
        return sum(sum(histogram.counts) for (name, *_), histogram in stores.counts.read()[1].items() if name == SERIES)

    job, _ = create(stores, total=1)
    stores.jobs.start(job.id)
    assert ends() == 0
    for _ in range(2):
        with suppress(Cancelled):  # it has ended
            stores.jobs.advance(job.id, 0, 0, 1)
        assert ends() == 1
    stores.jobs.reopen(stores.jobs.fetch(job.id))
    stores.jobs.start(job.id)
    stores.jobs.advance(job.id, 1, 0, 1)
    other, _ = create(stores, claim="other", total=1)
    stores.jobs.cancel(other.id)
    assert ends() == 1
    assert stores.counts.read()[1][SERIES, "draws", "succeeded"].seconds < 60


def test_reopened_once_for_a_new_round(stores: Stores) -> None:
    """Of two requests for evicted draws one reopens the job; shards of the old round do not count."""
    job, _ = create(stores, total=1)
    stores.jobs.start(job.id)
    stores.jobs.advance(job.id, 0, 0, 1)
    ended = stores.jobs.fetch(job.id)
    assert [stores.jobs.reopen(ended), stores.jobs.reopen(ended)] == [True, False]
    again = stores.jobs.fetch(job.id)
    assert (again.status, again.done, again.round, again.finished) == ("queued", 0, 1, None)
    assert stores.client.ttl(f"glle:job:{job.id}") == -1
    with pytest.raises(Cancelled):
        stores.jobs.advance(job.id, 0, 0, 1)
    stores.jobs.start(job.id)
    stores.jobs.advance(job.id, 1, 0, 1)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert stores.jobs.reopen(ended), "a long response may refer to the first round"
    again = stores.jobs.fetch(job.id)
    assert again.round == 2
    divided = replace(again, kind="summary", parts=PartsSharding("resamples", (1,), 1))
    assert stores.jobs.shard_counts(divided) == [0]


def test_listing_pages(stores: Stores) -> None:
    """The newest jobs come first, and a cursor continues."""
    ids = [create(stores, f"claim{number}")[0].id for number in range(5)]
    listed = list(stores.jobs.iterate())
    assert {job and job.id for _, job in listed} == set(ids)
    assert [at for at, _ in listed] == sorted((at for at, _ in listed), reverse=True)
    assert list(stores.jobs.iterate(listed[2][0], limit=1)) == listed[3:]


def test_entered_counts_every_status(stores: Stores) -> None:
    """Each transition is counted by kind and entered status."""
    for number in range(2):
        job, _ = create(stores, f"claim{number}")
        bring_to(stores, job, "succeeded")
    assert stores.jobs.transition_counts() == {
        ("draws", "queued"): 2,
        ("draws", "running"): 2,
        ("draws", "succeeded"): 2,
    }


def fit_job(jobs: JobStore, claim: str, kind: Kind = "fit") -> Job:
    """Create a job of a store of a tenant."""
    return jobs.create(kind=kind, claim=claim, posterior="post_1", spec={}, total=1)[0]


def ended(jobs: JobStore, claim: str) -> Job:
    """Create a job that has succeeded."""
    job = fit_job(jobs, claim)
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
    """Assert that the lists have each job once, the newest first, and the index of ended jobs no other member."""
    jobs_by_age = [(at, job) for at, job in jobs.iterate() if job is not None]
    assert [at for at, _ in jobs_by_age] == sorted((at for at, _ in jobs_by_age), reverse=True)
    for status in get_args(Status):
        for kind in ("fit", "draws", None):
            matches = [job.id for _, job in jobs_by_age if status == job.status and kind in {None, job.kind}]
            assert [job.id for _, job in jobs.iterate(None, status, kind, limit=3) if job is not None] == matches
    entries = stores.client.zrange(tenant_key(ENDED_INDEX, tenant), 0, -1)
    assert sorted(map(text, entries)) == sorted(at for at, job in jobs_by_age if not job.is_open)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(["fit", "draws", "summary"]), min_size=1, max_size=5),
    moves=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(MOVES)), max_size=25),
    tenant=st.sampled_from(["default", "alice"]),
)
def test_every_change_of_status_keeps_the_lists(
    stores: Stores, kinds: list[Kind], moves: list[tuple[int, str]], tenant: str
) -> None:
    """After any sequence of changes the lists are exact."""
    stores.client.flushall()
    jobs = stores.of(tenant).jobs
    ids = [fit_job(jobs, f"claim {number}", kind=kind).id for number, kind in enumerate(kinds)]
    for number, move in moves:
        move_job(jobs, ids[number % len(ids)], move)
    require_exact(stores, jobs, tenant)


def test_a_tenant_keeps_its_newest_records(stores: Stores) -> None:
    """Surplus records leave in the order of their ends, with their claims; other tenants' and open ones stay."""
    jobs = stores.jobs.of("alice", JobLimits(ended=3))
    other = ended(stores.jobs.of("bob", JobLimits(ended=3)), "b")
    open_ones = [fit_job(jobs, f"open {number}").id for number in range(5)]
    ids = [ended(jobs, f"claim {number}").id for number in range(8)]
    last = fit_job(jobs, "last").id
    assert {job and job.id for _, job in jobs.iterate()} == {last, *ids[-3:], *open_ones}
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
        jobs.cancel(fit_job(jobs, f"claim {number}").id)
        counted.append(stores.client.dbsize())
    assert len(set(counted[10:])) == 1


def test_expired_records_leave_the_lists(stores: Stores) -> None:
    """The sweep removes expired records from all lists."""
    jobs = stores.jobs.of("alice", JobLimits())
    current = ended(jobs, "kept").id
    expired = ended(jobs, "gone").id
    stores.client.delete(f"glle:job:{expired}")
    key = tenant_key(ENDED_INDEX, "alice")
    (entry,) = (member for member in map(text, stores.client.zrange(key, 0, -1)) if expired in member)
    stores.client.zadd(key, {entry: 1})
    assert [job and job.id for _, job in jobs.iterate()] == [None, current]
    stores.recovery.sweep()
    assert [job and job.id for _, job in jobs.iterate()] == [current]
    require_exact(stores, jobs, "alice")


def test_an_open_record_is_not_removed(stores: Stores) -> None:
    """Only the record of an ended job can be removed; that of an open one is refused with a remedy."""
    job = fit_job(stores.jobs, "claim")
    with pytest.raises(ProblemError) as caught:
        stores.jobs.delete(job.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("job-not-ended", 409)
    assert stores.jobs.fetch(job.id).is_open
    stores.jobs.cancel(job.id)
    assert stores.jobs.delete(job.id).status == "cancelled"
    assert stores.jobs.get(job.id) is None
    assert fit_job(stores.jobs, "claim").id != job.id
