"""The number of open shards of a draws job after any ends of tasks and workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.conftest import register_worker
from worker.jobs.recovery import STALE_SECONDS
from worker.jobs.shards import Shards
from worker.jobs.store import job_key
from worker.records.draws import CHAINS, DrawsSpec

if TYPE_CHECKING:
    from worker.jobs.store import Job
    from worker.stores import Stores

PER_SHARD = 4


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


def end(stores: Stores, job: Job, shard: int) -> None:
    """End a shard, as its task does."""
    if shard == 0:
        for other in range(1, min(job.chains, PER_SHARD * 100)):
            if other < DrawsSpec.from_dict(job.spec).shards:
                stores.queue.enqueue_shard(job, other)
    stores.queue.open_next(job, shard)
    stores.jobs.advance(job.id, job.round, shard, PER_SHARD)


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
        stores.queue.open_next(job, 0)
        assert waiting(stores) == [1, 2, 3, 4]
    stores.jobs.advance(job.id, 0, 4, 1)
    take(stores, job, 4)
    stores.queue.open_next(job, 0)
    assert waiting(stores) == [1, 2, 3]


def test_shards_opened_by_another_version_are_skipped(stores: Stores) -> None:
    """Shards that an older version opened or began are skipped, and the next one is opened."""
    job = running(stores, 12)
    for shard in range(CHAINS):
        stores.queue.enqueue_shard(job, shard)
    stores.jobs.advance(job.id, 0, 4, 1)
    stores.queue.enqueue_shard(job, 5)
    stores.queue.open_next(job, 2)
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
    stores.queue.open_next(job, 0)
    assert list(Shards(stores.client).widen(job, 9, 8)) == []
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
            for shard in Shards(stores.client).widen(job, shards, data.draw(st.integers(1, 8))):
                stores.queue.enqueue_shard(job, shard)
        else:
            shard = data.draw(st.sampled_from(open_))
            take(stores, job, shard)
            if step == "lose":
                lost += 1
                continue
            if step == "older" and shard + CHAINS < shards:
                stores.queue.enqueue_shard(job, shard + CHAINS)
                stores.jobs.advance(job.id, 0, shard, PER_SHARD)
            else:
                end(stores, job, shard)
                if step == "repeat":
                    stores.queue.open_next(job, shard)
            begun[shard] += 1
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert min(begun) >= 1
