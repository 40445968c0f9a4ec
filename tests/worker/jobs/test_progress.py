"""Progress in job records: sequence numbers, notifications, remaining time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from worker.base.clock import now_ms
from worker.jobs.lua_scripts import CHANGED, PROGRESS_MS

if TYPE_CHECKING:
    from worker.jobs.store import Job
    from worker.stores import Stores


def running(stores: Stores, total: int = 100) -> Job:
    """Return a running draws job."""
    job, _ = stores.jobs.create(kind="draws", claim="c", posterior="post_1", spec={}, total=total)
    return stores.jobs.start(job.id)


def ago(job: Job, seconds: float) -> Job:
    """Return the job with a stage that began some seconds ago."""
    return replace(job, since=now_ms() - int(1000 * seconds))


def test_eta_follows_from_the_rate_of_the_stage(stores: Stores) -> None:
    """40 of 100 in 4 s leave 6 s; work of earlier stages does not count."""
    job = running(stores)
    stores.jobs.advance(job.id, 0, 0, 20)
    stores.jobs.stage(job.id, "drawing")
    stores.jobs.advance(job.id, 0, 1, 40)
    assert ago(stores.jobs.fetch(job.id), 4.0).eta == pytest.approx(4.0, abs=0.1)
    stores.jobs.advance(job.id, 0, 1, 60)
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


def test_every_change_has_a_number(stores: Stores) -> None:
    """Each change of status, stage and count increases it; a repeated value does not."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    numbers = [job.sequence, stores.jobs.start(job.id).sequence]
    for done, stage in ((0, "neighbors"), (1, "neighbors"), (1, "neighbors"), (0, "weights")):
        stores.jobs.progress(job.id, done, 2, stage)
        numbers.append(stores.jobs.fetch(job.id).sequence)
    stores.jobs.succeed(job.id)
    numbers.append(stores.jobs.fetch(job.id).sequence)
    assert numbers == [0, 1, 2, 3, 3, 4, 5]


def test_changes_are_published_and_progress_is_throttled(stores: Stores) -> None:
    """A hundred counts in a row are published a few times; each change of status is published."""
    job = running(stores, total=1000)
    with stores.client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call] # redis-py's
        channel.subscribe(CHANGED)
        assert channel.get_message(timeout=5) is None, "the confirmation of the subscription is ignored"
        started = time.monotonic()
        for count in range(1, 101):
            stores.jobs.advance(job.id, 0, 0, count)
        most = 1 + (time.monotonic() - started) * 1000 / PROGRESS_MS
        stores.jobs.cancel(job.id)
        stores.jobs.finish_cancel(job.id)
        result = 0
        while (message := channel.get_message(timeout=0.2)) is not None:
            assert message["data"] == job.id.encode()
            result += 1
    assert 3 <= result <= 2 + most
