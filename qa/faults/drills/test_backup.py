"""A backup taken under load is restored elsewhere after the folder is destroyed: every answer has the same bits."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from qa.background import repeated
from qa.faults.drills.conftest import tree
from tests.system.conftest import fitted, glle, synthetic

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]


def answers(client: httpx.Client, paths: list[str]) -> dict[str, tuple[int, bytes, str | None]]:
    """Return status, body and ETag of each path, waiting for results.

    Draws are compared as arrays, because their JSON contains the computing time.
    """
    responses: dict[str, Any] = {}
    for path in paths:
        headers = {"Accept": "application/x-npy" if "/draws/" in path else "*/*"}
        got = client.get(path, headers=headers)
        while got.status_code == 202:
            client.get(f"{got.headers['Location']}?wait=30")
            got = client.get(path, headers=headers)
        responses[path] = got.status_code, got.content, got.headers.get("ETag")
    return responses


def work(client: httpx.Client, rng: random.Random) -> None:
    """Upload, fit, draw and delete."""
    data = synthetic(client, 60 + rng.randrange(40), seed=rng.randrange(1000))
    path = fitted(client, data)
    assert client.get(f"{path}/draws/{rng.randrange(9)}?wait=30").status_code == 200
    if rng.random() < 0.7:
        client.delete(f"/v1/datasets/{data}?force=true")


@pytest.mark.parametrize("is_running", [True, False])
def test_lost_folder_is_restored(tmp_path: Path, *, is_running: bool) -> None:
    """A running or stopped deployment has all data again, and computes the results again with the same bits."""
    with tree(tmp_path) as client:
        data = synthetic(client, 200)
        client.patch(
            f"/v1/datasets/{data}", json={"name": "mine"}, headers={"Content-Type": "application/merge-patch+json"}
        )
        path = fitted(client, data)
        job = client.post(f"{path}/draws?wait=60", json={"count": 12}).json()["id"]
        paths = [f"/v1/datasets/{data}", f"/v1/datasets/{data}/data", path, f"{path}/arrays", f"/v1/jobs/{job}"]
        paths += [f"/v1/jobs/{job}/result", f"{path}/summary?count=8&scale=1", f"{path}/draws/3", f"{path}/draws/11"]
        before = answers(client, paths)
        rng = random.Random(0)  # noqa: S311 # not for secrets
        with repeated(lambda: work(client, rng)):
            backup = glle("backup", str(tmp_path / "backup.tar"), "--data-dir", str(tmp_path / "data"))
    assert backup.returncode == 0, backup.stderr
    shutil.rmtree(tmp_path / "data")
    assert glle("backup", "--verify", str(tmp_path / "backup.tar")).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    restore = ("restore", str(tmp_path / "backup.tar"), "--data-dir", str(elsewhere / "data"))
    if not is_running:
        put = glle(*restore)
        assert put.returncode == 0, put.stderr
    with tree(elsewhere) as client:
        if is_running:
            put = glle(*restore)
            assert put.returncode == 0, put.stderr
        responses = answers(client, [name for name in paths if not name.startswith("/v1/jobs/") or "result" in name])
        assert responses == {name: before[name] for name in responses}
        again = client.get(f"/v1/jobs/{job}").json()
        assert (again["id"], again["status"]) == (job, "succeeded")
