"""The object store over HTTP, its commands, a full disk, and data with changed bits on disk."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.app import create_app
from service.cli import doctor
from tests.conftest import stored_files
from tests.service.conftest import check_problem, register_worker, serving
from tests.service.routes.posteriors.conftest import NPY, fit_posterior, result_of
from tests.service.tenants import serve_stores
from worker.base import disk
from worker.execution import tasks
from worker.operations import health
from worker.storage.free_space import ADDRESSES
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture
def remote_stores(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Stores whose files are behind a URL, as in a bucket."""
    (tmp_path / "objects").mkdir()
    connected = Stores.connect(replace(stores.settings, store_url=f"file://{tmp_path}/objects"))
    monkeypatch.setattr(connected.files.bucket, "is_local", False)
    monkeypatch.setattr(tasks, "process_stores", lambda: connected)
    yield connected
    connected.close()


@pytest.fixture
def remote_client(remote_stores: Stores) -> Iterator[httpx.Client]:
    """A client of an app on these stores."""
    with serving(create_app(remote_stores)) as connected:
        yield connected


def make_unreachable(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each operation of the store fail."""

    def fail() -> Any:
        raise OSError(5, "geheim")

    monkeypatch.setattr(stores.files.bucket, "_connect", fail)


def test_an_unreachable_store_is_503_until_it_returns(
    remote_client: httpx.Client, remote_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results without a copy get 503; other requests are answered, and no job is started for them."""
    posterior = fit_posterior(remote_client)
    draws = result_of(remote_stores, remote_client.post(posterior + "/draws", json={"n_draws": 24}))
    generated = result_of(remote_stores, remote_client.post(posterior + "/reconstructions", json={"n_draws": 60}))
    before = [remote_client.get(path, headers=NPY).content for path in (draws, generated)]
    jobs = len(remote_client.get("/v1/jobs").json()["items"])
    with monkeypatch.context() as broken:
        make_unreachable(remote_stores, broken)
        assert [remote_client.get(path, headers=NPY).content for path in (draws, generated)] == before  # from the cache
        remote_stores.cache.client.flushall()
        for path in (draws, generated, posterior + "/arrays?name=embedding"):
            answer = remote_client.get(path, headers=NPY)
            assert "geheim" not in str(check_problem(answer, 503, "store-unavailable"))
            assert answer.headers["retry-after"] == "5"
        assert remote_client.get(posterior).status_code == 200
        register_worker(remote_stores)
        (body,) = [check for check in remote_client.get("/readyz").json()["checks"] if check["name"] == "object store"]
        assert body["state"] == "warning"
    assert [remote_client.get(path, headers=NPY).content for path in (draws, generated)] == before
    assert len(remote_client.get("/v1/jobs").json()["items"]) == jobs


def test_doctor_writes_reads_and_removes(remote_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor also names a failing store."""
    checks = {check.name: check.state for check in doctor._servers(remote_stores)}
    assert checks["object store"] == "ok"
    make_unreachable(remote_stores, monkeypatch)
    assert doctor._object_store(remote_stores).state == "problem"


X = np.random.default_rng(0).normal(size=(50, 3))


CSV = {"Content-Type": "text/csv"}
SHEET = {"name": "s_curve", "n": 50}
ALL = 2**60  # more than any disk has


def test_uploads_leave_the_reserve_free(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the reserve of the disk an upload is 507 with the remedy, and leaves no file."""
    register_worker(stores)
    dataset = client.post("/v1/datasets/synthetic", json=SHEET).json()["id"]
    monkeypatch.setattr(disk, "reserve_of", lambda _: ALL)
    with serve_stores(stores) as full:
        for answer in (
            full.post("/v1/datasets", content="a,b\n1,2\n3,4\n", headers=CSV),
            full.post("/v1/datasets", content=iter([b"a,b\n1,2\n", b"3,4\n"]), headers=CSV),
            full.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1}),
        ):
            problem = check_problem(answer, 507, "storage-full")
            assert problem["details"]["reserve"] == ALL
            assert "GLLE_DATA_DIR" in problem["remedy"]
        assert full.get(f"/v1/datasets/{dataset}/data").status_code == 200
        check_problem(full.post("/v1/posteriors", json={"dataset": dataset}), 507, "storage-full")
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
    monkeypatch.setattr(disk, "reserve_of", lambda _: ALL)
    with serve_stores(stores) as full:
        answer = full.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": 7})
        check_problem(answer, 503, "redis-full")
        assert answer.headers["retry-after"] == "5"
        check_problem(full.get("/readyz"), 503, "redis-full")
        assert full.post("/v1/posteriors", json={"dataset": dataset}).json()["links"]["self"] == job
        assert full.get(job).status_code == 200
        assert full.delete(job).json()["status"] == "cancelled"
        assert full.delete(f"/v1/datasets/{dataset}").status_code == 204


def test_ready_tests_a_write(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """/readyz writes a file, because permissions alone do not show that a disk is full."""
    register_worker(stores)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    health._probe_folder.cache_clear()
    monkeypatch.setattr(health, "probe", full)
    answer = client.get("/readyz")
    assert check_problem(answer, 503, "storage-full")["details"]["failed"] == ["data folder"]
    monkeypatch.undo()
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_damaged_result_is_a_problem_with_its_remedy(client: httpx.Client, stores: Stores, *, is_lost: bool) -> None:
    """Nothing is computed again in silence; the remedy in the problem brings the same bits back."""
    posterior = fit_posterior(client)
    known = set(stored_files(stores))
    generated = result_of(stores, client.post(posterior + "/reconstructions", json={"n_draws": 60}))
    before = client.get(generated, headers=NPY).content
    (file,) = set(stored_files(stores)) - known
    if is_lost:
        file.unlink()
    else:
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2 :: 7] = bytes(len(raw[len(raw) // 2 :: 7]))
        file.write_bytes(raw)
    problem = check_problem(client.get(generated, headers=NPY), 500, "result-damaged")
    job = generated.removesuffix("/result")
    assert f"DELETE {job}?record=true" in problem["remedy"]
    assert client.delete(job, params={"record": True}).status_code == 200
    again = result_of(stores, client.post(posterior + "/reconstructions", json={"n_draws": 60}))
    assert client.get(again, headers=NPY).content == before
