"""Tasks of shards: killed, interrupted by an outage of Redis, and reported."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.worker.execution import test_tasks
from tests.worker.execution.test_tasks import N, draws_job
from worker.execution import draws, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glle_engine import Draw, Posterior
    from worker.jobs.store import Job
    from worker.records.draws import DrawKey
    from worker.stores import Stores

_here, fitted = test_tasks._here, test_tasks.fitted


class KilledError(BaseException):
    """End of a process in the middle of a task."""


def before_each_group(monkeypatch: pytest.MonkeyPatch, call: Callable[[int], object]) -> None:
    """Call a function with the number of lane groups so far before each one."""
    numbers = count()

    def make(posterior: Posterior, keys: Sequence[DrawKey]) -> tuple[list[Draw], float]:
        call(next(numbers))
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", make)


@pytest.mark.parametrize("group", [1, 5, 9])
def test_a_killed_task_is_repeated_completely(
    stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    """The job ends with every draw."""
    job, spec = draws_job(stores, fitted, count=42, shard_seconds=9.0)
    assert spec.shards == 1

    def kill(number: int) -> None:
        if number == group:
            raise KilledError

    before_each_group(monkeypatch, kill)
    with pytest.raises(KilledError):
        tasks.draw(job.id, 0, 0)
    assert stores.jobs.fetch(job.id).status == "running"
    tasks.draw(job.id, 0, 0)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 42)
    assert all(stores.draws.contains(stores.posteriors.arrays_id(fitted), list(spec.draws())))


def test_a_task_that_waited_for_redis_makes_all_draws(
    stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts again by itself."""
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.0)
    job, _ = draws_job(stores, fitted, count=42, shard_seconds=9.0)

    def lose_the_server(number: int) -> None:
        if number == 5:
            raise redis.ConnectionError

    before_each_group(monkeypatch, lose_the_server)
    tasks.draw(job.id, 0, 0)
    ended = stores.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 42)


@pytest.mark.parametrize("progress_seconds", [0.0, 60.0])
def test_counted_draws_are_cached(
    stores: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch, progress_seconds: float
) -> None:
    """No report precedes the draws that it counts, although they are written meanwhile."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", progress_seconds)
    job, spec = draws_job(stores, fitted, count=64, shard_seconds=16e-6 * N)
    arrays_id = stores.posteriors.arrays_id(fitted)
    store, reported = draws.store_draws, []

    def store_slowly(*arguments: Any, **options: Any) -> None:
        time.sleep(0.01)
        store(*arguments, **options)

    def check(id_: str, round_: int, shard: int, count: int) -> Job | None:
        assert all(stores.draws.contains(arrays_id, spec.shard_keys(shard)[:count]))
        reported.append(count)
        return advance(id_, round_, shard, count)

    advance = stores.jobs.advance
    monkeypatch.setattr(tasks, "store_draws", store_slowly)
    monkeypatch.setattr(stores.jobs, "advance", check)
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert reported.count(spec.per_shard) == spec.shards
    assert (len(reported) > spec.shards) == (progress_seconds == 0)
