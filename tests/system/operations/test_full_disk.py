"""`glle up` on a disk that fills: uploads are refused first, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import redis

from tests.conftest import until
from tests.system.arrays import UPLOAD, to_npy
from tests.system.conftest import ONE_EACH, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK, RESERVE = 160 * 2**20, 20 * 2**20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a small disk at the folder `data`; it needs root."""
    folder = tmp_path / "data"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a disk is mounted by root")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607 # whichever is first on the path


def points(seed: int, n: int) -> bytes:
    """Return an npy body of n points in three dimensions."""
    return to_npy(np.random.default_rng(seed).normal(size=(n, 3)))


def fill(path: Path) -> None:
    """Write a file until the disk is full, as another program may."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 2**16)
        except OSError:
            pass


@pytest.mark.slow
def test_a_full_disk_stops_uploads_and_the_service_resumes(small: Path) -> None:
    """Uploads leave the reserve; after another program has filled the disk, all is there once it has space."""
    with running(small, **ONE_EACH) as up, httpx.Client(base_url=up.url, timeout=60) as client:
        data = client.post("/v1/datasets", content=points(0, 200), headers=UPLOAD).json()["id"]
        done = client.post("/v1/posteriors?wait=60", json={"dataset": data}).json()["id"]

        answers = [client.post("/v1/datasets", content=points(seed, 400_000), headers=UPLOAD) for seed in range(1, 20)]
        refused = [answer for answer in answers if answer.status_code != 201]
        assert refused
        assert {(answer.status_code, answer.json()["type"]) for answer in refused} == {
            (507, "urn:glle:problem:storage-full")
        }
        assert "GLLE_DATA_DIR" in refused[0].json()["remedy"]
        assert shutil.disk_usage(small / "data").free >= RESERVE - 2**20
        assert client.get("/readyz").status_code == 200
        fit = {"dataset": data, "n_neighbors": 7}
        assert client.post("/v1/posteriors?wait=60", json=fit).status_code in {200, 201}

        fill(small / "data" / "filler")
        with up.redis("GLLE_REDIS_URL") as queue, pytest.raises(redis.RedisError):
            queue.set("larger than the last page of the AOF", b"0" * 2**20)  # the server exits

        until(lambda: client.get("/readyz").status_code == 503)
        (small / "data" / "filler").unlink()
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get(f"/v1/posteriors/{done}").status_code == 200
        assert client.post("/v1/posteriors?wait=60", json=fit | {"n_neighbors": 10}).status_code in {200, 201}
