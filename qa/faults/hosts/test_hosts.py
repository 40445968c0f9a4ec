"""The machines get the commands and the environment of docker-compose.yml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qa.faults.hosts import deployment
from qa.faults.hosts.scenarios import Row, table
from worker.base.settings import Settings


def test_processes_match_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each service is a process with the options and addresses of the file, without settings of the test process."""
    assert deployment.services(GLLE_AUTH="off")["api"].environment["GLLE_AUTH"] == "off", "it stays a string"
    monkeypatch.setenv("GLLE_HEARTBEAT", "1")
    inherited = deployment.environment(deployment.services()["worker"], tmp_path)
    assert "GLLE_HEARTBEAT" not in inherited
    assert inherited["GLLE_DATA_DIR"] == str(tmp_path)
    services = deployment.services()
    assert set(services) == {"api", "worker", "queue", "cache"}
    assert all(service.restarts and Path(service.command[0]).exists() for service in services.values())
    assert services["api"].command[2:5] == ["service.cli", "serve", "--host"]
    assert "noeviction" in services["queue"].command
    assert "allkeys-lru" in services["cache"].command
    settings = Settings.from_env(services["worker"].environment)
    assert (settings.redis_url, settings.cache_url) == ("redis://queue:6379/0", "redis://cache:6379/0")


@pytest.mark.parametrize("column", ["finished", "wrong", "failed", "left"])
def test_nonzero_column_fails_the_row(column: str) -> None:
    """Each column is checked separately; refusals are allowed."""
    good = Row("s", jobs=1, finished=1, wrong=0, failed=0, refused=7, slowest=1.0, heal=2.0)
    assert good.is_good
    spoilt: dict[str, Any] = {"finished": 0, "wrong": 1, "failed": 1, "left": "a worker is missing"}
    row = replace(good, **{column: spoilt[column]})
    assert not row.is_good
    assert str(row.jobs) in table([row])
