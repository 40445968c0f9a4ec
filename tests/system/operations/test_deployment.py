"""A running deployment as its operators see it: the status and the doctor."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from service.cli import main
from tests.conftest import until

if TYPE_CHECKING:
    import httpx
    import pytest

    from tests.system.conftest import Up


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
        "workers of glle-batch",
        "ready",
        "version",
        "long task",
        "end to end",
    ):
        assert report[name]["state"] == "ok", report[name]
    assert {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]} == before
