"""Health and metrics, with and without Redis."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import redis

from service.app import create_app
from service.server import metrics
from tests.conftest import until
from tests.service.conftest import register_worker, serving
from worker.base.versions import queue_name
from worker.operations import health
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from worker.base.settings import Settings


QUEUE = queue_name()


@pytest.fixture
def away(settings: Settings) -> Iterator[httpx.Client]:
    """A client of an app without Redis."""
    nowhere = "redis://127.0.0.1:1/0"
    stores = Stores.connect(replace(settings, redis_url=nowhere, cache_url=nowhere))
    with serving(create_app(stores)) as client:
        yield client
    stores.close()


def test_redis_away_is_503_and_the_process_lives(away: httpx.Client) -> None:
    """Routes that need Redis are 503 with the remedy; livez and the documentation answer."""
    for path in ("/v1/jobs", "/v1/posteriors/post_1", "/readyz", "/v1/jobs/x?wait=5"):
        answer = away.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-unavailable")
        assert answer.json()["remedy"]
        assert answer.headers["retry-after"] == "5"
    for path in ("/livez", "/docs", "/v1/info", "/v1/datasets"):
        assert away.get(path).status_code == 200
    assert "glle_redis_up 0.0" in away.get("/metrics").text


def test_a_loading_server_is_503(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted server replies LOADING until its log is read."""

    def loading(*_: object, **_options: object) -> None:
        raise redis.BusyLoadingError("Redis is loading the dataset in memory")

    stores = Stores.connect(settings)
    with serving(create_app(stores)) as client:
        monkeypatch.setattr(redis.connection.Connection, "read_response", loading)
        assert "loads what it had" in client.get("/v1/jobs").json()["detail"]
        for path in ("/v1/jobs", "/v1/posteriors/post_1", "/readyz"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-unavailable")
            assert answer.headers["retry-after"] == "5"
        assert client.get("/livez").status_code == 200
        monkeypatch.undo()
    stores.close()


def test_a_full_queue_server_refuses_new_work(client: httpx.Client, stores: Stores) -> None:
    """Without memory Redis rejects writes: 503 with the remedy, while reads work."""
    dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 60}).json()["id"]
    job = client.post("/v1/posteriors", json={"dataset": dataset}).json()["id"]
    expired = client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.5}).json()["id"]
    stores.client.delete(f"glle:job:{expired}")
    most = str(stores.client.config_get("maxmemory")["maxmemory"])
    stores.client.config_set("maxmemory", 1)
    try:
        answer = client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.1})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-full")
        assert "GLLE_QUEUE_BYTES" in answer.json()["remedy"]
        assert answer.headers["retry-after"]
        assert client.get(f"/v1/jobs/{job}").json()["status"] == "queued"
        assert [item["id"] for item in client.get("/v1/jobs").json()["items"]] == [job]
    finally:
        stores.client.config_set("maxmemory", most)
    assert client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.1}).status_code == 202


def test_ready_names_each_check(client: httpx.Client, stores: Stores) -> None:
    """200 with all checks."""
    register_worker(stores)
    answer = client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["workers"], body["queue_length"]) == (200, 1, 0)
    assert [(check["name"], check["state"]) for check in body["checks"]] == [
        ("queue server", "ok"), ("cache server", "ok"), (f"workers of {QUEUE}", "ok"), ("data folder", "ok"),
        ("disk space", "ok"),
    ]  # fmt: skip


def test_not_ready_without_a_live_worker(client: httpx.Client, stores: Stores) -> None:
    """Without a worker, or with a silent one, 503 names the queue and the remedy."""
    for silent in (None, 3600.0, -3600.0):  # the last: before the clock was set back by an hour
        if silent is not None:
            register_worker(stores, seconds=silent)
        answer = client.get("/readyz")
        body = answer.json()
        assert (answer.status_code, body["type"]) == (503, "urn:glle:problem:no-workers")
        assert body["details"]["failed"] == [f"workers of {QUEUE}"]
        assert "glle worker" in body["remedy"]


def test_not_ready_while_a_queue_of_several_has_no_worker(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of one queue does not make the other ready."""
    monkeypatch.setattr(health, "QUEUES", (QUEUE, "other"))
    register_worker(stores)
    body = client.get("/readyz").json()
    assert body["details"]["failed"] == ["workers of other"]
    assert 'glle_queue_length{queue="other"} 0.0' in client.get("/metrics").text


def test_not_ready_when_the_queue_may_be_evicted(client: httpx.Client, stores: Stores) -> None:
    """A policy that evicts tasks is a failed check."""
    register_worker(stores)
    stores.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        body = client.get("/readyz").json()
    finally:
        stores.client.config_set("maxmemory-policy", "noeviction")
    assert (body["type"], body["details"]["failed"]) == ("urn:glle:problem:queue-evicts", ["queue server"])
    assert "noeviction" in body["remedy"]
    assert {check["state"] for check in body["details"]["checks"]} == {"ok", "problem"}


def test_not_ready_when_data_cannot_be_written(stores: Stores, tmp_path: Path) -> None:
    """A data folder that cannot be created is a failed check; a missing one can."""
    (tmp_path / "file").touch()
    assert health.data_folder(tmp_path / "new" / "folder").state == "ok"
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        check = health.data_folder(folder)
        assert (check.state, check.code) == ("problem", "data-folder-read-only")
        assert str(folder) in check.detail


def test_oldest_task_measures_the_wait_of_the_queue(client: httpx.Client, stores: Stores) -> None:
    """The age is that of the longest wait, not of the first task."""
    now = datetime.now(UTC)
    for name, seconds in (("front", 1), ("old", 90), ("new", 5)):
        stores.client.rpush(f"rq:queue:{QUEUE}", name)
        stores.client.hset(f"rq:job:{name}", "enqueued_at", (now - timedelta(seconds=seconds)).isoformat())
    register_worker(stores, state="busy")
    text = client.get("/metrics").text
    (age,) = re.findall(rf'glle_queue_oldest_seconds{{queue="{QUEUE}"}} (\S+)', text)
    assert 90 <= float(age) < 100
    assert f'glle_queue_length{{queue="{QUEUE}"}} 3.0' in text
    assert "glle_workers 1.0" in text
    assert "glle_workers_busy 1.0" in text


def test_metrics_count_by_route_template(stores: Stores) -> None:
    """The number of series does not grow with ids or unknown paths."""
    with serving(create_app(stores)) as client:
        for number in range(30):
            client.get(f"/v1/jobs/job_{number}")
            client.get(f"/nowhere/{number}")
        text = client.get("/metrics").text
    assert 'glle_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"} 30.0' in text
    assert 'glle_http_requests_total{method="GET",route="(none)",status="404"} 30.0' in text
    assert "job_7" not in text
    assert "glle_redis_up 1.0" in text
    assert f'glle_queue_length{{queue="{QUEUE}"}} 0.0' in text
    assert "glle_workers 0.0" in text


def test_metrics_count_jobs(client: httpx.Client, stores: Stores) -> None:
    """Jobs are counted by kind and status."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    stores.jobs.cancel(job.id)
    text = client.get("/metrics").text
    assert 'glle_jobs_entered_total{kind="fit",status="queued"} 1.0' in text
    assert 'glle_jobs_entered_total{kind="fit",status="cancelled"} 1.0' in text


def test_counts_of_two_processes_are_added(client: httpx.Client, stores: Stores, settings: Settings) -> None:
    """Each of several API processes reports all of them."""
    client.get("/livez")
    client.get("/metrics")  # adds up what it has counted
    beside = Stores.connect(replace(settings, redis_url=stores.settings.redis_url))
    with serving(create_app(beside)) as other:
        other.get("/livez")
        text = other.get("/metrics").text
    beside.close()
    assert 'glle_http_requests_total{method="GET",route="/livez",status="200"} 2.0' in text
    assert 'glle_http_seconds_bucket{le="+Inf",method="GET",route="/livez"} 2.0' in text


def test_an_idle_process_flushes_its_counts(
    client: httpx.Client, stores: Stores, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reports what another one counted, also if that one serves no further request."""
    monkeypatch.setattr(metrics, "FLUSH_SECONDS", 0.05)
    beside = Stores.connect(replace(settings, redis_url=stores.settings.redis_url))
    with serving(create_app(beside)) as other:
        other.get("/livez")
        line = 'glle_http_requests_total{method="GET",route="/livez",status="200"} 1.0'
        until(lambda: line in client.get("/metrics").text)
    beside.close()


def test_unknown_methods_share_a_series(client: httpx.Client) -> None:
    """Methods that no route has do not create series."""
    for method in ("MKCOL", "PROPFIND", "PURGE"):
        client.request(method, "/livez")
    assert 'glle_http_requests_total{method="(other)",route="/livez",status="405"} 3.0' in client.get("/metrics").text
