"""Requests for single draws, and short tasks, in a real Redis."""

from __future__ import annotations

import json
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from worker.base.clock import now_iso, now_ms
from worker.base.numerics import numbers_of
from worker.base.versions import queue_name, short_queue
from worker.execution.executor import WAIT_SECONDS
from worker.jobs import priority_scripts
from worker.jobs.executor_queue import (
    DRAWN,
    REQUEST_SECONDS,
    DrawBatch,
    DrawRequests,
    ExecutorQueue,
    ShortTask,
    draw_outcomes,
    return_expired,
    waited_name,
)
from worker.observability.live_workers import begun_key, workers_of
from worker.records.draws import DrawKey
from worker.records.priority import Terms
from worker.stores import ANSWER_SECONDS

if TYPE_CHECKING:
    import pytest

    from worker.jobs.store import Job
    from worker.stores import Stores


def record(id_: str) -> Any:
    """Return what a request needs of a posterior's record."""
    return SimpleNamespace(id=id_, arrays_id=f"{id_}:digest", numbers=numbers_of(""))


def key(index: int, seed: int = 0, scale: float = 1.0, align: str = "none") -> DrawKey:
    """Return the address of a draw."""
    return DrawKey(seed, index, scale, "posterior", align)


def executor(stores: Stores, name: str = "one") -> ExecutorQueue:
    """Return the queue of an executor of the pinned kind."""
    return ExecutorQueue(stores.client, queue=queue_name(), executor=name, heartbeat=1)


def batch_of(work: DrawBatch | ShortTask | None) -> DrawBatch:
    """Return work that is a batch."""
    assert isinstance(work, DrawBatch)
    return work


def task_of(work: DrawBatch | ShortTask | None) -> ShortTask:
    """Return work that is a task."""
    assert isinstance(work, ShortTask)
    return work


def is_idle(queue: ExecutorQueue) -> bool:
    """Return whether no work waits; every change of the queue is made before the call."""
    return queue.wait(4, 0.05) is None  # type: ignore[arg-type] # Redis knows fractions of a second


def short_fit(stores: Stores, claim: str = "c", tenant: str | None = None) -> Job:
    """Enqueue a short fit."""
    jobs = stores.jobs if tenant is None else stores.of(tenant).jobs
    terms = Terms(priority="interactive")
    job, _ = jobs.create(kind="fit", claim=claim, posterior="post_1", spec={}, total=1, terms=terms, short=True)
    stores.queue.enqueue(job)
    return job


def test_requests_of_one_posterior_fill_a_lane_group(stores: Stores) -> None:
    """Requests with any seed and scale are taken together, each draw once; another alignment is another batch."""
    requests = DrawRequests(stores.client)
    wanted = [key(3), key(90, seed=7), key(3), key(5, scale=0.25)]
    for request in (*wanted, key(3, align="procrustes")):
        requests.send(record("a"), request)
    batch = batch_of(executor(stores).wait(4, 1))
    assert (batch.posterior, batch.arrays_id) == ("a", "a:digest")
    assert batch.keys == [wanted[0], wanted[1], wanted[3]]
    assert batch_of(executor(stores).wait(4, 1)).keys == [key(3, align="procrustes")]
    assert executor(stores).batch(4) is None


def test_a_scale_keeps_its_bits(stores: Stores) -> None:
    """Seeds up to 2^64 - 1 and scales without a short decimal form come back as they were sent."""
    sent = key(2**63, seed=2**64 - 1, scale=0.1 + 0.2)
    DrawRequests(stores.client).send(record("a"), sent)
    assert batch_of(executor(stores).wait(4, 1)).keys == [sent]


def test_posteriors_and_tenants_take_turns(stores: Stores) -> None:
    """A tenant with many requests, of one posterior or of many, delays another one's first by one lane group."""
    busy, other = DrawRequests(stores.client, "busy"), DrawRequests(stores.client, "other")
    for index in range(12):
        busy.send(record("a"), key(index))
    for name in "bcd":
        busy.send(record(name), key(0))
    other.send(record("z"), key(0))
    queue = executor(stores)
    order = [batch_of(queue.wait(4, 1)).posterior for _ in range(7)]
    assert order == ["a", "z", "b", "c", "d", "a", "a"]


def test_a_task_is_next_after_many_requests(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go before tasks, but not for ever."""
    monkeypatch.setattr(priority_scripts, "MOST_PASSED", 3)
    job, requests, queue = short_fit(stores), DrawRequests(stores.client), executor(stores)
    for index in range(20):
        requests.send(record("a"), key(index))
    order = [queue.wait(4, 1) for _ in range(5)]
    assert [isinstance(work, ShortTask) for work in order] == [False, False, False, True, False]
    assert task_of(order[3]).id == job.id


def test_a_lost_turn_is_found_by_the_second_request(stores: Stores) -> None:
    """An executor that died between its two commands took the tenant's turn; sending again restores it, once."""
    requests, queue = DrawRequests(stores.client), executor(stores)
    requests.send(record("a"), key(0))
    stores.client.delete(queue._tenants)
    requests.send(record("a"), key(1))
    assert queue.batch(4) is None
    requests.send(record("a"), key(0), again=True)
    requests.send(record("a"), key(0), again=True)
    assert queue.batch(4).keys == [key(0), key(1)]  # type: ignore[union-attr] # a batch
    assert queue.batch(4) is None


def test_outcomes_name_the_draws(stores: Stores) -> None:
    """A message reaches the requests for its draws by their names, with the problem of a refusal."""
    channel = stores.client.pubsub()  # type: ignore[no-untyped-call] # redis-py's
    channel.subscribe(DRAWN)
    DrawRequests(stores.client).send(record("a"), key(1))
    queue = executor(stores)
    queue.publish(batch_of(queue.wait(4, 1)), [key(1), key(2)], "drawn")
    (message,) = islice((message for message in channel.listen() if message["type"] == "message"), 1)
    outcomes = draw_outcomes(message["data"].decode())
    assert set(outcomes) == {waited_name(record("a"), key(1)), waited_name(record("a"), key(2))}
    assert {outcome["outcome"] for outcome in outcomes.values()} == {"drawn"}
    assert draw_outcomes("") == {}
    channel.close()


def test_a_short_task_is_begun_and_ended(stores: Stores) -> None:
    """A task has a lease until its end; enqueuing it again has no effect then."""
    job, queue, begun = short_fit(stores), executor(stores), begun_key(short_queue(queue_name()))
    assert job.queue == short_queue(queue_name())
    task = task_of(queue.wait(4, 1))
    assert (task.id, task.name, task.arguments) == (job.id, "fit", [job.id])
    assert stores.client.zrange(begun, 0, -1) == [f"{task.id}:one".encode()]
    stores.queue.enqueue(job)
    assert is_idle(queue)
    queue.end(task)
    assert not stores.client.exists(begun)
    stores.queue.enqueue(job)
    assert is_idle(queue)


def test_a_task_of_a_dead_executor_is_first_in_its_line(stores: Stores) -> None:
    """It waits for the published task at most."""
    first, published, last = (short_fit(stores, claim) for claim in ("first", "published", "last"))
    queue = executor(stores)
    assert task_of(queue.wait(4, 1)).id == first.id
    queue.give_back()
    assert [task_of(queue.wait(4, 1)).id for _ in range(3)] == [published.id, first.id, last.id]


def test_a_task_that_kills_its_executors_fails_its_job(stores: Stores) -> None:
    """After `MOST_ATTEMPTS` deaths the job fails and says so; another executor's death changes nothing."""
    job, queue = short_fit(stores), executor(stores)
    for attempt in range(priority_scripts.MOST_ATTEMPTS):
        assert task_of(queue.wait(4, 1)).id == job.id, attempt
        executor(stores, "another").give_back()
        assert stores.client.zcard(begun_key(job.queue)) == 1
        queue.give_back()
    assert is_idle(queue)
    stores.client.hset(f"glle:job:{job.id}", "touched", 0)
    repaired = stores.recovery.repair(stores.jobs.fetch(job.id))
    assert repaired.status == "failed"
    assert repaired.error is not None
    assert repaired.error.code == "worker-lost"


def test_an_expired_lease_returns_its_task(stores: Stores) -> None:
    """A task of a machine that is gone returns when its lease ends, and not before; a renewed lease goes on."""
    job, queue = short_fit(stores), executor(stores)
    task = task_of(queue.wait(4, 1))
    return_expired(stores.client, queue_name())
    assert is_idle(executor(stores, "two"))
    stores.client.zadd(begun_key(job.queue), {f"{task.id}:one": now_ms() - 1})
    queue.renew(task.id)
    return_expired(stores.client, queue_name())
    assert is_idle(executor(stores, "two"))
    stores.client.zadd(begun_key(job.queue), {f"{task.id}:one": now_ms() - 1})
    return_expired(stores.client, queue_name())
    assert task_of(executor(stores, "two").wait(4, 1)).id == job.id


def test_a_withdrawn_task_is_not_begun(stores: Stores) -> None:
    """The task of a cancelled job neither waits nor begins."""
    job = short_fit(stores)
    assert stores.queue.withdraw(stores.jobs.cancel(job.id)).status == "cancelled"
    assert is_idle(executor(stores))


def test_a_lost_task_is_enqueued_again(stores: Stores) -> None:
    """A task that an executor popped and did not begin is found by the comparison of its job with the queue."""
    job, queue = short_fit(stores), executor(stores)
    stores.client.delete(queue._keys[0])
    stores.client.hset(f"glle:job:{job.id}", "touched", 0)
    stores.recovery.repair(stores.jobs.fetch(job.id))
    assert task_of(queue.wait(4, 1)).id == job.id


def test_a_long_job_leaves_the_queue_of_short_tasks(stores: Stores) -> None:
    """A job that turns out to be long has one task, in the queue of long tasks."""
    job, queue = short_fit(stores), executor(stores)
    task = task_of(queue.wait(4, 1))
    stores.recovery.make_long(job.id)
    queue.end(task)
    assert stores.jobs.fetch(job.id).queue == queue_name()
    assert stores.queue._queue.get_job_ids() == [job.id]
    assert is_idle(queue)
    assert json.loads(json.dumps(stores.queue._queue.fetch_job(job.id).args)) == [job.id]  # type: ignore[union-attr] # it exists


def test_a_worker_whose_executor_has_a_task_is_busy(stores: Stores) -> None:
    """A worker is busy while its executor holds a task."""
    stores.client.sadd(f"rq:workers:{queue_name()}", "rq:worker:one", "rq:worker:two.2")
    beat = {"last_heartbeat": now_iso(), "state": "idle", "hostname": "here"}
    for name in ("one", "two.2"):
        stores.client.hset(f"rq:worker:{name}", mapping=beat)  # type: ignore[arg-type] # invariant
    short_fit(stores)
    queue = executor(stores, "two")
    task = task_of(queue.wait(4, 1))
    busy = {worker.name: worker.busy for worker in workers_of(stores.client, stores.settings, queue_name())}
    assert busy == {"one": False, "two.2": True}
    queue.end(task)
    assert not any(worker.busy for worker in workers_of(stores.client, stores.settings, queue_name()))


def test_requests_expire_without_an_executor(stores: Stores) -> None:
    """Requests that no executor takes are dropped, sent once or again; a new one keeps its posterior's others."""
    requests = DrawRequests(stores.client)
    tenants = executor(stores)._tenants
    for again in (False, True):
        requests.send(record("a"), key(0), again=again)
        (name,) = stores.client.keys(f"{tenants}:default:*")
        assert 0 < stores.client.ttl(name) <= REQUEST_SECONDS
        stores.client.persist(name)
        requests.send(record("a"), key(1), again=again)
        assert 0 < stores.client.ttl(name) <= REQUEST_SECONDS
        stores.client.flushall()


def test_a_forking_worker_that_died_leaves_the_executor_its_task(stores: Stores) -> None:
    """The tasks of a live executor stay with it; those of a dead worker return."""
    job, queue = short_fit(stores), executor(stores)
    assert task_of(queue.wait(4, 1)).id == job.id
    stores.recovery.requeue_tasks_of("one", of_executor=False)
    assert is_idle(executor(stores, "two"))
    stores.recovery.requeue_tasks_of("one")
    assert task_of(executor(stores, "two").wait(4, 1)).id == job.id


def test_a_wait_ends_before_the_time_out_of_its_socket() -> None:
    """A longer wait would be repeated on a new connection, and lose what the old one popped."""
    assert WAIT_SECONDS < ANSWER_SECONDS
