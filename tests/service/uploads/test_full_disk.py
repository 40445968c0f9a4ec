"""A disk with less free space than the reserve: refused and served requests."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.service.conftest import register_worker
from tests.service.tenants import served
from worker.operations import health
from worker.storage import free_space
from worker.storage.free_space import ADDRESSES

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores

CSV = {"Content-Type": "text/csv"}
SHEET = {"name": "s_curve", "n": 50}
ALL = 2**60  # more than any disk has


def status_and_code(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the problem of a response."""
    return answer.status_code, answer.json()["type"].removeprefix("urn:glle:problem:")


def test_uploads_leave_the_reserve_free(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 with the numbers and the remedy, and no file; other requests succeed with the queue's log elsewhere."""
    register_worker(stores)
    dataset = client.post("/v1/datasets/synthetic", json=SHEET).json()["id"]
    monkeypatch.setattr(free_space, "disk_reserve", lambda _: ALL)
    with served(stores) as full:
        for answer in (
            full.post("/v1/datasets", content="a,b\n1,2\n3,4\n", headers=CSV),
            full.post("/v1/datasets", content=iter([b"a,b\n1,2\n", b"3,4\n"]), headers=CSV),
            full.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1}),
        ):
            assert status_and_code(answer) == (507, "storage-full")
            assert answer.json()["details"]["reserve"] == ALL
            assert "GLLE_DATA_DIR" in answer.json()["remedy"]
        assert full.get(f"/v1/datasets/{dataset}/data").status_code == 200
        assert full.post("/v1/posteriors", json={"dataset": dataset}).status_code == 202
        ready = full.get("/readyz")
        (space,) = [check for check in ready.json()["checks"] if check["name"] == "disk space"]
        assert (ready.status_code, space["state"]) == (200, "warning")
    assert list((Path(stores.settings.data_dir) / "incoming").glob("*")) == []
    assert len(client.get("/v1/datasets").json()["items"]) == 1


def test_new_work_is_refused_on_the_disk_of_the_queue(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `glle up` a full disk ends the queue server: records can be read, cancelled and deleted only."""
    register_worker(stores)
    dataset = client.post("/v1/datasets/synthetic", json=SHEET).json()["id"]
    job = client.post("/v1/posteriors", json={"dataset": dataset}).json()["links"]["self"]
    (Path(stores.settings.data_dir) / ADDRESSES).write_text("{}")
    monkeypatch.setattr(free_space, "disk_reserve", lambda _: ALL)
    with served(stores) as full:
        answer = full.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": 7})
        assert status_and_code(answer) == (503, "redis-full")
        assert answer.headers["retry-after"] == "5"
        assert status_and_code(full.get("/readyz")) == (503, "redis-full")
        assert full.post("/v1/posteriors", json={"dataset": dataset}).json()["links"]["self"] == job
        assert full.get(job).status_code == 200
        assert full.delete(job).json()["status"] == "cancelled"
        assert full.delete(f"/v1/datasets/{dataset}").status_code == 204


def test_ready_tests_a_write(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions alone do not show that a disk is full."""
    register_worker(stores)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    health._probe_folder.cache_clear()
    monkeypatch.setattr(health, "probe", full)
    answer = client.get("/readyz")
    assert status_and_code(answer) == (503, "storage-full")
    assert answer.json()["details"]["failed"] == ["data folder"]
    monkeypatch.undo()
    assert client.get("/readyz").status_code == 200
