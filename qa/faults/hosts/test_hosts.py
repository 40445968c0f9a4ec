"""The machines get the commands and the environment of docker-compose.yml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qa.faults.hosts import deployment
from qa.faults.hosts.scenarios import Row
from worker.base.settings import Settings

if TYPE_CHECKING:
    import pytest


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


def test_each_column_that_is_not_zero_fails_the_row() -> None:
    """Refusals are allowed."""
    good = Row("s", jobs=1, finished=1, wrong=0, failed=0, refused=7, slowest=1.0, heal=2.0)
    bad = [replace(good, finished=0), replace(good, wrong=1), replace(good, failed=1), replace(good, left="a worker")]
    assert [row.is_good for row in (good, *bad)] == [True, False, False, False, False]
