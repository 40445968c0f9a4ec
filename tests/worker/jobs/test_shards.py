"""The number of open shards of a draws job after any ends of tasks and workers."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.conftest import register_worker
from worker.base.versions import short_queue
from worker.jobs.recovery import STALE_SECONDS
from worker.jobs.rq_types import NAME, script_keys
from worker.jobs.shards import Shards
from worker.jobs.store import Cancelled, job_key
from worker.records.draws import DrawsSpec
from worker.records.ids import text
from worker.records.sharding import CHAINS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.jobs.store import Job
    from worker.stores import Stores

    Counts = Iterable[tuple[int, int]]

PER_SHARD = 4
TTL = 60


def running(stores: Stores, shards: int, chains: int = CHAINS) -> Job:
    """Return a running job with shards of one lane group each."""
    spec = DrawsSpec(
        n=10, p=2, count=PER_SHARD * shards, first=0, seed=0, scales=(1.0,), grid=False, source="posterior",
        align="none", shard_seconds=0.0,
    )  # fmt: skip
    assert spec.shards == shards
    job, _ = stores.jobs.create(
        kind="draws", claim=str(shards), posterior="post_1", spec=spec.to_dict(), total=spec.total, chains=chains
    )
    return stores.jobs.start(job.id)


def waiting(stores: Stores) -> list[int]:
    """Return the waiting shards."""
    return [int(id_.rpartition("-s")[2]) for id_ in stores.queue._queue.get_job_ids()]


def take(stores: Stores, job: Job, shard: int) -> None:
    """Remove a shard's task, as RQ does a minute after its end."""
    stores.queue._queue.remove(f"{job.id}-r{job.round}-s{shard}")
    stores.client.delete(f"rq:job:{job.id}-r{job.round}-s{shard}")


def open_next(stores: Stores, job: Job, shard: int, taker: int | None = None, counts: Counts = ()) -> int | None:
    """Open the successor of a shard, as its task does; with a taker take a shard for it."""
    has_time, taker = taker is not None, shard if taker is None else taker
    first = 0 if shard == taker else shard + 1
    return stores.queue.next_shard(job, shard, taker=taker, first=first, has_time=has_time, counts=dict(counts))[0]


def end(stores: Stores, job: Job, shard: int) -> None:
    """End a shard, as its task does without time for another one."""
    if shard == 0:
        stores.queue.enqueue_shards(job, range(1, min(job.chains, DrawsSpec.from_dict(job.spec).shards)))
    open_next(stores, job, shard)
    stores.jobs.advance(job.id, job.round, {shard: PER_SHARD})


def test_each_ended_shard_opens_the_next(stores: Stores) -> None:
    """As many shards are open as there are chains, in any order of their ends."""
    job = running(stores, 9)
    end(stores, job, 0)
    assert waiting(stores) == [1, 2, 3, 4]
    for ended, opened in [(3, 5), (1, 6), (6, 7), (2, 8)]:
        end(stores, job, ended)
        assert waiting(stores)[-1] == opened
    end(stores, job, 8)
    assert waiting(stores) == list(range(1, 9))


def test_a_repeated_shard_opens_the_same_successor(stores: Stores) -> None:
    """A repeated task opens the same successor; a started successor is not opened again."""
    job = running(stores, 9)
    end(stores, job, 0)
    for _ in range(2):
        take(stores, job, 4)
        open_next(stores, job, 0)
        assert waiting(stores) == [1, 2, 3, 4]
    stores.jobs.advance(job.id, 0, {4: 1})
    take(stores, job, 4)
    open_next(stores, job, 0)
    assert waiting(stores) == [1, 2, 3]


def test_shards_opened_by_another_version_are_skipped(stores: Stores) -> None:
    """Shards that an older version opened or began are skipped, and the next one is opened."""
    job = running(stores, 12)
    for shard in range(CHAINS):
        stores.queue.enqueue_shard(job, shard)
    stores.jobs.advance(job.id, 0, {4: 1})
    stores.queue.enqueue_shard(job, 5)
    open_next(stores, job, 2)
    assert waiting(stores) == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("ending", ["cancel", "fail", "reopen", "forget"])
def test_a_job_that_does_not_run_opens_no_shard(stores: Stores, ending: str) -> None:
    """A job that has ended, is in another round or is gone opens no shard and gets no record."""
    job = running(stores, 9)
    if ending == "cancel":
        stores.jobs.cancel(job.id)
    elif ending == "fail":
        stores.client.hset(job_key(job.id), "status", "failed")
    elif ending == "reopen":
        stores.client.hset(job_key(job.id), "round", 1)
    else:
        stores.client.delete(job_key(job.id))
    before = stores.client.hgetall(job_key(job.id))
    with pytest.raises(Cancelled):
        open_next(stores, job, 0, taker=0)
    assert list(Shards(stores.client, TTL).widen(job, 9, 8)) == []
    assert waiting(stores) == []
    assert stores.client.hgetall(job_key(job.id)) == before


def test_new_workers_share_a_running_job(stores: Stores) -> None:
    """After the first shard, a sweep opens one chain per live worker, once; it never closes one."""
    for name in "abcde":
        register_worker(stores, name)
    job = running(stores, 20)
    stores.queue.enqueue(job)
    stores.recovery.sweep()
    assert waiting(stores) == [0]
    assert stores.jobs.fetch(job.id).chains == CHAINS, "no worker has the posterior yet"
    end(stores, job, 0)
    for _ in range(2):
        stores.recovery.sweep()
        assert waiting(stores) == [0, 1, 2, 3, 4, 5]
        assert stores.jobs.fetch(job.id).chains == 5
    register_worker(stores, "f")
    stores.recovery.sweep()
    end(stores, job, 3)
    assert waiting(stores) == [0, 1, 2, 3, 4, 5, 6, 7]
    for name in "abcdef":
        stores.client.delete(f"rq:worker:{name}")
    stores.recovery.sweep()
    assert stores.jobs.fetch(job.id).chains == 6


def test_no_more_than_two_shards_each(stores: Stores) -> None:
    """A short job gets at most one chain per two shards."""
    for name in "abcdefghij":
        register_worker(stores, name)
    job = running(stores, 12)
    end(stores, job, 0)
    stores.recovery.sweep()
    assert stores.jobs.fetch(job.id).chains == 6
    assert waiting(stores) == [1, 2, 3, 4, 5, 6]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_shard_is_done(stores: Stores, data: st.DataObject) -> None:
    """All shards are done after any sequence of ends, repetitions, losses, widenings and older versions."""
    stores.client.flushall()
    shards = data.draw(st.integers(1, 14))
    job = running(stores, shards)
    stores.queue.enqueue(job)
    begun, lost = [0] * shards, 0
    for _ in range(200):
        job = stores.jobs.fetch(job.id)
        if not job.is_open:
            break
        open_ = waiting(stores)
        step = data.draw(st.sampled_from(["end", "end", "end", "lose", "repeat", "widen", "older"]))
        if not open_ or (step == "widen" and shards < 2):
            stores.recovery.repair(replace(job, touched=job.touched - int(1000 * STALE_SECONDS) - 1))
        elif step == "widen":
            for shard in Shards(stores.client, TTL).widen(job, shards, data.draw(st.integers(1, 8))):
                stores.queue.enqueue_shard(job, shard)
        else:
            shard = data.draw(st.sampled_from(open_))
            take(stores, job, shard)
            if step == "lose":
                lost += 1
                continue
            if step == "older" and shard + CHAINS < shards:
                stores.queue.enqueue_shard(job, shard + CHAINS)
                stores.jobs.advance(job.id, 0, {shard: PER_SHARD})
            else:
                end(stores, job, shard)
                if step == "repeat":
                    with suppress(Cancelled):
                        open_next(stores, job, shard)
            begun[shard] += 1
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert min(begun) >= 1


def test_a_task_takes_waiting_shards_in_order_then_opens_its_own(stores: Stores) -> None:
    """A taken shard has no task; another shard waits in its place until all are open."""
    job = running(stores, 7)
    stores.queue.enqueue_shards(job, [1, 2, 3])
    taken, shard = [], 0
    while (following := open_next(stores, job, shard, taker=0)) is not None:
        taken.append(following)
        shard = following
        assert len(waiting(stores)) == min(3, 6 - len(taken))
    assert taken == [1, 2, 3, 4, 5, 6]
    assert not list(stores.client.scan_iter(f"rq:job:{job.id}*"))


def test_without_waiting_shards_the_successor_is_taken_without_a_task(stores: Stores) -> None:
    """A job with one chain opens each shard for the task that ended the one before."""
    job = running(stores, 3, chains=1)
    assert [open_next(stores, job, shard, taker=0) for shard in (0, 1, 2)] == [1, 2, None]
    assert waiting(stores) == []


def test_a_lost_reply_is_repeated(stores: Stores) -> None:
    """The same call returns the same shard, whether it waited or was opened."""
    for chains in (1, CHAINS):
        stores.client.flushall()
        job = running(stores, 9, chains)
        stores.queue.enqueue_shards(job, range(1, chains))
        assert [open_next(stores, job, 0, taker=0) for _ in range(2)] == [1, 1]
        assert waiting(stores) == ([2, 3, 4] if chains == CHAINS else [])


@pytest.mark.parametrize("queue", [NAME, short_queue(NAME)])
def test_counts_are_reported_with_the_next_shard(stores: Stores, queue: str) -> None:
    """The same command reports counts, and a count that completes the job ends it."""
    job = running(stores, 2)
    stores.client.hset(job_key(job.id), "queue", queue)
    job = stores.jobs.fetch(job.id)
    stores.queue.enqueue_shard(job, 1)
    assert open_next(stores, job, 0, taker=0) == 1
    assert open_next(stores, job, 1, taker=0, counts=[(0, PER_SHARD)]) is None
    assert stores.jobs.fetch(job.id).done == PER_SHARD
    assert open_next(stores, job, 1, taker=0, counts=[(1, PER_SHARD)]) is None
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.stage) == ("succeeded", "done")
    assert ended.finished


def test_an_opened_short_shard_waits_as_a_short_task(stores: Stores) -> None:
    """Its record is that of a task which the queue enqueues by itself."""
    job = running(stores, 9)
    stores.client.hset(job_key(job.id), mapping={"queue": short_queue(NAME), "priority": "interactive"})
    job = stores.jobs.fetch(job.id)
    stores.queue.enqueue_shard(job, 5)
    open_next(stores, job, 0)
    opened, enqueued = (stores.client.hgetall(f"rq:job:{job.id}-r0-s{shard}") for shard in (4, 5))
    assert json.loads(opened.pop(b"task")) == ["draws", [job.id, 0, 4], {}]
    assert json.loads(enqueued.pop(b"task")) == ["draws", [job.id, 0, 5], {}]
    for record in (opened, enqueued):
        assert datetime.fromisoformat(text(record.pop(b"enqueued_at"))).tzinfo is not None
        record.pop(b"place", None)
    assert opened == enqueued


def test_requests_that_wait_are_reported(stores: Stores) -> None:
    """The reply says whether requests for single draws wait in the job's queue."""
    job = running(stores, 9, chains=1)
    assert stores.queue.next_shard(job, 0, taker=0, first=0, has_time=True, counts={}) == (1, False)
    stores.client.rpush(f"{script_keys(job.queue)[0]}:asked", "default")
    assert stores.queue.next_shard(job, 1, taker=0, first=0, has_time=True, counts={}) == (2, True)


@dataclass
class Task:
    """A task that makes one shard after the other; the count of a shard is reported after the next one."""

    shard: int
    current: int
    unreported: list[tuple[int, int]] = field(default_factory=list)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tasks_that_hold_shards_lose_none(stores: Stores, data: st.DataObject) -> None:
    """All shards are done, however tasks begin, continue, end and are killed; no task waits for a silent job."""
    stores.client.flushall()
    shards, chains = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    job = running(stores, shards, chains)
    stores.queue.enqueue(job)
    tasks: list[Task] = []
    for _ in range(300):
        if not stores.jobs.fetch(job.id).is_open:
            break
        open_ = waiting(stores)
        assert open_ or tasks, "a shard was lost"
        steps = (["begin"] if open_ else []) + (["go on", "go on", "stop", "kill"] if tasks else [])
        if (step := data.draw(st.sampled_from(steps))) == "begin":
            take(stores, job, open_[0])
            tasks.append(Task(open_[0], open_[0]))
            continue
        task = data.draw(st.sampled_from(tasks))
        if step == "kill":  # the task is repeated from its begin
            stores.queue.give_back(job, taker=task.shard)
            task.current, task.unreported = task.shard, []
            continue
        if task.current == 0:
            stores.queue.enqueue_shards(job, range(1, min(chains, shards)))
        with suppress(Cancelled):  # the job has ended
            following = open_next(stores, job, task.current, task.shard if step == "go on" else None, task.unreported)
            task.unreported = [(task.current, PER_SHARD)]
            if following is None:
                tasks.remove(task)
                stores.jobs.advance(job.id, 0, dict(task.unreported))
            else:
                task.current = following
    assert stores.jobs.fetch(job.id).status == "succeeded"
