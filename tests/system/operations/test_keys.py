"""API keys and tenants with workers: results belong to the tenant of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from service.cli import main
from tests.conftest import until
from tests.system.conftest import ONE_EACH, fitted, running, synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.system.conftest import Up


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Up]:
    """Run a service that gets keys."""
    with running(tmp_path, **ONE_EACH) as up:
        yield up


@pytest.fixture
def keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs `glle keys` beside the service."""

    def run(*arguments: str) -> str:
        assert main.main(["keys", *arguments, "--data-dir", str(tmp_path / "data")]) == 0
        return capsys.readouterr().out.strip()

    return run


def test_results_of_workers_belong_to_the_tenant(keyed: Up, keys: Callable[..., str]) -> None:
    """The first key closes a running service, results stay invisible to another tenant, and a revoked key fails."""
    assert httpx.get(keyed.url + "/v1/info").status_code == 200
    headers = [
        {"Authorization": f"Bearer {keys('create', '--tenant', tenant, '--scope', 'write')}"}
        for tenant in ("alice", "bob")
    ]
    until(lambda: httpx.get(keyed.url + "/v1/info").status_code == 401, seconds=5)
    with (
        httpx.Client(base_url=keyed.url, headers=headers[0], timeout=60) as alice,
        httpx.Client(base_url=keyed.url, headers=headers[1], timeout=60) as bob,
    ):
        until(lambda: alice.get("/v1/info").status_code == bob.get("/v1/info").status_code == 200, seconds=5)
        posterior = fitted(alice, synthetic(alice, 200))
        until(lambda: alice.get(f"{posterior}/draws/0").status_code == 200)
        assert bob.get(f"{posterior}/draws/0").status_code == 404
        assert fitted(bob, synthetic(bob, 200)) != posterior
        for path in ("/v1/datasets", "/v1/posteriors", "/v1/jobs"):
            mine, others = ({item["id"] for item in by.get(path).json()["items"]} for by in (alice, bob))
            assert mine
            assert others
            assert not mine & others
        keys("revoke", headers[0]["Authorization"].split("_")[1])
        until(lambda: alice.get("/v1/info").status_code == 401, seconds=5)
        assert bob.get("/v1/info").status_code == 200
