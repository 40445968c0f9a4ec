"""Server-sent events of a job over HTTP; the tests play the worker."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from service.responses import streaming
from tests.conftest import until
from tests.service.responses.events import Event, parsed
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
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
        yield parsed(answer.iter_lines())


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
        started = time.monotonic()
        stores.jobs.fail(job.id, PROBLEM)
        assert next(stream)[2]["error"]["type"] == PROBLEM.to_dict()["type"]
        assert time.monotonic() - started < 30


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
            assert app.state.stream_limiter.open == 1
        until(lambda: app.state.stream_limiter.open == 0)
    assert not any(each.waiters for each in stores.changes._subscriptions.values())


def test_streams_end_when_the_service_stops(client: httpx.Client, stores: Stores, app: FastAPI) -> None:
    """A stream ends regularly, so that its client reconnects with the last id."""
    job = running(stores)
    with following(client, job) as stream:
        next(stream)
        app.state.stream_limiter.stop(stores.changes)
        try:
            assert list(stream) == []
        finally:
            app.state.stream_limiter.is_stopped = False
    assert stores.jobs.fetch(job.id).is_open


def test_streams_are_limited(
    client: httpx.Client, stores: Stores, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream beyond the limit is 503 until another ends."""
    job = running(stores)
    monkeypatch.setattr(streaming, "MAX_STREAMS", 1)
    with following(client, job) as stream:
        next(stream)
        answer = client.get(f"/v1/jobs/{job.id}/events")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:too-many-streams")
        assert int(answer.headers["retry-after"]) > 0
    until(lambda: app.state.stream_limiter.open == 0)
    with following(client, job) as stream:
        assert next(stream)[1] == "progress"


def test_streams_of_a_tenant_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant at its limit is refused while others still get streams; a freed place can be taken again."""
    monkeypatch.setattr(streaming, "MAX_TENANT_STREAMS", 2)
    counted = streaming.StreamLimiter()
    held = [counted.enter("a"), counted.enter("a")]
    with pytest.raises(ProblemError, match="2 streams of this tenant are open; 2 are allowed") as caught:
        counted.enter("a")
    assert caught.value.problem.code == "too-many-streams"
    other = counted.enter("b")
    held[0].close()
    held[0].close()
    held[0] = counted.enter("a")
    for place in (*held, other):
        place.close()
    assert counted.open == 0


def test_a_burst_of_streams_stays_within_the_limit(
    stores: Stores, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forty simultaneous requests by slow clients, exactly the allowed number get a stream."""
    job = running(stores)
    statuses: list[int] = []

    async def follow(over: asyncio.Event) -> None:
        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if requests:
                return requests.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                await asyncio.sleep(0.3)  # others come meanwhile
                statuses.append(message["status"])
                if len(statuses) == 40:
                    over.set()

        path = f"/v1/jobs/{job.id}/events"
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await app(scope, receive, send)

    async def burst() -> None:
        over = asyncio.Event()
        await asyncio.gather(*(follow(over) for _ in range(40)))

    monkeypatch.setattr(streaming, "MAX_STREAMS", 3)
    asyncio.run(burst())
    assert (statuses.count(200), statuses.count(503)) == (3, 37)
    assert app.state.stream_limiter.open == 0


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("job_none", {}, 404, "job-not-found"),
        ("job_none", {"accept": "application/json"}, 406, "not-acceptable"),
        ("job_none", {"last-event-id": "yesterday"}, 422, "invalid-request"),
    ],
)
def test_invalid_event_requests_are_problems(
    client: httpx.Client, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    """Unknown jobs, types and ids are problems."""
    answer = client.get(f"/v1/jobs/{path}/events", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:glle:problem:{code}")


def test_sixty_streams_hold_no_thread(client: httpx.Client, stores: Stores, app: FastAPI) -> None:
    """With more open streams than threads a request is served at once."""
    job = running(stores)
    opened = [client.stream("GET", f"/v1/jobs/{job.id}/events") for _ in range(60)]
    try:
        for stream in opened:
            stream.__enter__()
        until(lambda: app.state.stream_limiter.open == 60)
        assert client.get(f"/v1/jobs/{job.id}").status_code == 200
    finally:
        for stream in opened:
            stream.__exit__(None, None, None)
    until(lambda: app.state.stream_limiter.open == 0)
