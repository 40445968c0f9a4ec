"""Draws over HTTP while their job runs; the tests play the worker."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.conftest import until
from worker.records.cache_entry import Entry
from worker.records.draws import DrawsSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from worker.jobs.store import Job
    from worker.stores import Stores

N, COUNT = 10, 40
NPY = {"accept": "application/x-npy"}
DRAWS = np.random.default_rng(0).normal(size=(COUNT, N, 2))
SPEC = DrawsSpec(
    n=N, p=2, count=COUNT, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
    draw_seconds=1e-6 * N, shard_seconds=0.0,
)  # fmt: skip


@pytest.fixture
def job(stores: Stores) -> Job:
    """A running draws job, in shards of one lane group."""
    created, _ = stores.jobs.create(kind="draws", claim="c", posterior="post_1", spec=SPEC.to_dict(), total=SPEC.total)
    return stores.jobs.start(created.id)


def make(stores: Stores, job: Job, shard: int, count: int | None = None) -> None:
    """Complete a shard or its first draws as a worker does: cached before it is counted."""
    count = SPEC.shard_size(shard) if count is None else count
    start = shard * SPEC.per_shard
    for position in range(start, start + count):
        entry = Entry(
            {"index": position, "sha256": f"{position}"}, {"embedding": DRAWS[position], "eigenvalues": np.zeros(2)}
        )
        stores.draws.put(job.subject, {SPEC.key(position): entry})
    stores.jobs.advance(job.id, job.round, shard, count)


@contextmanager
def reading(client: httpx.Client, job: Job, **query: Any) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
    """Read a partial result; yield the response and its bytes."""
    path = f"/v1/jobs/{job.id}/result"
    with client.stream("GET", path, params={"partial": True, **query}, headers=NPY) as answer:
        assert answer.status_code == 200
        yield answer, answer.iter_raw(1)


def take(raw: Iterator[bytes], size: int) -> bytes:
    """Read this many bytes."""
    return b"".join(next(raw) for _ in range(size))


def test_draws_are_sent_in_order_as_they_are_computed(client: httpx.Client, stores: Stores, job: Job) -> None:
    """The header has the shape at once; a later shard waits for the earlier; the sum is the result."""
    each = DRAWS[0].nbytes
    assert SPEC.shards == 10
    with reading(client, job) as (answer, raw):
        length = int(answer.headers["content-length"])
        head = take(raw, length - COUNT * each)
        assert answer.headers["glle-scale"] == "1.0"
        make(stores, job, 1)  # out of order: nothing can be sent yet
        make(stores, job, 0, count=2)
        assert take(raw, 2 * each) == DRAWS[:2].tobytes()
        make(stores, job, 0)
        assert take(raw, 6 * each) == DRAWS[2:8].tobytes()
        for shard in range(2, SPEC.shards):
            make(stores, job, shard)
        rest = b"".join(raw)
    body = head + DRAWS[:8].tobytes() + rest
    assert len(body) == length
    assert np.load(io.BytesIO(body)).tobytes() == DRAWS.tobytes()
    assert client.get(f"/v1/jobs/{job.id}/result", headers=NPY).content == body
    assert client.get(f"/v1/jobs/{job.id}/result?partial=true", headers=NPY).content == body


def test_float32_and_a_grid(client: httpx.Client, stores: Stores) -> None:
    """The shape has the axis of the scales, the numbers the requested dtype."""
    spec = DrawsSpec(**{**SPEC.to_dict(), "count": COUNT // 2, "scales": (0.5, 2.0), "grid": True})
    job, _ = stores.jobs.create(kind="draws", claim="g", posterior="post_1", spec=spec.to_dict(), total=spec.total)
    stores.jobs.start(job.id)
    with reading(client, job, dtype="float32") as (answer, raw):
        for position in range(spec.total):
            arrays = {"embedding": DRAWS[position], "eigenvalues": np.zeros(2)}
            stores.draws.put(job.subject, {spec.key(position): Entry({"sha256": f"{position}"}, arrays)})
        for shard in range(spec.shards):
            stores.jobs.advance(job.id, 0, shard, spec.shard_size(shard))
        array = np.load(io.BytesIO(b"".join(raw)))
        assert answer.headers["glle-scale"] == "0.5, 2.0"
    assert (array.shape, array.dtype) == ((2, COUNT // 2, N, 2), np.float32)
    assert array.tobytes() == DRAWS.astype(np.float32).tobytes()


@pytest.mark.parametrize("end", ["failed", "cancelled", "stopped"])
def test_a_failed_job_aborts_the_response(
    client: httpx.Client, stores: Stores, job: Job, app: FastAPI, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """A client sees that an aborted result is incomplete."""
    make(stores, job, 0)
    with reading(client, job) as (_, raw):
        take(raw, 4 * DRAWS[0].nbytes)
        if end == "cancelled":
            client.delete(f"/v1/jobs/{job.id}")
        elif end == "failed":
            stores.jobs._move(job.id, {"running": "failed"})
        else:
            app.state.stream_limiter.stop(stores.changes)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            list(raw)
    app.state.stream_limiter.is_stopped = False
    until(lambda: app.state.stream_limiter.open == 0)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "service.encoding.aborted"]
    assert message.startswith("A response was aborted: ")


def test_draws_evicted_before_they_are_sent_are_recomputed(client: httpx.Client, stores: Stores, job: Job) -> None:
    """The job is reopened after its end, and the response continues."""
    make(stores, job, 0)
    with reading(client, job) as (_, raw):
        take(raw, 4 * DRAWS[0].nbytes)
        for shard in range(1, SPEC.shards):
            make(stores, job, shard)
            stores.draws.delete(job.subject, SPEC.key(shard * SPEC.per_shard))
        until(lambda: stores.jobs.fetch(job.id).round == 1)
        again = stores.jobs.start(job.id)
        for shard in range(SPEC.shards):
            make(stores, again, shard)
        assert b"".join(raw).endswith(DRAWS[4:].tobytes())


def test_repeated_evictions_abort_the_response(
    client: httpx.Client, stores: Stores, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache that keeps nothing aborts the response."""
    make(stores, job, 0)
    with reading(client, job) as (_, raw):
        for round_ in range(5):
            until(lambda: stores.jobs.fetch(job.id).round == round_)  # noqa: B023 # called within the round
            now = stores.jobs.start(job.id)
            for shard in range(SPEC.shards):
                stores.jobs.advance(now.id, round_, shard, SPEC.shard_size(shard))  # counted, and not there
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            list(raw)
    assert "again and again" in caplog.text


def test_a_disconnect_frees_all_resources(
    client: httpx.Client, stores: Stores, job: Job, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that disconnects frees its slot and its wait."""
    monkeypatch.setattr("service.responses.streaming.MAX_STREAMS", 1)
    with reading(client, job) as (_, raw):
        take(raw, 8)
        assert app.state.stream_limiter.open == 1
        refused = client.get(f"/v1/jobs/{job.id}/result?partial=true", headers=NPY)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:glle:problem:too-many-streams")
    until(lambda: app.state.stream_limiter.open == 0)
    until(lambda: not any(each.waiters for each in stores.changes._subscriptions.values()))


def test_results_without_parts_are_refused(client: httpx.Client, stores: Stores, job: Job, drawn: str) -> None:
    """Only draws in npy have a partial result; an unknown scale waits for its calibration."""
    other, _ = stores.jobs.create(kind="advice", claim="a", posterior=None, spec={"dataset": "ds_1"}, total=1)
    answer = client.get(f"/v1/jobs/{other.id}/result?partial=true", headers=NPY)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:no-partial-result")
    as_json = client.get(f"/v1/jobs/{job.id}/result?partial=true", headers={"accept": "application/json"})
    assert (as_json.status_code, as_json.json()["type"]) == (406, "urn:glle:problem:not-acceptable")
    spec = {**SPEC.to_dict(), "scales": ["auto"]}
    posterior = drawn.rpartition("/")[2]
    auto, _ = stores.jobs.create(kind="draws", claim="b", posterior=posterior, spec=spec, total=COUNT)
    answer = client.get(f"/v1/jobs/{auto.id}/result?partial=true", headers=NPY)
    assert (answer.status_code, answer.json()["id"]) == (202, auto.id)
    stores.posteriors.calibrate(posterior, {"scale": 2.5})
    with reading(client, auto) as (begun, _):
        assert begun.headers["glle-scale"] == "2.5"
