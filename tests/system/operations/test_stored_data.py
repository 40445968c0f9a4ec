"""Two APIs and two workers with separate data folders and one object store: uploads, keys and faults."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.conftest import until
from tests.system.arrays import UPLOAD, get_array, to_npy
from tests.system.conftest import START_SECONDS, glle, run_glle, wait_for_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import Up
    from worker.base.settings import Settings
    from worker.stores import Stores

ROWS = np.random.default_rng(0).normal(size=(1500, 4))


class Deployment:
    """Processes that stand for several machines: each has its own data folder; they share two servers and a store."""

    def __init__(self, folder: Path, settings: Settings, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._settings = {
            "GLLE_REDIS_URL": settings.redis_url,
            "GLLE_CACHE_URL": settings.cache_url,
            "GLLE_CACHE_BYTES": str(settings.cache_bytes),
            "GLLE_STORE_URL": f"file://{folder}/objects",
            "GLLE_AUTH": "required",
            "GLLE_API_PROCESSES": "1",
        }

    def start(self, machine: str, *command: str) -> Up:
        """Start a process on a machine."""
        settings = {**self._settings, "GLLE_DATA_DIR": str(self.folder / machine)}
        return self._stack.enter_context(run_glle(self.folder / f"{machine}.log", *command, **settings))

    def run(self, machine: str, *command: str) -> str:
        """Run a command on a machine; return its output."""
        done = glle(*command, **self._settings, GLLE_DATA_DIR=str(self.folder / machine))
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def api(self, machine: str, key: str) -> httpx.Client:
        """Start an API on a machine; return a client with a key."""
        url = self.start(machine, "serve", "--port", "0").url
        headers = {"Authorization": f"Bearer {key}"}
        return self._stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=120))


def run_job(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Post a job, and return its record after its success."""
    answer = client.post(path, json=body)
    assert answer.status_code in {200, 202}, answer.text
    record = wait_for_end(client, answer.json()["id"])
    assert record["status"] == "succeeded", record
    return record


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_machines_share_a_store_and_no_folder(stores: Stores, tmp_path: Path) -> None:
    """Upload, fit, draws and deletion work through any machine, also after a worker was killed."""
    body = to_npy(ROWS)
    with ExitStack() as stack:
        deployment = Deployment(tmp_path, stores.settings, stack)
        key = deployment.run("one", "keys", "create", "--tenant", "alice", "--scope", "write").strip()
        one, two = deployment.api("one", key), deployment.api("two", key)
        three, _ = (deployment.start(name, "worker", "--name", name) for name in ("three", "four"))
        until(lambda: one.get("/readyz").json().get("workers") == 2, START_SECONDS)
        uploaded = one.post("/v1/datasets", content=body, headers=UPLOAD)
        assert uploaded.status_code == 201, uploaded.text
        data = f"/v1/datasets/{(id_ := uploaded.json()['id'])}"
        assert two.post("/v1/datasets", content=body, headers=UPLOAD).status_code == 200
        np.testing.assert_array_equal(get_array(two, f"{data}/data"), ROWS)
        assert [item["id"] for item in two.get("/v1/datasets").json()["items"]] == [id_]
        assert two.get("/v1/usage").json()["datasets"] == 1

        fit = run_job(two, "/v1/posteriors", {"dataset": id_, "n_neighbors": 8})
        posterior = f"/v1/posteriors/{fit['posterior']}"
        job = one.post(f"{posterior}/draws", json={"n_draws": 400}).json()["id"]
        until(lambda: one.get(f"/v1/jobs/{job}").json()["progress"]["done"] > 0)
        three.process.kill()
        assert wait_for_end(two, job)["status"] == "succeeded"
        draw = get_array(two, f"{posterior}/draws/7")
        np.testing.assert_array_equal(get_array(one, f"{posterior}/draws/7"), draw)

        np.testing.assert_array_equal(get_array(two, f"{data}/data"), ROWS)
        run_job(one, "/v1/posteriors", {"dataset": id_, "n_neighbors": 9})

        assert "0 are damaged" in deployment.run("five", "scrub")
        assert one.delete(f"{data}?force=true").status_code in {200, 204}
        assert two.get(data).status_code == 404
        left = [path.name for path in (deployment.folder / "objects").rglob("*") if path.is_file()]
        assert left == ["records.json"], "the mark; no file of the data set, its posteriors or results is left"

        key_id = key.split("_")[1]
        deployment.run("five", "keys", "revoke", key_id)
        until(lambda: one.get("/v1/datasets").status_code == two.get("/v1/datasets").status_code == 401)
        assert not [path for path in tmp_path.rglob("ds_*") if tmp_path / "objects" not in path.parents]
