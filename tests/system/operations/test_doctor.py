"""`glle doctor` at a real deployment."""

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


def test_doctor_finds_a_running_tree_well(up: Up, client: httpx.Client, tmp_path: Path) -> None:
    """From the inside and the outside: workers of one version, a small job whose draw is the engine's, nothing left."""
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
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    report = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert {name: check["detail"] for name, check in report.items() if check["state"] == "problem"} == {}
    assert ran.returncode == 0
    for name in ("engine versions", "worker threads", "ready", "version", "end to end"):
        assert report[name]["state"] == "ok", report[name]
    assert {item["id"] for item in client.get("/v1/datasets?limit=100").json()["items"]} == before
