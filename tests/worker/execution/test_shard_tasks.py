"""Tasks that hold several shards of a job: killed, shared, and interrupted by requests and interactive tasks."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.conftest import until
from tests.worker.execution import test_tasks
from tests.worker.execution.test_tasks import N, draws_job
from worker.execution import draws, tasks
from worker.jobs.rq_types import script_keys
from worker.jobs.shards import taker_field
from worker.jobs.store import job_key
from worker.records.priority import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from glle_engine import Draw, Posterior
    from worker.records.draws import DrawKey
    from worker.stores import Stores

settings, _here, fitted, patient = test_tasks.settings, test_tasks._here, test_tasks.fitted, test_tasks.patient


class KilledError(BaseException):
    """End of a process in the middle of a task."""


def before_each_group(monkeypatch: pytest.MonkeyPatch, call: Callable[[int], object]) -> None:
    """Call a function with the number of lane groups so far before each one."""
    numbers = count()

    def make(posterior: Posterior, keys: Sequence[DrawKey]) -> tuple[list[Draw], float]:
        call(next(numbers))
        return draws.make_draws(posterior, keys)

    monkeypatch.setattr(tasks, "make_draws", make)


@pytest.mark.parametrize("group", [1, 2, 5, 9])
def test_a_killed_task_is_repeated_completely(
    patient: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    """The repeated task returns the shards that the killed one held, and the job ends with every draw."""
    job, spec = draws_job(patient, fitted, count=42)
    patient.queue.enqueue(job)
    patient.queue._queue.remove(f"{job.id}-r0-s0")

    def kill(number: int) -> None:
        if number == group:
            raise KilledError

    before_each_group(monkeypatch, kill)
    with pytest.raises(KilledError):
        tasks.draw(job.id, 0, 0)
    assert patient.jobs.fetch(job.id).status == "running"
    tasks.draw(job.id, 0, 0)
    ended = patient.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 42)
    assert all(patient.draws.contains(patient.posteriors.arrays_id(fitted), list(spec.draws())))
    assert patient.queue.length() == 0


def test_a_task_that_waited_for_redis_returns_its_shards(
    patient: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts again by itself, and makes the shards that it held."""
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.0)
    job, _ = draws_job(patient, fitted, count=42)
    patient.queue.enqueue(job)

    def lose_the_server(number: int) -> None:
        if number == 5:
            raise redis.ConnectionError

    before_each_group(monkeypatch, lose_the_server)
    tasks.draw(job.id, 0, 0, is_repeated=False)
    ended = patient.jobs.fetch(job.id)
    assert (ended.status, ended.done) == ("succeeded", 42)


def test_two_tasks_share_a_job(patient: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second task takes other shards meanwhile; every draw is made once."""
    job, spec = draws_job(patient, fitted, count=64)
    patient.queue.enqueue(job)
    patient.queue._queue.remove(f"{job.id}-r0-s0")
    groups: list[int] = []

    def begin_another(number: int) -> None:
        groups.append(number)
        if number == 3:
            waiting = patient.queue._queue.pop_job_id()
            assert waiting is not None
            tasks.draw(job.id, 0, int(waiting.rpartition("-s")[2]), is_repeated=False)

    before_each_group(monkeypatch, begin_another)
    tasks.draw(job.id, 0, 0, is_repeated=False)
    ended = patient.jobs.fetch(job.id)
    assert (ended.status, ended.done, len(groups)) == ("succeeded", 64, spec.shards)


@pytest.mark.parametrize("progress_seconds", [0.0, 60.0])
def test_counted_draws_are_cached(
    patient: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch, progress_seconds: float
) -> None:
    """No report precedes the draws that it counts, although they are written meanwhile."""
    monkeypatch.setattr(tasks, "PROGRESS_SECONDS", progress_seconds)
    job, spec = draws_job(patient, fitted, count=64, shard_seconds=16e-6 * N)
    arrays_id = patient.posteriors.arrays_id(fitted)
    store, reported = draws.store_draws, []

    def store_slowly(*arguments: Any, **options: Any) -> None:
        time.sleep(0.01)
        store(*arguments, **options)

    def check(counts: Mapping[int, int]) -> Mapping[int, int]:
        for shard, done in counts.items():
            assert all(patient.draws.contains(arrays_id, spec.shard_keys(shard)[:done]))
            reported.append(done)
        return counts

    advance, next_shard = patient.jobs.advance, patient.queue.next_shard
    monkeypatch.setattr(tasks, "store_draws", store_slowly)
    monkeypatch.setattr(patient.jobs, "advance", lambda id_, round_, counts: advance(id_, round_, check(counts)))
    monkeypatch.setattr(
        patient.queue, "next_shard", lambda *args, counts, **more: next_shard(*args, counts=check(counts), **more)
    )
    tasks.draw(job.id, 0, 0)
    assert patient.jobs.fetch(job.id).status == "succeeded"
    assert reported.count(spec.per_shard) == spec.shards


@pytest.mark.parametrize(("n", "within"), [(N, []), (100 * N, [None, None])])
def test_requests_are_looked_for_between_shards_and_within_long_ones(
    patient: Stores, fitted: str, n: int, within: list[None]
) -> None:
    """The end of a shard reports whether requests wait; in a shard with much work, by its `n`, the caller looks."""
    job, spec = draws_job(patient, fitted, n=n, count=48, chains=1, shard_seconds=9.0)
    assert spec.shards == 4
    looks: list[bool | None] = []

    def between_groups(is_requested: bool | None) -> None:  # noqa: FBT001 # as the task calls it
        looks.append(is_requested)
        if is_requested is False:
            patient.client.rpush(f"{script_keys(job.queue)[0]}:asked", "default")

    tasks.draw(job.id, 0, 0, between_groups=between_groups)
    assert looks == [*within, False, *within, True, *within, True, *within]


def test_an_interactive_task_waits_for_the_shards_that_are_taken(
    patient: Stores, fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch with time left ends after the shard that it has taken during the last one, and the others wait."""
    job, _ = draws_job(patient, fitted, count=64)
    patient.queue.enqueue(job)
    patient.queue._queue.remove(f"{job.id}-r0-s0")
    groups: list[int] = []

    def enqueue_interactive(number: int) -> None:
        groups.append(number)
        if number == 2:
            until(lambda: patient.client.hexists(job_key(job.id), taker_field(0, 3)))
            terms = Terms(priority="interactive")
            fit, _ = patient.jobs.create(kind="fit", claim="i", posterior="post_1", spec={}, total=1, terms=terms)
            patient.queue.enqueue(fit)

    before_each_group(monkeypatch, enqueue_interactive)
    tasks.draw(job.id, 0, 0, is_repeated=False)
    assert groups == [0, 1, 2, 3]
    assert patient.jobs.fetch(job.id).done == 16
    waiting = patient.queue._queue.get_job_ids()
    assert sorted(waiting[1:]) == sorted(f"{job.id}-r0-s{shard}" for shard in (4, 5, 6, 7))
