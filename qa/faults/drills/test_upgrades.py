"""Two versions side by side: every answer is right or a clear refusal, and all accepted work finishes."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import manifolds
from qa.faults.drills.conftest import NOW, START_SECONDS, later, tree
from qa.faults.drills.next_version import OTHER
from tests.conftest import until
from tests.system.conftest import fitted, synthetic
from worker.base.versions import queue_name
from worker.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from qa.faults.drills.conftest import Deployment, Version

pytestmark = [pytest.mark.drill, pytest.mark.timeout(600)]

N = 150
REFUSALS = {(409, "other-numbers"), (503, "written-by-newer-version")}


def npy(client: httpx.Client, path: str) -> np.ndarray[Any, Any]:
    """Return an array, waiting for its job if necessary."""
    answer = client.get(path, params={"wait": 60}, headers={"Accept": "application/x-npy"})
    assert answer.status_code == 200, answer.text
    return np.asarray(np.load(io.BytesIO(answer.content)))


def code(answer: httpx.Response) -> tuple[int, str]:
    """Return status and problem code of a refusal."""
    return answer.status_code, answer.json()["type"].removeprefix("urn:glle:problem:")


def direct(draw: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return a draw computed by the engine in this process."""
    return glle_engine.fit(manifolds.make("s_curve", N, seed=seed).X).draw(draw).embedding


def is_ready(client: httpx.Client) -> bool:
    """Return whether an API has workers."""
    return client.get("/readyz").status_code == 200


def test_other_numerics_have_other_ids(deployment: Deployment) -> None:
    """While both versions serve, one id never has two results, whichever API and worker handle the request."""
    new = later("numbers")
    with deployment.api(NOW).client() as old_api, deployment.api(new).client() as new_api:
        old_worker = deployment.worker(NOW)
        until(lambda: is_ready(old_api), START_SECONDS)
        assert code(new_api.get("/readyz")) == (503, "no-workers")  # no traffic before its workers are ready
        data = synthetic(old_api, N)
        old = fitted(old_api, data)
        np.testing.assert_array_equal(npy(old_api, f"{old}/draws/0"), direct(0))

        deployment.worker(new)
        until(lambda: is_ready(new_api), START_SECONDS)
        np.testing.assert_array_equal(npy(new_api, f"{old}/draws/0"), direct(0))  # unchanged since it was drawn
        assert code(new_api.get(f"{old}/draws/500?wait=60")) == (409, "other-numbers")
        fresh = fitted(new_api, data)
        assert fresh != old
        np.testing.assert_array_equal(npy(new_api, f"{fresh}/draws/0"), direct(0) * OTHER)
        np.testing.assert_array_equal(npy(old_api, f"{fresh}/draws/0"), direct(0) * OTHER)
        assert code(old_api.get(f"{fresh}/draws/500?wait=60")) == (409, "other-numbers")
        np.testing.assert_array_equal(npy(old_api, f"{old}/draws/500"), direct(500))

        received, refused = mixed_load([old_api, new_api], [old, fresh], 200)
        assert received > 100
        assert refused > 10

        old_worker.stop()
        until(lambda: code(old_api.get("/readyz")) == (503, "no-workers"))
        np.testing.assert_array_equal(npy(new_api, f"{fresh}/draws/501"), direct(501) * OTHER)


def mixed_load(clients: list[httpx.Client], posteriors: list[str], count: int) -> tuple[int, int]:
    """Request draws of any posterior through any API; return the numbers of arrays and of refusals.

    Every array has the same bits as earlier ones of its URL.
    """
    rng, recorded, refused = random.Random(0), dict[str, tuple[bytes, str]](), 0  # noqa: S311 # not for secrets
    received = 0
    for _ in range(count):
        path = f"{rng.choice(posteriors)}/draws/{rng.randrange(1000, 1040)}"
        answer = rng.choice(clients).get(path, params={"wait": 60}, headers={"Accept": "application/x-npy"})
        if answer.status_code != 200:
            assert code(answer) in REFUSALS
            refused += 1
            continue
        received += 1
        assert recorded.setdefault(path, (answer.content, answer.headers["ETag"])) == (
            answer.content,
            answer.headers["ETag"],
        )
    return received, refused


def test_older_version_refuses_newer_records_unchanged(deployment: Deployment) -> None:
    """Both versions read the older version's data, during an upgrade and after its rollback."""
    new = later("formats")
    with deployment.api(NOW).client() as old_api, deployment.api(new).client() as new_api:
        deployment.worker(NOW)
        deployment.worker(new)
        until(lambda: is_ready(old_api) and is_ready(new_api), START_SECONDS)
        older = fitted(old_api, synthetic(old_api, N))
        newer = fitted(new_api, synthetic(new_api, N, seed=1))
        with_both = Stores.connect(deployment.settings)
        stored = with_both.client.get(f"glle:posterior:{newer.rpartition('/')[2]}")
        for method, path in (("GET", newer), ("GET", f"{newer}/draws/0"), ("DELETE", newer), ("GET", "/v1/posteriors")):
            answer = old_api.request(method, path)
            assert code(answer) == (503, "written-by-newer-version")
            assert answer.headers["Retry-After"]
        assert with_both.client.get(f"glle:posterior:{newer.rpartition('/')[2]}") == stored
        with_both.close()
        for path in (older, f"{older}/draws/0?wait=60", newer, f"{newer}/draws/0?wait=60"):
            assert new_api.get(path).status_code == 200
        np.testing.assert_array_equal(npy(new_api, f"{older}/draws/7"), direct(7))
        np.testing.assert_array_equal(npy(old_api, f"{older}/draws/7"), direct(7))
        np.testing.assert_array_equal(npy(new_api, f"{newer}/draws/7"), direct(7, seed=1))
        old_tags, new_tags = (api.get(f"{older}/draws/7").headers["ETag"] for api in (old_api, new_api))
        assert old_tags == new_tags


def test_newer_version_finishes_waiting_tasks(deployment: Deployment) -> None:
    """Tasks that wait when the last older worker stops run on the newer version, with the same bits."""
    new = later("formats")
    old_api, old_worker = deployment.api(NOW), deployment.worker(NOW)
    with old_api.client() as client:
        until(lambda: is_ready(client), START_SECONDS)
        data = synthetic(client, N)
        old = fitted(client, data)
        old_worker.stop()
        jobs = [client.post(f"{old}/draws", json={"count": 64, "first": 100 * i}).json()["id"] for i in range(3)]
        jobs.append(client.post("/v1/posteriors", json={"dataset": data, "n_neighbors": 7}).json()["id"])
    old_api.stop()
    with deployment.api(new).client() as client:
        deployment.worker(new)
        until(lambda: is_ready(client), START_SECONDS)
        until(lambda: all(client.get(f"/v1/jobs/{job}?wait=5").json()["status"] == "succeeded" for job in jobs))
        for number, job in enumerate(jobs[:3]):
            drawn = npy(client, f"/v1/jobs/{job}/result")
            np.testing.assert_array_equal(drawn[5], direct(100 * number + 5))
    connected = Stores.connect(deployment.settings)
    assert connected.client.keys(f"rq:queue:{queue_name()}") == []
    connected.close()


def test_folder_without_record_versions(tmp_path: Path, earlier: Version) -> None:
    """Data folder and log survive the upgrade and a rollback; the older version returns its results bit for bit."""

    def answers(client: httpx.Client, paths: list[str]) -> dict[str, tuple[int, bytes, str | None]]:
        binary = {"Accept": "application/x-npy, */*;q=0.5"}  # the text of floats in JSON is the encoder's
        responses = {path: client.get(path, headers=binary) for path in paths}
        return {path: (got.status_code, got.content, got.headers.get("ETag")) for path, got in responses.items()}

    with tree(earlier, tmp_path) as client:
        data = synthetic(client, N)
        client.patch(
            f"/v1/datasets/{data}", json={"name": "mine"}, headers={"Content-Type": "application/merge-patch+json"}
        )
        path = fitted(client, data)
        job = client.post(f"{path}/draws?wait=60", json={"count": 8}).json()["id"]
        paths = [
            f"/v1/datasets/{data}",
            f"/v1/datasets/{data}/data",
            path,
            "/v1/datasets",
            "/v1/posteriors",
            f"/v1/jobs/{job}",
        ]
        before = answers(client, paths)
        drawn = npy(client, f"{path}/draws/3")
    with tree(NOW, tmp_path) as client:
        assert answers(client, paths) == before
        assert code(client.get(f"{path}/draws/3?wait=60")) == (409, "other-numbers")
        refitted = fitted(client, data)
        assert refitted != path
        np.testing.assert_array_equal(npy(client, f"{refitted}/draws/3"), direct(3))
    with tree(earlier, tmp_path) as client:
        assert answers(client, paths[:3]) == {name: before[name] for name in paths[:3]}
        np.testing.assert_array_equal(npy(client, f"{path}/draws/3"), drawn)
