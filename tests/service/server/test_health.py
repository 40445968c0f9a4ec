"""Health and metrics, with and without Redis."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import redis
from rq.rate_limit import RateLimit

from glle_engine.tables.table import Table
from service.app import create_app
from service.server import metrics
from tests.conftest import until
from tests.service.conftest import check_problem, register_worker, serving
from tests.service.tenants import serve_stores
from worker.base.problems import refuse
from worker.jobs.draw_stream import DrawBatch, DrawStream
from worker.jobs.rq_tasks import open_queue
from worker.operations import health
from worker.operations.embedded_redis import EmbeddedRedis
from worker.records.job import BATCH
from worker.storage import api_keys
from worker.storage.mark import PATH
from worker.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.base.settings import Settings


def test_redis_away_is_503_and_the_process_lives(settings: Settings) -> None:
    """Routes are 503 with the remedy, because the keys are unknown; livez and the documentation answer."""
    nowhere = "redis://127.0.0.1:1/0"
    stores = Stores.connect(replace(settings, redis_url=nowhere, cache_url=nowhere))
    with serving(create_app(stores)) as client:
        for path in ("/v1/jobs", "/v1/jobs/x?wait=5", "/metrics"):
            answer = client.get(path)
            assert check_problem(answer, 503, "redis-unavailable")["remedy"]
            assert answer.headers["retry-after"] == "5"
        for path in ("/livez", "/docs"):
            assert client.get(path).status_code == 200
        check_problem(client.get("/readyz"), 503, "not-ready")
    stores.close()


def test_a_scrape_writes_nothing(settings: Settings, stores: Stores) -> None:
    """A scrape works on a server that refuses writes and transactions, while a task waits and no worker lives."""
    register_worker(stores)
    stores.client.delete("glle:worker:one")
    stores.queue.enqueue(stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)[0])
    stores.client.acl_setuser(
        "full", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=["+@all", "-@write"],
        commands=["-multi", "-eval", "-evalsha"],
    )  # fmt: skip
    address = settings.redis_url.rpartition("@")[2]
    full = Stores.connect(replace(settings, redis_url=f"redis://full:any@{address}"))
    try:
        with serving(create_app(full)) as client:
            lines = client.get("/metrics").text.splitlines()
    finally:
        full.close()
        stores.client.acl_deluser("full")
    assert {"glle_redis_up 1.0", 'glle_queue_length{queue="glle-batch"} 1.0', "glle_workers 0.0"} <= set(lines)


def test_a_loading_server_is_503(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted server replies LOADING until its log is read.

    The service has database 1, because other services of this process count requests meanwhile.
    """
    read_response = redis.connection.Connection.read_response

    def loading(connection: redis.connection.Connection, *arguments: Any, **options: Any) -> object:
        if connection.db == 1:
            raise redis.BusyLoadingError("Redis is loading the dataset in memory")
        return read_response(connection, *arguments, **options)

    stores = Stores.connect(replace(settings, redis_url=settings.redis_url.removesuffix("/0") + "/1"))
    with serving(create_app(stores)) as client:
        assert client.get("/v1/jobs").status_code == 200  # no key exists
        monkeypatch.setattr(redis.connection.Connection, "read_response", loading)
        assert "is still loading its data" in client.get("/v1/jobs").json()["detail"]
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
    max_memory = str(stores.client.config_get("maxmemory")["maxmemory"])
    stores.client.config_set("maxmemory", 1)
    try:
        answer = client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.1})
        assert "GLLE_QUEUE_BYTES" in check_problem(answer, 503, "redis-full")["remedy"]
        assert answer.headers["retry-after"]
        assert client.get(f"/v1/jobs/{job}").json()["status"] == "queued"
        assert [item["id"] for item in client.get("/v1/jobs").json()["items"]] == [job]
    finally:
        stores.client.config_set("maxmemory", max_memory)
    assert client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.1}).status_code == 202


def test_ready_names_each_check(client: httpx.Client, stores: Stores) -> None:
    """/readyz is 200 with the name and the state of each check."""
    register_worker(stores)
    answer = client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["workers"], body["queue_length"]) == (200, 1, 0)
    assert [(check["name"], check["state"]) for check in body["checks"]] == [
        ("queue server", "ok"), ("cache server", "ok"), ("workers", "ok"), ("records", "ok"),
        ("data folder", "ok"), ("disk space", "ok"),
    ]  # fmt: skip


def test_not_ready_when_records_or_files_are_lost(stores: Stores) -> None:
    """503 names the loss and its remedy, also for the process that was running before, until the loss is accepted."""
    register_worker(stores)
    with serve_stores(stores, auth="off") as client:
        stores.datasets.add(Table(values=np.eye(3), source={}))
        stores.mark.renew()
        assert client.get("/readyz").status_code == 200
        stores.client.flushall()
        register_worker(stores)
        assert check_problem(client.get("/readyz"), 503, "records-lost")["details"]["failed"] == ["records"]
        stores.mark.accept_loss()
        assert client.get("/readyz").status_code == 200
        stores.datasets.add(Table(values=np.eye(4), source={}))
        shutil.rmtree(stores.settings.data_dir)
    with serve_stores(stores, auth="off") as restarted:
        answer = check_problem(restarted.get("/readyz"), 503, "files-lost")
        assert "datasets: 1" in answer["detail"]
        assert "--accept-loss" in answer["remedy"]


@pytest.mark.parametrize(("raw", "code"), [(b"{}", "mark-damaged"), (b'{"format": 3}', "other-schema")])
def test_not_ready_with_a_mark_that_cannot_be_read(stores: Stores, raw: bytes, code: str) -> None:
    """503 names the file and the remedy, and so does each request; no upload is accepted."""
    register_worker(stores)
    with serve_stores(stores, auth="off") as client:
        stores.datasets.add(Table(values=np.eye(3), source={}))
        stores.mark.renew()
        assert client.get("/readyz").status_code == 200
        stores.files.bucket.write(PATH, [raw], len(raw))
        for answer in (
            client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 60}),
            client.get("/readyz"),
            client.get("/v1/datasets"),
        ):
            assert str(stores.files.bucket.local_path(PATH)) in check_problem(answer, 503, code)["detail"]
        assert f'glle_data_lost{{reason="{code}"}} 1.0' in client.get("/metrics").text


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


def test_not_ready_while_the_queue_takes_no_writes(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers and refuses writes is a failed check: without its replicas, or with a full disk."""
    register_worker(stores)
    stores.client.config_set("min-replicas-to-write", 1)
    health._probe_server.cache_clear()
    try:
        upload = client.post("/v1/datasets", content="a,b\n1,2\n3,4\n", headers={"Content-Type": "text/csv"})
        ready = client.get("/readyz")
    finally:
        stores.client.config_set("min-replicas-to-write", 0)
    problem = check_problem(ready, 503, "redis-unavailable")
    assert (upload.status_code, problem["details"]["failed"]) == (503, ["queue server"])
    assert client.get("/readyz").status_code == 200

    def refuse_write(*_: object) -> None:
        raise redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")

    monkeypatch.setattr(health, "_probe_server", refuse_write)
    check_problem(client.get("/readyz"), 503, "redis-full")


def test_oldest_task_measures_the_wait_of_the_queue(client: httpx.Client, stores: Stores) -> None:
    """The age is that of the longest wait, also of a task that waits behind its tenant's limit."""
    queue, limit = open_queue(BATCH, stores.client), RateLimit(f"{BATCH}:alice", 1)
    for name, seconds in (("front", 90), ("behind", 70), ("later", 5)):
        queue.enqueue_call("fit", job_id=name, rate_limit=limit)
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        times: dict[Any, Any] = dict.fromkeys(("created_at", "enqueued_at"), since.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        stores.client.hset(f"rq:job:{name}", mapping=times)

    assert gauge(client, "glle_queue_length", queue=BATCH) == 3
    assert 90 <= gauge(client, "glle_queue_oldest_seconds", queue=BATCH) < 100
    assert queue.pop_job_id() == "front"  # a worker takes it
    assert gauge(client, "glle_queue_length", queue=BATCH) == 2
    assert 70 <= gauge(client, "glle_queue_oldest_seconds", queue=BATCH) < 80


def test_single_draws_wait_and_are_in_work(client: httpx.Client, stores: Stores, drawn_posterior: str) -> None:
    """A request for a draw counts as waiting until a sampler takes it, and then as work."""
    register_worker(stores)
    stream = DrawStream(stores.cache.client, "one")
    with ThreadPoolExecutor() as pool:
        request = pool.submit(client.get, f"{drawn_posterior}/draws/77?wait=30")
        until(lambda: gauge(client, "glle_queue_length", queue="draws") == 1)
        until(lambda: gauge(client, "glle_queue_oldest_seconds", queue="draws") > 0.1)
        assert client.get("/readyz").json()["queue_length"] == 1
        assert gauge(client, "glle_queue_running", queue="draws") == 0
        batch = DrawBatch(stream.read(1, 1.0))
        assert gauge(client, "glle_queue_length", queue="draws") == 0
        assert gauge(client, "glle_queue_oldest_seconds", queue="draws") == 0
        assert gauge(client, "glle_queue_running", queue="draws") == 1
        stream.finish(batch, "refused", refuse("no-convergence", 422, "It fails.", "None.").problem)
        assert request.result().status_code == 422
    assert gauge(client, "glle_queue_running", queue="draws") == 0


def gauge(client: httpx.Client, name: str, **labels: str) -> float:
    """Return a gauge of /metrics."""
    inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
    series = f"{name}{{{inner}}}" if inner else name
    (value,) = re.findall(rf"^{re.escape(series)} (\S+)$", scrape(client), re.MULTILINE)
    return float(value)


def scrape(client: httpx.Client, **headers: str) -> str:
    """Return /metrics, which answers 200."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("auth", ["auto", "required"])
def test_metrics_report_that_redis_is_away_from_stored_data(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: Literal["auto", "required"]
) -> None:
    """With keys and data sets in the object store, whose index is in Redis, the metrics report its absence."""
    queue = EmbeddedRedis(tmp_path / "queue", ("appendonly no",))
    queue.spawn()
    queue.wait()
    stored = replace(settings, store_url=f"file://{tmp_path}/objects", auth=auth, redis_url=queue.url)
    stores = Stores.connect(stored)
    bearer, revoked = "", ""
    if auth == "required":
        bearer, revoked = (f"Bearer {stores.keys.create('default', ('admin',), '', None)[1]}" for _ in range(2))
    with serving(create_app(stores)) as client:
        monkeypatch.setattr(api_keys, "KEY_CHECK_SECONDS", 0.0)
        assert "glle_redis_up 1.0" in scrape(client, Authorization=bearer)
        if revoked:
            stores.keys.revoke(revoked.split("_")[1])
            assert client.get("/metrics", headers={"Authorization": revoked}).status_code == 401
        queue.stop()
        text = scrape(client, Authorization=bearer)
        assert "glle_redis_up 0.0" in text
        assert "glle_data_free_bytes" in text
        assert "glle_datasets" not in text
        assert client.get("/v1/jobs", headers={"Authorization": bearer}).status_code == 503
        if revoked:
            assert client.get("/metrics", headers={"Authorization": revoked}).status_code == 503
            assert client.get("/metrics").status_code == 401
    stores.close()


def test_metrics_count_by_route_template(stores: Stores) -> None:
    """The number of series does not grow with ids or unknown paths."""
    with serving(create_app(stores)) as client:
        for number in range(3):
            client.get(f"/v1/jobs/job_{number}")
            client.get(f"/nowhere/{number}")
        for method in ("MKCOL", "PROPFIND", "PURGE"):
            client.request(method, "/livez")
        job, _ = stores.jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
        stores.jobs.cancel(job.id)
        register_worker(stores, "idle")
        register_worker(stores, "busy", busy=2)
        text = client.get("/metrics").text
    assert 'glle_http_requests_total{method="(other)",route="/livez",status="405"} 3.0' in text
    assert 'glle_jobs_entered_total{kind="fit",status="queued"} 1.0' in text
    assert 'glle_jobs_entered_total{kind="fit",status="cancelled"} 1.0' in text
    assert ("glle_workers 2.0" in text, "glle_workers_busy 1.0" in text) == (True, True)
    assert 'glle_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"} 3.0' in text
    assert 'glle_http_requests_total{method="GET",route="(none)",status="404"} 3.0' in text
    assert "job_2" not in text
    assert "glle_redis_up 1.0" in text
    assert f'glle_queue_length{{queue="{BATCH}"}} 0.0' in text


def test_counts_of_two_processes_are_added(
    client: httpx.Client, stores: Stores, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each API process reports the counts of all, also of a process that serves no further request."""
    monkeypatch.setattr(metrics, "FLUSH_SECONDS", 0.05)
    client.get("/livez")
    client.get("/metrics")  # adds up what it has counted
    beside = Stores.connect(replace(settings, redis_url=stores.settings.redis_url))
    with serving(create_app(beside)) as other:
        other.get("/livez")
        line = 'glle_http_requests_total{method="GET",route="/livez",status="200"} 2.0'
        until(lambda: line in client.get("/metrics").text)
        text = other.get("/metrics").text
    beside.close()
    assert line in text
    assert 'glle_http_seconds_bucket{le="+Inf",method="GET",route="/livez"} 2.0' in text
