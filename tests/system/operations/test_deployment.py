"""A running deployment as its operators see it: logs and the doctor."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import httpx

from service.cli import main
from tests.conftest import until
from tests.system.conftest import fit_posterior, synthetic

if TYPE_CHECKING:
    import pytest

    from tests.system.conftest import Up

HEARTBEATS = 2.5  # seconds, of one each


def test_an_idle_service_logs_nothing(up: Up) -> None:
    """Once the events of the tests before are over, heartbeats and maintenance write no line at level info."""

    def is_silent() -> bool:
        before = up.log.read_text()
        time.sleep(HEARTBEATS)
        return up.log.read_text() == before

    until(is_silent)


def test_the_status_is_one_screen_with_an_address(up: Up) -> None:
    """Address, explorer, documentation, processes, data folder, and how to stop the service; no terminal codes."""
    text = up.log.read_text()
    start = text.index("glle is ready at ")
    status = text[start:].splitlines()[:6]
    assert status == [
        f"glle is ready at {up.url}",
        f"  explorer       {up.url}/",
        f"  documentation  {up.url}/docs",
        "  processes      API processes: 2, workers: 2, embedded Redis",
        f"  data           {up.log.parent / 'data'}",
        "  stop           Ctrl-C",
    ]
    assert "\x1b" not in text
    assert "\r" not in text
    assert len(re.findall(r"Worker \S+ started", text)) >= 2, "an event of each worker"


def test_the_request_id_reaches_the_worker(limited_up: Up) -> None:
    """All log lines of API and worker name the request."""
    with httpx.Client(base_url=limited_up.url, headers={"X-Request-Id": "grepthis"}, timeout=60) as client:
        posterior = fit_posterior(client, synthetic(client, 300, seed=2))
        until(lambda: client.get(f"{posterior}/draws/0").status_code == 200)
        lines = [json.loads(line) for line in limited_up.log.read_text().splitlines()]
    of_request = [line for line in lines if line.get("request_id") == "grepthis"]
    assert {line["logger"] for line in of_request} == {"glle.access", "worker.jobs.queue", "worker.execution.telemetry"}
    jobs = {line["job_id"] for line in of_request if line["logger"] == "worker.jobs.queue"}
    assert jobs == {line["job_id"] for line in of_request if line["logger"] == "worker.execution.telemetry"}
    assert len(jobs) == 1, "a single draw is no job"


def test_doctor_reports_no_problem_of_a_running_deployment(
    up: Up, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check is ok, the end-to-end job draws the engine's bits, and no data set is left."""
    until(lambda: client.get("/readyz").status_code == 200)
    before = {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]}
    for name in ("GLLE_REDIS_URL", "GLLE_CACHE_URL"):
        monkeypatch.setenv(name, up.redis_url(name))
    monkeypatch.setenv("GLLE_DATA_DIR", str(up.log.parent / "data"))
    monkeypatch.setenv("GLLE_HEARTBEAT", "1")
    code = main.main(["doctor", "--json", "--url", up.url])
    report = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {name: check["detail"] for name, check in report.items() if check["state"] == "problem"} == {}
    assert code == 0
    for name in (
        "engine versions",
        "worker clocks",
        "takers of glle-batch",
        "ready",
        "version",
        "long task",
        "end to end",
    ):
        assert report[name]["state"] == "ok", report[name]
    assert {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]} == before
