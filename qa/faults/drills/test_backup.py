"""A backup taken under load is restored elsewhere after the folder is destroyed: every answer has the same bits."""

from __future__ import annotations

import random
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from qa.faults.deployment import ONE_THREAD
from qa.frame import repeat
from tests.system.conftest import fit_posterior, glle, running, synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def tree(folder: Path) -> Iterator[httpx.Client]:
    """Run `glle up` on a data folder and yield a client; stop in order."""
    folder.mkdir(exist_ok=True)
    with running(folder, **ONE_THREAD, GLLE_API_PROCESSES="1") as up:
        with httpx.Client(base_url=up.url, timeout=60) as client:
            yield client
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(60) == 0, up.log.read_text()


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
    path = fit_posterior(client, data)
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
        path = fit_posterior(client, data)
        paths = [f"/v1/datasets/{data}", f"/v1/datasets/{data}/data", path, f"{path}/arrays"]
        paths += [f"{path}/summary?count=8&scale=1", f"{path}/draws/3", f"{path}/draws/11"]
        before = answers(client, paths)
        rng = random.Random(0)  # noqa: S311 # not for secrets
        with repeat(lambda: work(client, rng)):
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
        assert answers(client, paths) == before
