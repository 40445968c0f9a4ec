"""API keys and tenants with workers: results belong to the tenant of the request."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx

from tests.conftest import until
from tests.system.conftest import ROOT, fitted, synthetic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import Guarded


def keys(data: Path, *arguments: str) -> str:
    """Run `glle keys` beside the service and return what it prints."""
    command = [sys.executable, "-m", "service.cli", "keys", *arguments, "--data-dir", str(data)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_results_of_workers_belong_to_the_tenant(guarded: Guarded) -> None:
    """A new key authenticates a running service, results stay invisible to another tenant, and a revoked key fails."""
    data = guarded.log.parent / "data"
    assert "`glle keys create`" in guarded.log.read_text()
    assert httpx.get(guarded.url + "/v1/info").status_code == 401
    headers = [
        {"Authorization": f"Bearer {keys(data, 'create', '--tenant', tenant, '--scope', 'write')}"}
        for tenant in ("alice", "bob")
    ]
    with (
        httpx.Client(base_url=guarded.url, headers=headers[0], timeout=60) as alice,
        httpx.Client(base_url=guarded.url, headers=headers[1], timeout=60) as bob,
    ):
        posterior = fitted(alice, synthetic(alice, 200))
        until(lambda: alice.get(f"{posterior}/draws/0").status_code == 200)
        assert bob.get(f"{posterior}/draws/0").status_code == 404
        assert fitted(bob, synthetic(bob, 200)) != posterior
        for path in ("/v1/datasets", "/v1/posteriors", "/v1/jobs"):
            mine, others = ({item["id"] for item in by.get(path).json()["items"]} for by in (alice, bob))
            assert mine
            assert others
            assert not mine & others
        keys(data, "revoke", headers[0]["Authorization"].split("_")[1])
        until(lambda: alice.get("/v1/info").status_code == 401, seconds=5)
        assert bob.get("/v1/info").status_code == 200
