"""Samplers of real workers: requests, and deaths in between."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

import glle_engine
from glle_engine import manifolds
from service.submission.waiting import requested_draw
from tests.conftest import cached_draw, refusal, until
from tests.processes import children, name_of
from tests.worker.execution.workers import enqueued_fit, worker
from worker.base.problems import ProblemError
from worker.execution import process_guard, sampler
from worker.execution.draws import make_draws
from worker.execution.sampler import ResidentPosteriors, SamplerLoop
from worker.jobs.draw_stream import MAX_SENT_BYTES, DrawBatch, DrawRequest, DrawStream, RequestsInHand
from worker.records.draws import DrawAddress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from glle_engine import Draw, Posterior
    from worker.base.settings import Settings
    from worker.records.cache_entry import Entry
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

N = 800  # of which the embedding is trusted: an untrusted one makes a fit search for a better n_neighbors
pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def fit_posterior(stores: Stores, n: int) -> PosteriorRecord:
    """Return a posterior that a worker fits."""
    job = enqueued_fit(stores, n)
    until(lambda: stores.jobs.fetch(job.id).status == "succeeded")
    return stores.posteriors.fetch(job.subject)


Outcome: TypeAlias = "Entry | BaseException | None"


def outcomes(stores: Stores, record: PosteriorRecord, *keys: DrawAddress, wait: float = 20.0) -> list[Outcome]:
    """Request draws at the same time; return the draws, or the errors."""

    async def run() -> list[Outcome]:
        requests = (requested_draw(stores, record, key, wait) for key in keys)
        return await asyncio.gather(*requests, return_exceptions=True)

    return asyncio.run(run())


def request_draw(stores: Stores, record: PosteriorRecord, key: DrawAddress, wait: float = 20.0) -> list[Outcome]:
    """Request a draw, and return it in a list; assert that there is no error."""
    (outcome,) = drawn = outcomes(stores, record, key, wait=wait)
    assert not isinstance(outcome, BaseException), outcome
    return drawn


def key(index: int, seed: int = 0, scale: float = 1.0) -> DrawAddress:
    """Return the address of a draw."""
    return DrawAddress(seed, index, scale, "posterior", "procrustes")


def batch_of(*keys: DrawAddress) -> DrawBatch:
    """Return requests for draws of one posterior."""
    name = "post_1 posterior procrustes"
    return DrawBatch([DrawRequest("stream", str(number), name, each, {}) for number, each in enumerate(keys)])


def sampler_of(pid: int) -> int:
    """Return the pid of a worker's sampler."""
    until(lambda: children(pid, "glle-sampler"))
    return children(pid, "glle-sampler")[0]


@pytest.fixture
def resident(stores: Stores, settings: Settings) -> Iterator[tuple[int, PosteriorRecord]]:
    """Run a worker; yield its pid, and the record of a posterior."""
    with worker(settings, "resident") as process:
        yield process.pid, fit_posterior(stores, N)


def test_requests_have_the_bits_of_the_engine(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """Concurrent requests with several seeds and scales return the engine's draws; their lane groups are cached.

    A request with a scale beyond the range of float64 fails, and the requests that are drawn with it do not.
    """
    _, record = resident
    posterior = stores.posteriors.load(record)
    keys = [key(6), key(1, seed=3), key(2, scale=0.5), key(6), key(70), key(2, scale=1e300)]
    *entries, failed = outcomes(stores, record, *keys)
    assert isinstance(failed, ProblemError)
    assert failed.problem.code == "no-convergence"
    for entry, wanted in zip(entries, keys, strict=False):
        assert not isinstance(entry, BaseException | None)
        direct = posterior.draw(wanted.index, seed=wanted.seed, scale=wanted.scale)
        assert entry.arrays["embedding"].tobytes() == direct.embedding.tobytes()
    assert request_draw(stores, record, key(9, seed=8)) != [None]
    until(lambda: all(cached_draw(stores, record.id, key(index, seed=8)) for index in (8, 9, 10, 11)))
    assert not any(job for _, job in stores.jobs.iterate(kind="draws")), "a request is no job"
    until(lambda: ("sampler_draws", "drawn") in stores.counts.read()[0])
    counters, histograms = stores.counts.read()
    assert counters["sampler_draws", "requested"] <= counters["sampler_draws", "drawn"]
    assert sum(histograms["task_seconds", "draws", "queued"].counts) > 0


def test_a_killed_sampler_loses_no_request(stores: Stores, resident: tuple[int, PosteriorRecord]) -> None:
    """Requests that a killed sampler has read are answered by its successor.

    After a loss of the cache the draw is made again, with the same bits. A request for a deleted posterior is refused.
    """
    pid, record = resident
    first = sampler_of(pid)
    os.kill(first, signal.SIGSTOP)

    async def run() -> Entry | None:
        request = asyncio.create_task(requested_draw(stores, record, key(3), 20.0))
        await asyncio.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        return await request

    drawn = asyncio.run(run())
    assert drawn is not None
    second = sampler_of(pid)
    assert second != first
    stores.cache.client.flushall()
    until(lambda: request_draw(stores, record, key(3)) != [None])  # a job's work for `LATEST_SECONDS`
    (again,) = request_draw(stores, record, key(3))
    assert not isinstance(again, BaseException | None)
    assert again.meta["sha256"] == drawn.meta["sha256"]
    os.kill(second, signal.SIGKILL)  # its successor has no posterior in memory
    stores.posteriors.delete(record.id)
    (refused,) = outcomes(stores, record, key(4))
    assert isinstance(refused, ProblemError)
    assert refused.problem.code == "posterior-not-found"


@pytest.mark.parametrize("is_small", [True, False])
def test_answers_without_the_draws_wait_for_the_cache(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, *, is_small: bool
) -> None:
    """An answer that carries a small draw is sent before the draw is cached; other answers, afterwards.

    A request for another draw of the same lane group makes no second draw.
    """
    posterior = glle_engine.fit(manifolds.make("s_curve", 200, seed=0).X)
    loop = SamplerLoop(stores, "here", bytearray(1))
    group = [key(index) for index in range(4)]
    made: list[Sequence[DrawAddress]] = []
    published: list[tuple[list[int], list[bool]]] = []

    def make(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
        made.append(keys)
        return make_draws(posterior, keys)

    def publish(_: object, batch: DrawBatch, outcome: str, **__: object) -> None:
        assert outcome == "drawn"
        published.append(
            (
                [key.index for key in batch.keys],
                [cached_draw(stores, batch.posterior, each) is not None for each in group],
            )
        )

    monkeypatch.setattr(sampler, "MAX_SENT_BYTES", MAX_SENT_BYTES if is_small else 0)
    monkeypatch.setattr(sampler, "make_draws", make)
    monkeypatch.setattr(DrawStream, "finish", publish)
    monkeypatch.setattr(SamplerLoop, "_posterior", lambda *_: posterior)
    with loop._writer:
        for wanted in ([key(2), key(1)], [key(0), key(3)], [key(4)]):
            loop._draw(batch_of(*wanted))
    assert [set(keys) for keys in made] == [set(group), {key(index) for index in range(4, 8)}]
    assert published == [([2, 1], [not is_small] * 4), ([0, 3], [True] * 4), ([4], [True] * 4)]


def test_a_posterior_of_other_numbers_is_not_drawn_from(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is refused if the posterior has another version of results, or if its file is damaged."""
    loop, record = SamplerLoop(stores, "here", bytearray(1)), stores.posteriors.fetch(posterior_id)
    other = replace(record, provenance={**record.provenance, "numbers": "9.9.9"})
    with monkeypatch.context() as patch:
        patch.setattr(stores.posteriors, "fetch", lambda _: other)
        assert refusal(loop._posterior, posterior_id).code == "other-numbers"
    stores.files.bucket.local_path(record.file.path).unlink()
    assert refusal(loop._posterior, posterior_id).code == "posterior-damaged"


def test_a_full_lane_group_is_drawn_before_further_requests_are_read(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are read only while the next lane group has room, and while little work is in hand."""
    loop = SamplerLoop(stores, "here", bytearray(1))
    reads: list[int] = []

    def read(_: DrawStream, count: int, __: float) -> list[DrawRequest]:
        reads.append(count)
        return []

    monkeypatch.setattr(DrawStream, "read", read)
    names = "aaab"
    loop._ahead = 8
    loop._waiting.add(
        DrawRequest("s", str(number), f"{name} p a", key(number), {}) for number, name in enumerate(names)
    )
    loop._read()
    loop._waiting.add([DrawRequest("s", "4", "a p a", key(4), {})])
    loop._read()
    assert reads == [8]
    loop._waiting = RequestsInHand()
    loop._waiting.add(DrawRequest("s", str(number), f"{number} p a", key(number), {}) for number in range(8))
    loop._read()
    assert reads == [8]


def test_a_request_that_ends_samplers_is_refused(stores: Stores, settings: Settings, tmp_path: Path) -> None:
    """A request whose draw kills the sampler is refused after three attempts; other requests are answered.

    A sampler that hangs in a draw is killed, and its successor answers the request.
    """
    program = f"""
import os, pathlib, signal, time
from worker.execution import sampler
sampler.HUNG_SECONDS = 0.5
real, once = sampler.make_draws, pathlib.Path({str(tmp_path / "hung")!r})
def make(posterior, keys):
    if any(key.seed == 666 for key in keys):
        os.kill(os.getpid(), signal.SIGKILL)
    if any(key.seed == 777 for key in keys) and not once.exists():
        once.touch()
        time.sleep(600)
    return real(posterior, keys)
sampler.make_draws = make
"""
    with worker(settings, "poisoned", program):
        record = fit_posterior(stores, N)
        failed, *others = outcomes(stores, record, key(0, seed=666), key(1, seed=5), key(2, seed=6), wait=60.0)
        assert isinstance(failed, ProblemError)
        assert failed.problem.code == "draw-ends-worker"
        assert all(not isinstance(entry, BaseException | None) for entry in others)
        assert request_draw(stores, record, key(0, seed=777), wait=60.0) != [None]
    assert (tmp_path / "hung").exists()


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_signal_during_the_start_stops_the_worker(stores: Stores, settings: Settings, delay: float) -> None:
    """One SIGTERM ends the worker, even while its children are being forked."""
    del stores
    with worker(settings, "starting") as process:
        until(lambda: any(name_of(child).startswith("glle-") for child in children(process.pid)))
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_lost_signal_is_repeated(stores: Stores, settings: Settings) -> None:
    """If the exception of an RQ worker's signal handler is lost, the signal is sent again, and the worker ends soon."""
    losing = """
import signal
from rq.utils import now
from worker.execution.worker import TaskWorker
def lose(worker, *_):
    worker._shutdown_requested_date = now()
    signal.signal(signal.SIGTERM, worker.request_force_stop)
TaskWorker.request_stop = lose
"""
    with worker(replace(settings, heartbeat=60), "losing", losing) as process:
        until(lambda: stores.client.hget("rq:worker:losing.batch.1", "state") == b"idle")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_resident_posteriors_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used posteriors are dropped beyond the bound, and all others when they are idle."""
    posterior = glle_engine.fit(manifolds.make("s_curve", 100, seed=0).X)
    residents = ResidentPosteriors(1000)
    for name in ("a:1", "b:1"):
        residents.keep(name, posterior, 100)
    assert residents.get("a:1") is posterior
    residents.keep("c:1", posterior, 100)
    assert [residents.get(name) is not None for name in ("a:1", "b:1", "c:1")] == [True, False, True]
    residents.keep("large:1", posterior, 10**6)
    assert [residents.get(name) is not None for name in ("a:1", "c:1", "large:1")] == [False, False, True]
    residents.drop_idle()
    assert residents.get("large:1") is posterior
    monkeypatch.setattr("worker.execution.sampler.IDLE_SECONDS", -1.0)
    residents.drop_idle()
    assert residents.get("large:1") is None


def test_a_sampler_that_grows_is_replaced(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler stops once its process has more memory than its limit, and not before."""
    loop = SamplerLoop(stores, "here", bytearray(1))
    loop._retire_if_large()
    assert not loop._is_stopping
    monkeypatch.setattr("worker.execution.sampler.resident_bytes", lambda: loop._max_bytes + 1)
    loop._retire_if_large()
    assert loop._is_stopping
