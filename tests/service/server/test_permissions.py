"""The documented rights of the users of both Redis servers, compared with the commands that each server really gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from service.app import create_app
from tests.conftest import until
from tests.service.conftest import register_worker, serving
from tests.service.routes.posteriors.conftest import NPY, fit_posterior, result_of
from tests.service.tenants import bearer, serve_stores
from tests.worker.execution.workers import worker
from worker.execution import tasks
from worker.execution.sweep import find_records_without_files, sweep
from worker.operations import permissions
from worker.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    import redis

# Of this test; and AUTH, which every user may send.
OTHERS = {"auth", "config|resetstat", "config|get", "config|set", "flushall"}


def sent_to(server: redis.Redis) -> set[str]:
    """Return the commands that clients and scripts have sent since the last reset."""
    return {name.removeprefix("cmdstat_") for name in server.info("commandstats")} - OTHERS


def work_with_bucket(stores: Stores) -> None:
    """Fit, draw and read files that are behind a URL; scrape, and report."""
    register_worker(stores)
    with serving(create_app(stores)) as client:
        posterior = fit_posterior(client)
        result = result_of(stores, client.post(posterior + "/draws", json={"n_draws": 24}))
        for _ in range(2):
            for path in (result, posterior + "/arrays?name=embedding"):
                assert client.get(path, headers=NPY).status_code == 200
        for path in ("/metrics", "/readyz", "/v1/usage", "/v1/jobs", "/v1/datasets?tag=a"):
            assert client.get(path).status_code == 200
        assert "glle_cache_up 1.0" in client.get("/metrics").text


def work_with_worker(stores: Stores) -> None:
    """Let a worker fit and draw for a tenant with a key; delete everything."""
    X = np.random.default_rng(0).normal(size=(120, 3))
    with serve_stores(stores, auth="required") as client, worker(stores.settings, "drawing", ""):
        key = bearer(stores, "alice", "admin")
        dataset = client.post("/v1/datasets", json={"data": X.tolist()}, headers=key).json()["id"]
        job = client.post("/v1/posteriors", json={"dataset": dataset}, headers=key).json()
        posterior = f"/v1/posteriors/{job['posterior']}"
        until(lambda: client.get(posterior, headers=key).status_code == 200)
        for index in range(6):
            assert client.get(f"{posterior}/draws/{index}?wait=30", headers=key).status_code == 200
        assert client.get("/metrics", headers=key).status_code == 200
        for resource in client.get("/v1/datasets", headers=key).json()["items"]:
            assert client.delete(f"/v1/datasets/{resource['id']}?force=true", headers=key).status_code in {200, 204}
    sweep(stores)
    assert find_records_without_files(stores) == []


def test_each_server_gets_only_commands_that_its_user_may_send(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands that each server gets, with a worker and with a bucket, are in the list of its own user."""
    (tmp_path / "objects").mkdir()
    servers = {"queue": (stores.client, permissions.QUEUE), "cache": (stores.cache.client, permissions.CACHE)}
    for server, _ in servers.values():
        server.config_resetstat()
    work_with_worker(stores)
    stores.client.flushall()
    remote = Stores.connect(replace(stores.settings, store_url=f"file://{tmp_path}/objects"))
    with monkeypatch.context() as patched:
        patched.setattr(remote.files.bucket, "is_local", False)
        patched.setattr(tasks, "process_stores", lambda: remote)
        work_with_bucket(remote)
    remote.close()
    missing = {name: sent_to(server) - {*user.commands.split()} for name, (server, user) in servers.items()}
    assert missing == {"queue": set(), "cache": set()}
