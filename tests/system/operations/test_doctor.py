"""`glle doctor` on a real deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from service.cli import main
from tests.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

    from tests.system.conftest import Up


def test_doctor_reports_no_problem_of_a_running_deployment(
    up: Up, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check is ok, the end-to-end job draws the engine's bits, and no data set is left."""
    until(lambda: client.get("/readyz").status_code == 200)
    before = {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]}
    for name in ("GLLE_REDIS_URL", "GLLE_CACHE_URL"):
        monkeypatch.setenv(name, up.redis_url(name))
    monkeypatch.setenv("GLLE_DATA_DIR", str(tmp_path))
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
