"""Uploads on a small disk: whatever they unpack to, the reserve stays free and the queue's Redis server lives on."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import scipy.sparse

from qa.frame import repeat
from tests.system.conftest import ONE_EACH, running, synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 2**20
DISK = 96 * MIB
RESERVE = DISK // 8
LARGE = 128 * MIB  # unpacked, each of them more than the disk has
AT_ONCE = 2 * MIB  # that some writers together may write after their looks at the disk
LINES = b"0.5,1.25,2.0,3.5\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system for the data folder; skip where that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs root, and the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607 # of the system


def gzipped_text() -> bytes:
    """Return a small gzip file of a large table."""
    return gzip.compress(LINES * (MIB // len(LINES)), 9) * (LARGE // MIB)


def zip_matrix(save: str) -> bytes:
    """Return a small npz file of a large matrix, dense or sparse."""
    out = io.BytesIO()
    if save == "dense":
        np.savez_compressed(out, data=np.zeros((LARGE // 320, 40)))
    else:
        scipy.sparse.save_npz(out, scipy.sparse.csr_array(([1.0], ([3], [2])), shape=(LARGE // 800, 100)))
    return out.getvalue()


@pytest.mark.slow
def test_what_uploads_unpack_leaves_the_reserve(small_disk: Path) -> None:
    """Uploads that would fill the disk get 507 with the numbers; their space is free again, and a job succeeds."""
    bodies = [
        ("text/csv", {"Content-Encoding": "gzip"}, gzipped_text()),
        ("application/x-npz", {}, zip_matrix("dense")),
        ("application/x-npz", {}, zip_matrix("sparse")),
    ] * 2
    free_bytes = [DISK]

    def look() -> None:
        disk = os.statvfs(small_disk)
        free_bytes.append(disk.f_bavail * disk.f_frsize)

    with running(small_disk, **ONE_EACH) as up, httpx.Client(base_url=up.url, timeout=100) as client:

        def upload(body: tuple[str, dict[str, str], bytes]) -> httpx.Response:
            media, headers, content = body
            return client.post("/v1/datasets", content=content, headers={"Content-Type": media, **headers})

        with repeat(look, seconds=0.001), ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(upload, bodies))
        for answer in answers:
            assert (answer.status_code, answer.json()["type"]) == (507, "urn:glle:problem:storage-full"), answer.text
            assert answer.json()["details"]["reserve"] == RESERVE
        assert min(free_bytes) >= RESERVE - AT_ONCE
        assert client.get("/readyz").status_code == 200
        dataset = synthetic(client, 60)
        assert client.post("/v1/posteriors?wait=60", json={"dataset": dataset}).status_code in {200, 201}
