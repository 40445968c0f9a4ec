"""Streams of a running job: server-sent events, and draws as they are made; the tests play the worker."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from service.responses import streaming
from tests.conftest import until
from tests.service.conftest import check_problem, posterior_record, upload
from tests.service.responses.events import Event, parse_events
from worker.base.problems import refuse
from worker.records.cache_entry import Entry
from worker.records.draws import DrawsSpec
from worker.records.shares import SHARE, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from worker.jobs.store import Job
    from worker.stores import Stores

PROBLEM = refuse("internal-error", 500, "no", "none").problem


def running(stores: Stores) -> Job:
    """Return a running job."""
    spec = {"dataset": "ds_1"}
    job, _ = stores.jobs.create(kind="advice", claim="c", posterior=None, spec=spec, total=9)
    return stores.jobs.start(job.id)


@contextmanager
def following(client: httpx.Client, job: Job, events: int | None = None) -> Iterator[Iterator[Event]]:
    """Follow a job; yield its events."""
    headers = {"accept": "text/event-stream", **({} if events is None else {"last-event-id": str(events)})}
    with client.stream("GET", f"/v1/jobs/{job.id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield parse_events(answer.iter_lines())


def test_events_report_progress_and_the_end(client: httpx.Client, stores: Stores) -> None:
    """The current state, then each change with growing ids, then the whole job; then the stream closes."""
    job = running(stores)
    with following(client, job) as stream:
        first = next(stream)
        assert first[1:] == (
            "progress", {"status": "running", "done": 0, "total": 9, "stage": "started", "eta": None},
        )  # fmt: skip
        stores.jobs.progress(job.id, 2, 4, "weights")
        second = next(stream)
        assert second[1:] == ("progress", {"status": "running", "done": 2, "total": 4, "stage": "weights", "eta": None})
        stores.jobs.progress(job.id, 3, 4, "weights")
        third = next(stream)
        assert third[2]["eta"] > 0
        stores.jobs.succeed(job.id)
        (last,) = list(stream)
    assert last[1] == "end"
    assert last[2] == client.get(f"/v1/jobs/{job.id}").json()
    assert last[2]["status"] == "succeeded"
    ids = [event[0] for event in (first, second, third, last)]
    assert ids == sorted(set(ids))


def test_events_come_at_once(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notifications deliver a change long before the next look."""
    monkeypatch.setattr(streaming, "LOOK_SECONDS", 60.0)
    job = running(stores)
    with following(client, job) as stream:
        next(stream)
        until(lambda: stores.client.pubsub_numsub("glle:changed")[0][1])
        stores.jobs.fail(job.id, PROBLEM)
        assert next(stream)[2]["error"]["type"] == PROBLEM.to_dict()["type"]  # before the client's timeout, 30 s


def test_lost_notifications_are_recovered(client: httpx.Client, stores: Stores) -> None:
    """The look once a second finds an unpublished change."""
    job = running(stores)
    with following(client, job) as stream:
        next(stream)
        stores.client.hset(f"glle:job:{job.id}", mapping={"stage": "unheard", "sequence": 77})
        assert next(stream)[2]["stage"] == "unheard"
        stores.jobs.succeed(job.id)
        assert next(stream)[0] == 78


def test_last_event_id_resumes_without_repeating(client: httpx.Client, stores: Stores) -> None:
    """A client that reconnects gets only changes, and the end exactly once."""
    job = running(stores)
    with following(client, job) as stream:
        events = next(stream)[0]
    with following(client, job, events) as stream:
        stores.jobs.progress(job.id, 2, 4, "weights")
        again = next(stream)
        assert (again[0], again[2]["stage"]) == (events + 1, "weights")
    stores.jobs.progress(job.id, 3, 4, "weights")
    stores.jobs.succeed(job.id)
    with following(client, job, again[0]) as stream:
        ((number, name, end),) = list(stream)
    assert (name, end["status"]) == ("end", "succeeded")
    headers = {"last-event-id": str(number)}
    answer = client.get(f"/v1/jobs/{job.id}/events", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")


def test_silent_streams_have_heartbeats(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments keep a silent stream open."""
    monkeypatch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(streaming, "LOOK_SECONDS", 0.05)
    job = running(stores)
    with client.stream("GET", f"/v1/jobs/{job.id}/events") as answer:
        lines = answer.iter_lines()
        assert sum(line == streaming.HEARTBEAT.strip() for line in (next(lines) for _ in range(12))) >= 2


def test_a_disconnect_frees_all_resources(client: httpx.Client, stores: Stores, app: FastAPI) -> None:
    """A client that disconnects frees its slot while the job runs."""
    job = running(stores)
    for _ in range(3):
        with following(client, job) as stream:
            next(stream)
            assert app.state.stream_limiter.share.used == 1
        until(lambda: app.state.stream_limiter.share.used == 0)
    assert not any(each.waiters for each in stores.changes._subscriptions.values())


def test_head_of_an_endless_stream(client: httpx.Client, stores: Stores, app: FastAPI) -> None:
    """A stream is cancelled after its headers."""
    answer = client.head(f"/v1/jobs/{running(stores).id}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    until(lambda: app.state.stream_limiter.share.used == 0)


def test_streams_are_limited(
    client: httpx.Client, stores: Stores, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream beyond the limit, or that of its tenant, is 503 until another ends."""
    job = running(stores)
    share = app.state.stream_limiter.share
    for total, limit in ((1, UNLIMITED), (2, SHARE)):
        with monkeypatch.context() as patched:
            patched.setattr(share, "total", total)
            patched.setattr(share, "limit", lambda _, limit=limit: limit)
            with following(client, job) as stream:
                next(stream)
                answer = client.get(f"/v1/jobs/{job.id}/events")
                detail = check_problem(answer, 503, "too-many-streams")["detail"]
                assert detail == "1 streams of this tenant are open, of 1 in this process."
                assert int(answer.headers["retry-after"]) > 0
            until(lambda: not share.used)
            with following(client, job) as stream:
                assert next(stream)[1] == "progress"
            until(lambda: not share.used)


def test_invalid_event_requests_are_problems(client: httpx.Client) -> None:
    """Unknown jobs, types and ids are problems."""
    for headers, status, code in (
        ({}, 404, "job-not-found"),
        ({"accept": "application/json"}, 406, "not-acceptable"),
        ({"last-event-id": "yesterday"}, 422, "invalid-request"),
    ):
        check_problem(client.get("/v1/jobs/job_none/events", headers=headers), status, code)


def test_sixty_streams_hold_no_thread(client: httpx.Client, stores: Stores, app: FastAPI) -> None:
    """With more open streams than threads a request is served at once."""
    job = running(stores)
    opened = [client.stream("GET", f"/v1/jobs/{job.id}/events") for _ in range(60)]
    try:
        for stream in opened:
            stream.__enter__()
        until(lambda: app.state.stream_limiter.share.used == 60)
        assert client.get(f"/v1/jobs/{job.id}").status_code == 200
    finally:
        for stream in opened:
            stream.__exit__(None, None, None)
    until(lambda: app.state.stream_limiter.share.used == 0)


N, COUNT = 10, 40
NPY = {"accept": "application/x-npy"}
DRAWS = np.random.default_rng(0).normal(size=(COUNT, N, 2))
SPEC = DrawsSpec(
    n=N, p=2, n_draws=COUNT, first=0, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
    draw_seconds=1e-6 * N, shard_seconds=0.0,
)  # fmt: skip


@pytest.fixture
def job(client: httpx.Client, stores: Stores) -> Job:
    """A running draws job, in shards of one lane group."""
    stores.posteriors.create(posterior_record(dataset=upload(client), n=N))
    created, _ = stores.jobs.create(kind="draws", claim="c", posterior="post_1", spec=SPEC.to_dict(), total=SPEC.total)
    return stores.jobs.start(created.id)


def make(stores: Stores, job: Job, spec: DrawsSpec, shard: int) -> None:
    """Complete a shard as a worker does: stored before it is counted."""
    start, count = shard * spec.per_shard, spec.shard_size(shard)
    meta = [{"index": start + i, "scale": 1.0, "diagnostics": {}, "sha256": f"{start + i}"} for i in range(count)]
    arrays = {"embeddings": DRAWS[start : start + count], "eigenvalues": np.zeros((count, 2))}
    key = spec.result_key(job.subject, shard)
    assert stores.results.put(key, Entry({"draws": meta}, arrays), owners=[job.subject], job=job.id, tenant="default")
    stores.jobs.advance(job.id, shard, count)


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
        make(stores, job, SPEC, 1)  # out of order: nothing can be sent yet
        make(stores, job, SPEC, 0)
        assert take(raw, 8 * each) == DRAWS[:8].tobytes()
        for shard in range(2, SPEC.shards):
            make(stores, job, SPEC, shard)
        rest = b"".join(raw)
    body = head + DRAWS[:8].tobytes() + rest
    assert len(body) == length
    assert np.load(io.BytesIO(body)).tobytes() == DRAWS.tobytes()
    assert client.get(f"/v1/jobs/{job.id}/result", headers=NPY).content == body
    assert client.get(f"/v1/jobs/{job.id}/result?partial=true", headers=NPY).content == body


@pytest.mark.usefixtures("job")
def test_float32_and_a_grid(client: httpx.Client, stores: Stores) -> None:
    """The shape has the axis of the scales, the numbers the requested dtype."""
    spec = DrawsSpec(**{**SPEC.to_dict(), "n_draws": COUNT // 2, "scales": (0.5, 2.0), "grid": True})
    job, _ = stores.jobs.create(kind="draws", claim="g", posterior="post_1", spec=spec.to_dict(), total=spec.total)
    stores.jobs.start(job.id)
    with reading(client, job, dtype="float32") as (answer, raw):
        for shard in range(spec.shards):
            make(stores, job, spec, shard)
        array = np.load(io.BytesIO(b"".join(raw)))
        assert answer.headers["glle-scale"] == "0.5, 2.0"
    assert (array.shape, array.dtype) == ((2, COUNT // 2, N, 2), np.float32)
    assert array.tobytes() == DRAWS.astype(np.float32).tobytes()


@pytest.mark.parametrize("end", ["failed", "cancelled", "stopped", "deleted"])
def test_a_failed_job_aborts_the_response(
    client: httpx.Client, stores: Stores, job: Job, app: FastAPI, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """A client sees that an aborted result is incomplete."""
    make(stores, job, SPEC, 0)
    with reading(client, job) as (_, raw):
        take(raw, 4 * DRAWS[0].nbytes)
        if end == "cancelled":
            client.delete(f"/v1/jobs/{job.id}")
        elif end == "failed":
            stores.jobs._move(job.id, {"running": "failed"})
        elif end == "deleted":
            for shard in range(1, SPEC.shards):
                stores.jobs.advance(job.id, shard, SPEC.shard_size(shard))  # counted, and not there
        else:
            app.state.stream_limiter.stop(stores.changes)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            list(raw)
    app.state.stream_limiter.is_stopped = False
    until(lambda: app.state.stream_limiter.share.used == 0)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "service.encoding.arrays"]
    assert message.startswith("A response was aborted: ")


def test_results_without_parts_are_refused(
    client: httpx.Client, stores: Stores, job: Job, drawn_posterior: str
) -> None:
    """Only draws in npy have a partial result; an unknown scale waits for its calibration."""
    other, _ = stores.jobs.create(kind="advice", claim="a", posterior=None, spec={"dataset": "ds_1"}, total=1)
    check_problem(client.get(f"/v1/jobs/{other.id}/result?partial=true", headers=NPY), 422, "no-partial-result")
    as_json = client.get(f"/v1/jobs/{job.id}/result?partial=true", headers={"accept": "application/json"})
    check_problem(as_json, 406, "not-acceptable")
    spec = {**SPEC.to_dict(), "scales": ["auto"]}
    posterior = drawn_posterior.rpartition("/")[2]
    auto, _ = stores.jobs.create(kind="draws", claim="b", posterior=posterior, spec=spec, total=COUNT)
    answer = client.get(f"/v1/jobs/{auto.id}/result?partial=true", headers=NPY)
    assert (answer.status_code, answer.json()["id"]) == (202, auto.id)
    stores.posteriors.calibrate(posterior, {"scale": 2.5})
    with reading(client, auto) as (begun, _):
        assert begun.headers["glle-scale"] == "2.5"
