"""`glle doctor` on a real deployment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import until
from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.system.conftest import Up


def test_doctor_reports_no_problem_of_a_running_deployment(up: Up, client: httpx.Client, tmp_path: Path) -> None:
    """Every check is ok, the end-to-end job draws the engine's bits, and no data set is left."""
    until(lambda: client.get("/readyz").status_code == 200)
    before = {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]}
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GLLE_REDIS_URL": up.redis_url("GLLE_REDIS_URL"),
        "GLLE_CACHE_URL": up.redis_url("GLLE_CACHE_URL"),
        "GLLE_DATA_DIR": str(tmp_path),
        "GLLE_HEARTBEAT": "1",
    }
    command = [sys.executable, "-m", "service.cli", "doctor", "--json", "--url", up.url]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    report = {check["name"]: check for check in json.loads(process.stdout)["checks"]}
    assert {name: check["detail"] for name, check in report.items() if check["state"] == "problem"} == {}
    assert process.returncode == 0
    for name in ("engine versions", "worker threads", "ready", "version", "end to end"):
        assert report[name]["state"] == "ok", report[name]
    assert {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]} == before
