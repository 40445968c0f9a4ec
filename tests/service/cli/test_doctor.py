"""`glle doctor` on healthy and on broken deployments."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from rq import Worker as RqWorker

from service.app import create_app
from service.cli import doctor, main
from tests.conftest import until
from tests.service.conftest import register_worker, serving
from worker.base.problems import worker_lost
from worker.base.settings import Settings, shared_values
from worker.jobs.rq_types import BATCH, INTERACTIVE, QUEUES, open_queue
from worker.operations import doctor as inside
from worker.operations.embedded_redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.operations.health import Check
    from worker.records.job import Job
    from worker.stores import Stores


def checks_by_name(checks: Iterator[Check]) -> dict[str, Check]:
    """Return checks by name; exactly the failed ones have a remedy."""
    output = list(checks)
    assert all(bool(check.remedy) == (check.state != "ok") for check in output)
    return {check.name: check for check in output}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with every setting wrong."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("broken"), ("appendonly no", "maxmemory-policy volatile-lru"))
    server.spawn()
    server.wait()
    yield server.url
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    """Check the engine once: its fits and draws are the same in each report."""
    checks = list(inside.engine(Settings()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inside, "engine", lambda _: iter(checks))
        yield


def register_complete_worker(stores: Stores) -> None:
    """Register a live worker with both of its processes for tasks."""
    register_worker(stores, settings=shared_values(stores.settings))
    for name, queues in (("quick", QUEUES[:1]), ("batch", QUEUES[::-1])):
        RqWorker(queues, name=name, connection=stores.client).register_birth()  # type: ignore[no-untyped-call] # of RQ


def test_a_good_deployment_is_all_ok(stores: Stores) -> None:
    """Correct servers, a live worker and free space: every check passes, and the exit code is 0."""
    register_complete_worker(stores)
    checks = checks_by_name(inside.deployment(stores.settings))
    bad = {name: check.detail for name, check in checks.items() if check.state != "ok" and name != "disk space"}
    assert bad == {}
    assert {
        "queue connection", "queue clock", "queue server", "queue persistence", "cache connection", "cache clock",
        "cache server", "cache policy", "cache memory", "two servers", "workers", "backlog of glle-interactive",
        "backlog of glle-batch", "backlog of draws", "engine versions",
        "worker threads", "worker clocks", "worker memory", "shared settings",
        "takers of glle-interactive", "takers of glle-batch", "data folder", "disk space", "fingerprint", "small draw",
    } <= set(checks)  # fmt: skip
    assert list(stores.client.scan_iter("glle:doctor:*")) == []


def test_wrong_policies_are_named(stores: Stores, broken: str) -> None:
    """Eviction in the queue is a problem; no persistence and an unlimited cache are warnings."""
    checks = checks_by_name(inside.deployment(replace(stores.settings, redis_url=broken)))
    assert (checks["queue server"].state, checks["queue persistence"].state) == ("problem", "warning")
    assert "noeviction" in checks["queue server"].remedy
    assert "appendonly" in checks["queue persistence"].remedy
    assert checks["two servers"].state == "ok"
    checks = checks_by_name(inside.deployment(replace(stores.settings, cache_url=broken)))
    assert (checks["cache policy"].state, checks["cache memory"].state) == ("warning", "warning")


def test_queue_and_cache_on_one_server_is_a_problem(stores: Stores) -> None:
    """Two databases of one server are one server, and a cache under noeviction fills up."""
    queue_url = stores.settings.redis_url
    checks = checks_by_name(inside.deployment(replace(stores.settings, cache_url=queue_url.removesuffix("/0") + "/1")))
    assert (checks["two servers"].state, checks["cache policy"].state) == ("problem", "problem")


def test_budget_beyond_the_server_is_a_warning(stores: Stores) -> None:
    """GLLE_CACHE_BYTES may not exceed the memory of the cache server."""
    checks = checks_by_name(inside.deployment(replace(stores.settings, cache_bytes=2**40)))
    assert checks["cache memory"].state == "warning"
    assert "GLLE_CACHE_BYTES" in checks["cache memory"].remedy


def test_an_unreachable_server_is_one_problem(stores: Stores) -> None:
    """Checks that depend on it are skipped; the password is hidden."""
    nowhere = "redis://:hidden@127.0.0.1:1/0"
    checks = checks_by_name(inside.deployment(replace(stores.settings, redis_url=nowhere)))
    assert checks["queue connection"].state == "problem"
    assert "GLLE_REDIS_URL" in checks["queue connection"].remedy
    assert "hidden" not in str(checks)
    assert checks["cache connection"].state == "ok"
    assert not {"workers", "two servers", "queue server"} & set(checks)


def test_missing_urls(settings: Settings) -> None:
    """One URL alone is a mistake; no URL means the embedded servers of a running service."""
    for redis_url, cache_url, state in (("", "", "warning"), ("redis://x", "", "problem")):
        checks = checks_by_name(inside.deployment(replace(settings, redis_url=redis_url, cache_url=cache_url)))
        assert checks["servers"].state == state


def test_mismatched_workers_are_reported(stores: Stores) -> None:
    """Another engine version, unpinned threads, a waiting queue, and no worker are each reported."""
    assert checks_by_name(inside.deployment(stores.settings))["workers"].state == "problem"
    register_worker(stores)
    differing = {"GLLE_JOB_TIMEOUT": "5"}
    register_worker(stores, "old", engine="0.0.1", threads="", skew=-90.0, memory=2**30, settings=differing)
    RqWorker([INTERACTIVE], name="quick", connection=stores.client).register_birth()  # type: ignore[no-untyped-call] # of RQ
    open_queue(BATCH, stores.client).enqueue_call("fit", job_id="waits")
    since = datetime.now(UTC) - timedelta(minutes=5)
    stores.client.hset("rq:job:waits", "enqueued_at", since.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    checks = checks_by_name(inside.deployment(stores.settings))
    assert checks["workers"].state == "ok"
    assert (checks["engine versions"].state, checks["worker threads"].state) == ("warning", "warning")
    assert "0.0.1" in checks["engine versions"].detail
    assert checks["worker threads"].detail == "Not pinned: old."
    assert checks["backlog of glle-batch"].state == "warning"
    assert checks["worker clocks"].detail == "Not those of the queue's server: old (-90.0 s)."
    assert "old has GLLE_JOB_TIMEOUT=5, this command 600" in checks["shared settings"].detail
    assert "old (1GiB)" in checks["worker memory"].detail
    takers = [checks[f"takers of {queue}"].state for queue in QUEUES]
    assert takers == ["warning", "problem"], "no worker runs long tasks"


def test_port_is_free_ours_or_in_use(client: httpx.Client) -> None:
    """A free port, a port of glle, and a port of another program have separate results."""
    assert doctor.port("127.0.0.1", 0).state == "ok"
    assert "glle answers" in doctor.port("127.0.0.1", int(client.base_url.port or 0)).detail
    with foreign_server() as other:
        assert doctor.port("127.0.0.1", other).state == "problem"
    assert "Nothing listens" in doctor.port("127.0.0.1", other).detail


@contextmanager
def foreign_server() -> Iterator[int]:
    """Serve another program than glle; yield its port."""

    class ForeignHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the server's name for it
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), ForeignHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_url_without_a_glle_service(client: httpx.Client) -> None:
    """No URL, no server, another program: one problem each, with a remedy."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        free = occupied.getsockname()[1]
    with foreign_server() as other:
        for url in ("nowhere", f"http://127.0.0.1:{free}", f"http://127.0.0.1:{other}"):
            assert checks_by_name(doctor.service(url)).keys() == {"service"}
            assert checks_by_name(doctor.service(url))["service"].state == "problem"


def test_service_without_workers_is_reported_with_its_remedy(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness fails with the service's remedy; the job does not end, and its data set is deleted."""
    monkeypatch.setattr(doctor, "FIT_SECONDS", 0.0)
    with impatient(stores, monkeypatch) as client:
        checks = checks_by_name(doctor.service(str(client.base_url)))
    assert [check.state for check in checks.values()] == ["ok", "problem", "ok", "problem"]
    assert "glle worker" in checks["ready"].remedy
    assert "had not ended" in checks["long task"].detail
    assert list(stores.datasets.newest()) == []


def test_workers_on_which_long_tasks_die_are_reported(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's fit is a long task, not one that executors run; its failure is named, with the worker's log."""
    lost: list[Job] = []

    def lose() -> None:
        until(lambda: stores.jobs.sample_open(1))
        (id_,) = stores.jobs.sample_open(1)
        lost.append(stores.jobs.fetch(id_))
        stores.jobs.fail(id_, worker_lost(id_, 4))

    with impatient(stores, monkeypatch) as client, ThreadPoolExecutor() as worker:
        end = worker.submit(lose)
        checks = checks_by_name(doctor.service(str(client.base_url)))
        end.result()
    assert [job.queue for job in lost] == [BATCH]
    assert (checks["long task"].state, "end to end" in checks) == ("problem", False)
    assert checks["long task"].detail.startswith("A fit of 5,000 points failed. 503: The workers of job ")
    assert "log" in checks["long task"].remedy
    assert "requirements/server.lock" in checks["long task"].remedy


@contextmanager
def impatient(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Serve an app that waits for no job."""
    monkeypatch.setattr("service.submission.waiting.MAX_WAIT_SECONDS", 0.1)
    with serving(create_app(stores)) as client:
        yield client


def test_report_as_text_and_as_json(
    stores: Stores, broken: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line per check with remedies and a summary, or an object. A problem has exit code 1, a misspelled option 2."""
    register_complete_worker(stores)
    for name, value in replace(stores.settings, port=0).to_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLLE_WORKER", "3")
    assert main.main(["doctor"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "warning  settings: Not settings: GLLE_WORKER."
    assert output[1].startswith("         -> ")
    assert output[-1].endswith(" 0 problems.")
    monkeypatch.setenv("GLLE_REDIS_URL", broken)
    assert main.main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["problem"] == sum(check["state"] == "problem" for check in report["checks"]) > 0
    assert {"name", "state", "detail", "remedy", "code"} == set(report["checks"][0])


def test_a_service_with_keys(guarded: httpx.Client, stores: Stores) -> None:
    """Without a key the check has the service's remedy; with a key it succeeds."""
    url = str(guarded.base_url)
    without = checks_by_name(doctor.service(url))["version"]
    assert (without.state, "key" in without.remedy) == ("problem", True)
    key = stores.keys.create("default", ("write",), "doctor", None)[1]
    version = next(check for check in doctor.service(url, key) if check.name == "version")  # no worker for the rest
    assert version.state == "ok"
