"""The order of waiting tasks: classes, tenants, atomicity."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rq.exceptions import DequeueTimeout
from rq.job import JobStatus

from tests.conftest import in_turn
from worker.jobs.priority_scripts import MOST_PASSED
from worker.jobs.recovery import STALE_SECONDS
from worker.jobs.rq_types import SERIALIZER, SafeJob, SafeQueue
from worker.records.draws import DrawsSpec
from worker.records.ids import text
from worker.records.priority import Priority, Terms, is_quick_draws, is_quick_fit
from worker.stores import Stores

if TYPE_CHECKING:
    import pytest

    from worker.jobs.store import Job


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
    """Return the waiting tasks in order of arrival."""
    return in_turn(stores)


def take(stores: Stores) -> str:
    """Dequeue the next task as a worker does."""
    id_ = stores.queue._queue.pop_job_id()
    assert id_ is not None
    return id_


def test_interactive_before_batch_first_come_first_served(stores: Stores) -> None:
    """Each class keeps its order of arrival."""
    batch = [fit_job(stores, f"b{number}", "batch").id for number in range(3)]
    first = [fit_job(stores, f"i{number}", "interactive").id for number in range(3)]
    batch.append(fit_job(stores, "b3", "batch").id)
    first.append(fit_job(stores, "i3", "interactive").id)
    assert waiting(stores) == first + batch


def test_many_wait_in_order(stores: Stores) -> None:
    """The order holds for more tasks than one script reads."""
    batch = fit_job(stores, "b", "batch").id
    first = [fit_job(stores, f"i{number}", "interactive").id for number in range(MOST_PASSED)]
    behind = [fit_job(stores, f"j{number}", "interactive").id for number in range(120 - MOST_PASSED)]
    last = fit_job(stores, "c", "batch").id
    assert waiting(stores) == [*first, batch, *behind, last]


def test_no_batch_waits_for_ever(stores: Stores) -> None:
    """A waiting batch is passed `MOST_PASSED` times at most, however many interactive tasks arrive."""
    batch = [fit_job(stores, f"b{number}", "batch").id for number in range(2)]
    order: list[str] = []
    for number in range(3 * MOST_PASSED):  # each taken task is followed by a new one
        fit_job(stores, f"i{number}", "interactive")
        order.append(take(stores))
    assert order.index(batch[0]) == MOST_PASSED
    assert order.index(batch[1]) == 2 * MOST_PASSED + 1


def test_a_retried_task_keeps_its_class(stores: Stores) -> None:
    """A retried interactive task goes before the batches again, a retried batch behind all."""
    first, batch = fit_job(stores, "i", "interactive"), fit_job(stores, "b", "batch")
    others = [fit_job(stores, f"c{number}", "batch").id for number in range(2)]
    assert [take(stores), take(stores)] == [first.id, batch.id]
    for job in (batch, first):
        task = SafeJob.fetch(job.id, connection=stores.client, serializer=SERIALIZER)
        task.set_status(JobStatus.STARTED)
        with stores.client.pipeline() as pipeline:
            task.retry(stores.queue._queue, pipeline)
            pipeline.execute()
    assert waiting(stores) == [first.id, *others, batch.id]


def test_a_shared_batch_is_promoted(stores: Stores) -> None:
    """Its waiting tasks move before the batches, behind earlier interactive tasks, once."""
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


def test_a_batch_yields_to_an_interactive_task(stores: Stores) -> None:
    """A batch takes no further shard if an interactive task is next; an interactive task does."""
    spec = draws_spec(40)
    job, _ = stores.jobs.create(kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=spec.total)
    stores.jobs.start(job.id)
    stores.queue.enqueue_shards(job, [1, 2])

    def next_shard(ended: int) -> int | None:
        return stores.queue.next_shard(job, ended, taker=0, first=0, has_time=True, counts={})[0]

    waits = fit_job(stores, "i", "interactive")
    assert next_shard(0) is None
    assert take(stores) == waits.id
    assert next_shard(0) == 1
    fit_job(stores, "j", "interactive")
    assert next_shard(1) is None
    stores.jobs.create(
        kind="draws", claim="d", posterior="post_1", spec=spec.to_dict(), total=spec.total,
        terms=Terms(priority="interactive"),
    )  # fmt: skip
    stores.queue.promote(job)
    assert next_shard(1) == 2


def test_tenants_take_turns(stores: Stores) -> None:
    """A tenant's first task is at most the second one taken, for any backlog of another tenant."""
    for priority in ("batch", "interactive"):
        greedy = [fit_job(stores.of("greedy"), f"g{number}", priority).id for number in range(60)]
        modest = [fit_job(stores.of("modest"), f"m{number}", priority).id for number in range(3)]
        third = fit_job(stores.of("third"), "t", priority).id
        order = waiting(stores)
        assert order.index(modest[0]) <= 2
        assert order.index(third) <= 3
        assert order[:10].count(modest[2]) == 1
        assert [id_ for id_ in order if id_ in greedy] == greedy, "each tenant's tasks keep their order"
        stores.queue._queue.empty()


def test_new_tasks_do_not_delay_another_tenant(stores: Stores) -> None:
    """New tasks do not delay a tenant's turn."""
    for number in range(5):
        fit_job(stores.of("greedy"), f"g{number}", "batch")
    mine = fit_job(stores.of("modest"), "m", "batch").id
    order = []
    for number in range(5, 10):
        order.append(take(stores))
        fit_job(stores.of("greedy"), f"g{number}", "batch")
    assert mine in order[:2]


def test_an_interactive_task_is_enqueued_in_one_step(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dequeues during an enqueue gets the older task."""
    older = fit_job(stores, "older", "interactive").id
    heads: list[str] = []
    stores_of_worker = Stores.connect(stores.settings)
    command: Any = stores.client.execute_command

    def watched(*arguments: Any, **options: Any) -> Any:
        answer = command(*arguments, **options)
        heads.append(in_turn(stores_of_worker)[0])
        return answer

    monkeypatch.setattr(stores.client, "execute_command", watched)
    fit_job(stores, "newer", "interactive")
    stores_of_worker.close()
    assert heads
    assert set(heads) == {older}


def test_every_task_is_taken_once(stores: Stores) -> None:
    """Waiting and new workers take each task of several tenants exactly once."""
    taken_ids: list[str] = []
    is_over = threading.Event()

    def work() -> None:
        queue = stores.queue._queue
        while True:
            try:
                task = SafeQueue.lmove(stores.client, queue.key, 1)
            except DequeueTimeout:
                if is_over.is_set():
                    return
                continue
            assert task is not None
            taken_ids.append(text(task[1]))
            stores.client.lrem(queue.intermediate_queue_key, 1, taken_ids[-1])

    with ThreadPoolExecutor(8) as workers:
        for _ in range(6):
            workers.submit(work)
        job_ids = [
            fit_job(stores.of(f"tenant-{number % 3}"), str(number), "interactive" if number % 4 else "batch").id
            for number in range(120)
        ]
        is_over.set()
    assert sorted(taken_ids) == sorted(job_ids)
    assert stores.queue.length() == 0


def test_tasks_of_a_version_without_lines_are_taken(stores: Stores) -> None:
    """A task that another version pushed to RQ's list joins the lines once."""
    ids = [fit_job(stores, str(number), "batch").id for number in range(3)]
    key = stores.queue._queue.key
    theirs = [fit_job(stores.of("theirs"), str(number), "batch").id for number in range(3)]
    for id_ in theirs:
        stores.queue._queue.remove(id_)
    stores.client.rpush(key, *theirs, ids[2])
    order = waiting(stores)
    assert sorted(order) == sorted([*ids, *theirs])
    assert order.index(theirs[0]) < order.index(ids[2])


def test_a_repair_costs_the_same_in_a_long_queue(stores: Stores) -> None:
    """The number of commands of a comparison does not depend on the number of waiting tasks."""
    job = fit_job(stores, "job", "batch")
    silent = replace(job, touched=job.touched - int(1000 * STALE_SECONDS) - 1)
    stores.recovery.repair(silent)
    spent = []
    for number in (10, 190):
        for index in range(number):
            fit_job(stores.of("other"), f"{number}-{index}", "batch")
        assert stores.client.llen(stores.queue._queue.key) <= 1, "only its length makes LPOS and LREM slow"
        stores.client.config_resetstat()
        stores.recovery.repair(silent)
        calls = {name: label["calls"] for name, label in stores.client.info("commandstats").items()}
        spent.append({name: count for name, count in calls.items() if "info" not in name and "config" not in name})
    assert spent[0] == spent[1]
    assert sum(spent[0].values()) < 20


def test_quick_work_is_recognized(stores: Stores) -> None:
    """Draws are measured by their estimate, fits by their size."""
    assert is_quick_draws(draws_spec(100, n=5000), 2.0)
    assert not is_quick_draws(draws_spec(1000, n=5000), 2.0)
    spec = {"n_neighbors": 10, "variant": "constrained"}
    assert is_quick_fit(2000, 100, spec)
    for n, d, more in (
        (2001, 3, {}),
        (2000, 101, {}),
        (500, 3, {"n_neighbors": 26}),
        (500, 3, {"variant": "published"}),
    ):
        assert not is_quick_fit(n, d, {**spec, **more})
