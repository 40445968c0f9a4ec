"""Draws evicted while a result is sent are computed again, and the response continues."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import redis

from service.encoding.aborted import ResponseAbortedError
from service.encoding.selection import Selection
from service.responses.draws import _DrawReader
from service.submission import jobs
from service.submission.jobs import wait_for_evicted
from tests.conftest import evict, until
from worker.records.cache_entry import Entry
from worker.records.draws import LANE_GROUP, DrawAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs.store import Job
    from worker.stores import Stores

KEYS = [DrawAddress(0, index, 1.0, "posterior", "none") for index in range(5)]
DRAWS = np.random.default_rng(0).normal(size=(5, 10, 2))


def store(stores: Stores) -> None:
    """Cache all draws."""
    for key, embedding in zip(KEYS, DRAWS, strict=True):
        arrays = {"embedding": embedding, "eigenvalues": np.zeros(2)}
        stores.draws.put("post_1", {key: Entry({"sha256": f"{key.index}"}, arrays)})


def result(stores: Stores, again: Callable[[], None]) -> _DrawReader:
    """Return a reader with its digests announced and one lane group per round trip."""
    recomputed = _DrawReader(stores.draws, "post_1", KEYS, Selection.of(None, 10, "points"), 2**19, again)
    recomputed.sha256()
    return recomputed


def test_draws_evicted_while_they_are_sent_are_recomputed(stores: Stores) -> None:
    """One request restores the draws; each is sent once, in order, with the same bits."""
    requests: list[None] = []

    def again() -> None:
        requests.append(None)
        store(stores)

    store(stores)
    read = result(stores, again)
    recomputed = read.start()
    evict(stores, f"{LANE_GROUP}:")
    assert np.array(list(recomputed)).tobytes() == DRAWS.tobytes()
    assert len(requests) == 1
    assert [head["sha256"] for head in read.heads] == ["0", "1", "2", "3", "4"]


def test_repeated_evictions_abort_the_response(stores: Stores) -> None:
    """Draws that are evicted again and again abort the response."""
    store(stores)
    recomputed = result(stores, lambda: None).start()
    evict(stores, f"{LANE_GROUP}:")
    with pytest.raises(ResponseAbortedError, match="too small"):
        list(recomputed)


def test_an_unreachable_cache_fails_before_the_response_starts(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read precedes the response; later failures abort it."""

    def away(*_: Any) -> Any:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(stores.draws, "get_many", away)
    with pytest.raises(redis.ConnectionError):
        result(stores, lambda: None).start()


@pytest.fixture
def ended(stores: Stores) -> Job:
    """A draws job that has succeeded."""
    spec = {"shards": 1}
    job, _ = stores.jobs.create(kind="summary", claim="c", posterior="post_1", spec=spec, total=1)
    stores.jobs.start(job.id)
    stores.jobs.succeed(job.id)
    return stores.jobs.fetch(job.id)


@pytest.mark.parametrize("end", ["succeed", "cancel"])
def test_the_wait_ends_with_the_job(stores: Stores, ended: Job, end: str) -> None:
    """The job is reopened; the response continues on success and aborts otherwise."""
    caught: list[BaseException | None] = []

    def wait() -> None:
        try:
            wait_for_evicted(stores, ended)
        except ResponseAbortedError as error:
            caught.append(error)
        else:
            caught.append(None)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: stores.jobs.fetch(ended.id).round == 1)
    assert not caught
    if end == "succeed":
        stores.jobs.start(ended.id)
        stores.jobs.succeed(ended.id)
    else:
        stores.jobs.cancel(ended.id)
    waiting.join()
    assert (caught[0] is None) == (end == "succeed")


def test_few_threads_wait(stores: Stores, ended: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many waits the response aborts, and the job stays closed."""
    monkeypatch.setattr(jobs, "_WAITING", threading.BoundedSemaphore(1))
    assert jobs._WAITING.acquire()
    with pytest.raises(ResponseAbortedError, match="too many"):
        wait_for_evicted(stores, ended)
    assert stores.jobs.fetch(ended.id).round == 0
