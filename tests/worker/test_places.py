"""Places in the queue: who goes first, and who waits how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rq.job import JobStatus

from worker.draws import DrawsSpec
from worker.places import MOST_PASSED
from worker.safe_queue import SERIALIZER, SafeJob
from worker.terms import Priority, Terms, quick_draws, quick_fit

if TYPE_CHECKING:
    from worker.jobs import Job
    from worker.stores import Stores


def fit_job(stores: Stores, claim: str, priority: Priority) -> Job:
    """Create and enqueue a job of one task."""
    terms = Terms(priority=priority)
    job, _ = stores.jobs.create(kind="fit", claim=claim, posterior="post_1", spec={}, total=1, terms=terms)
    stores.queue.enqueue(job)
    return job


def draws_spec(count: int, n: int = 10) -> DrawsSpec:
    """Return draws in shards of one lane group."""
    return DrawsSpec(
        n=n, p=2, count=count, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        shard_seconds=0.0,
    )  # fmt: skip


def waiting(stores: Stores) -> list[str]:
    """Return the tasks that wait, the next one first."""
    return stores.queue._queue.get_job_ids()


def taken(stores: Stores) -> str:
    """Take the next task off the queue, as a worker does."""
    id_ = stores.queue._queue.pop_job_id()
    assert id_ is not None
    return id_


def test_interactive_before_batch_first_come_first_served(stores: Stores) -> None:
    """Each kind keeps its order: nobody who waits is overtaken by who came later."""
    batch = [fit_job(stores, f"b{number}", "batch").id for number in range(3)]
    first = [fit_job(stores, f"i{number}", "interactive").id for number in range(3)]
    batch.append(fit_job(stores, "b3", "batch").id)
    first.append(fit_job(stores, "i3", "interactive").id)
    assert waiting(stores) == first + batch


def test_many_wait_in_order(stores: Stores) -> None:
    """The order holds beyond what is looked at in one piece."""
    batch = fit_job(stores, "b", "batch").id
    first = [fit_job(stores, f"i{number}", "interactive").id for number in range(MOST_PASSED)]
    behind = [fit_job(stores, f"j{number}", "interactive").id for number in range(120 - MOST_PASSED)]
    last = fit_job(stores, "c", "batch").id
    assert waiting(stores) == [*first, batch, *behind, last]


def test_no_batch_waits_for_ever(stores: Stores) -> None:
    """However many interactive tasks keep coming, a batch is passed so many times and then has its turn."""
    batch = [fit_job(stores, f"b{number}", "batch").id for number in range(2)]
    seen: list[str] = []
    for number in range(3 * MOST_PASSED):  # one comes for each that goes
        fit_job(stores, f"i{number}", "interactive")
        seen.append(taken(stores))
    assert seen.index(batch[0]) == MOST_PASSED
    assert seen.index(batch[1]) == 2 * MOST_PASSED + 1


def test_a_task_that_is_tried_again_has_its_place(stores: Stores) -> None:
    """When its worker died, what someone waits for goes before the batches again, a batch behind all."""
    first, batch = fit_job(stores, "i", "interactive"), fit_job(stores, "b", "batch")
    others = [fit_job(stores, f"c{number}", "batch").id for number in range(2)]
    assert [taken(stores), taken(stores)] == [first.id, batch.id]
    for job in (batch, first):
        task = SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER)
        task.set_status(JobStatus.STARTED)
        with stores.client.pipeline() as pipeline:
            task.retry(stores.queue._queue, pipeline)
            pipeline.execute()
    assert waiting(stores) == [first.id, *others, batch.id]


def test_a_batch_that_someone_waits_for_is_promoted(stores: Stores) -> None:
    """What waits of it moves before the other batches, behind those that waited already; once."""
    spec = draws_spec(40)
    jobs = stores.jobs
    job, _ = jobs.create(kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=spec.total)
    other, early = fit_job(stores, "b", "batch"), fit_job(stores, "i", "interactive")
    stores.queue.enqueue_shard(job, 0)
    stores.queue.enqueue_shard(job, 1)
    terms = Terms(priority="interactive")
    shared, created = jobs.create(
        kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=spec.total, terms=terms
    )
    assert (shared.id, shared.priority, created) == (job.id, "interactive", False)
    stores.queue.promote(shared)
    expected = [early.id, f"{job.id}-r0-s0", f"{job.id}-r0-s1", other.id]
    assert waiting(stores) == expected
    late = fit_job(stores, "i2", "interactive")
    stores.queue.promote(shared)
    assert waiting(stores) == [*expected[:3], late.id, other.id]


def test_a_batch_does_not_go_on_while_someone_waits(stores: Stores) -> None:
    """A task takes no further shard when an interactive task is next; an interactive one goes on."""
    spec = draws_spec(40)
    job, _ = stores.jobs.create(kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=spec.total)
    stores.jobs.start(job.id)
    for shard in (1, 2):
        stores.queue.enqueue_shard(job, shard)
    stores.jobs.advance(job.id, 0, 0, spec.shard_size(0))
    waits = fit_job(stores, "i", "interactive")
    assert stores.queue.take_shard(job, taker=0) is None
    assert taken(stores) == waits.id
    assert stores.queue.take_shard(job, taker=0) == 1
    fit_job(stores, "j", "interactive")
    stores.queue._promote(keys=[stores.queue._queue.key], args=[f"{job.id}-r0-s2"])
    assert stores.queue.take_shard(job, taker=0) == 2


def test_what_takes_a_moment(stores: Stores) -> None:
    """Draws are measured by their estimate, fits by their size."""
    assert quick_draws(draws_spec(100, n=5000), 2.0)
    assert not quick_draws(draws_spec(1000, n=5000), 2.0)
    spec = {"n_neighbors": 10, "variant": "constrained"}
    assert quick_fit(2000, 100, spec)
    for n, d, more in (
        (2001, 3, {}),
        (2000, 101, {}),
        (500, 3, {"n_neighbors": 26}),
        (500, 3, {"variant": "published"}),
    ):
        assert not quick_fit(n, d, {**spec, **more})
