"""The object store over HTTP, its commands, a full disk, and data with changed bits on disk."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.app import create_app
from service.cli import doctor, main
from tests.conftest import stored_files
from tests.service.conftest import check_problem, register_worker, serving
from tests.service.routes.posteriors.conftest import NPY, fit_posterior, result_of
from tests.service.tenants import serve_stores
from worker.base import disk
from worker.execution import tasks
from worker.operations import health
from worker.storage.datasets import Table
from worker.storage.free_space import ADDRESSES
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture
def tiered_stores(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Stores with an object store and a small cache, of which half is 64 kB."""
    store_stores = Stores.connect(replace(stores.settings, store_url=f"file://{tmp_path}/objects", cache_bytes=2**17))
    monkeypatch.setattr(tasks, "process_stores", lambda: store_stores)
    yield store_stores
    store_stores.close()


@pytest.fixture
def store_client(tiered_stores: Stores) -> Iterator[httpx.Client]:
    """A client of an app on these stores."""
    with serving(create_app(tiered_stores)) as store_stores:
        yield store_stores


def make_unreachable(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each operation of the store fail."""

    def fail() -> Any:
        raise OSError(5, "geheim")

    assert stores.cache.objects is not None
    monkeypatch.setattr(stores.cache.objects.bucket, "_connect", fail)


def test_an_unreachable_store_is_503_until_it_returns(
    store_client: httpx.Client, tiered_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for its draws and results get 503; other requests are answered."""
    posterior = fit_posterior(store_client)
    draws = result_of(tiered_stores, store_client.post(posterior + "/draws", json={"count": 24}))
    generated = result_of(tiered_stores, store_client.post(posterior + "/reconstructions", json={"count": 60}))
    before = [store_client.get(path, headers=NPY).content for path in (draws, generated)]
    with monkeypatch.context() as broken:
        make_unreachable(tiered_stores, broken)
        for path in (draws, generated, posterior + "/draws/23"):
            answer = store_client.get(path, headers=NPY)
            assert "geheim" not in str(check_problem(answer, 503, "store-unavailable"))
            assert answer.headers["retry-after"] == "5"
        assert store_client.get(posterior).status_code == 200
        register_worker(tiered_stores)
        (body,) = [check for check in store_client.get("/readyz").json()["checks"] if check["name"] == "object store"]
        assert body["state"] == "warning"
    assert [store_client.get(path, headers=NPY).content for path in (draws, generated)] == before


def test_draws_beyond_the_cache_are_refused_only_beyond_the_store(
    store_client: httpx.Client, tiered_stores: Stores
) -> None:
    """The refusal names the setting of the limit."""
    posterior = fit_posterior(store_client)
    assert tiered_stores.cache.objects is not None
    tiered_stores.cache.objects._max_bytes = 2**20
    answer = store_client.post(posterior + "/draws", json={"count": 1000})
    assert "GLLE_STORE_BYTES" in check_problem(answer, 422, "store-too-small")["remedy"]


def test_a_posterior_of_an_unreachable_store_is_fitted_again(
    store_client: httpx.Client, tiered_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the cache has room, the request does not wait for the store."""
    assert tiered_stores.cache.objects is not None
    for name, value in {"READ_SECONDS": 0.0, "READ_BYTES_PER_SECOND": float("inf")}.items():
        monkeypatch.setattr(f"worker.storage.object_store.results.{name}", value)  # each fit takes longer than a read
    posterior = fit_posterior(store_client)
    assert tiered_stores.cache.objects.index.sums()[0] == 1
    draw = result_of(tiered_stores, store_client.get(posterior + "/draws/0?wait=0"))
    before = store_client.get(draw, headers=NPY).content
    tiered_stores.cache.client.flushall()
    make_unreachable(tiered_stores, monkeypatch)
    draw = result_of(tiered_stores, store_client.get(posterior + "/draws/0?wait=0"))
    assert store_client.get(draw, headers=NPY).content == before


def test_doctor_writes_reads_and_removes(tiered_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor also names a failing or unswept store."""
    tiered_stores.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    checks = {check.name: check.state for check in doctor._servers(tiered_stores)}
    assert (checks["object store"], checks["object store's sweep"]) == ("ok", "ok")
    later = SimpleNamespace(time=lambda: time.time() + tiered_stores.settings.cache_ttl + 1)
    assert tiered_stores.cache.objects is not None
    with monkeypatch.context() as old:
        old.setattr("worker.storage.object_store.results.time", later)
        checks = {check.name: check.state for check in doctor._object_store(tiered_stores.cache.objects)}
        assert (checks["object store"], checks["object store's sweep"]) == ("ok", "warning")
    make_unreachable(tiered_stores, monkeypatch)
    assert [check.state for check in doctor._object_store(tiered_stores.cache.objects)] == ["problem"]


def test_glle_store_shows_and_sweeps(
    tiered_stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command uses the deployment's settings; without a store of results it shows the data sets."""
    for name, value in replace(tiered_stores.settings, cache_bytes=2**20).to_env().items():
        monkeypatch.setenv(name, value)
    tiered_stores.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    assert main.main(["store", "show"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "0 data sets; with imported posteriors 0 bytes."
    assert shown[1].startswith("1 objects of results, 1,04")
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "0 expired and 1 unreferenced objects removed." in capsys.readouterr().out
    tiered_stores.datasets.files.bucket.write("data/ab/values.npy", [b"killed"], 6)
    tiered_stores.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 1
    assert "Nothing was removed." in capsys.readouterr().err
    assert tiered_stores.cache.objects is not None
    assert list(tiered_stores.cache.objects.index.subjects()) == ["post_a"]
    with pytest.raises(SystemExit):
        main.main(["store", "sweep", "--unused-days", "0"])
    tiered_stores.datasets.add(Table(values=np.eye(2), source={}))
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "1 files without a record: kept; --orphans removes them." in capsys.readouterr().out
    assert main.main(["store", "sweep", "--orphans", "--age-hours", "0"]) == 0
    assert "1 files without a record: removed." in capsys.readouterr().out
    assert len(stored_files(tiered_stores)) == 1
    tiered_stores.client.flushall()
    assert main.main(["store", "sweep", "--orphans", "--age-hours", "0"]) == 1
    assert "no record names any" in capsys.readouterr().err
    assert len(stored_files(tiered_stores)) == 1
    monkeypatch.setenv("GLLE_STORE_URL", "")
    assert main.main(["store", "show"]) == 0
    assert capsys.readouterr().out == "0 data sets; with imported posteriors 0 bytes.\n"


X = np.random.default_rng(0).normal(size=(50, 3))


def test_damaged_data_are_a_problem_in_every_form(client: httpx.Client, stores: Stores) -> None:
    """The response has no ETag and is not cached; the same upload repairs the data."""
    body = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    csv = {"Content-Type": "text/csv"}
    id_ = client.post("/v1/datasets", content=body, headers=csv).json()["id"]
    path = f"/v1/datasets/{id_}/data"
    good = client.get(path, headers={"Accept": "application/x-npy"})
    assert good.status_code == 200
    (file,) = stored_files(stores)
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    for media in ("application/x-npy", "application/json", "text/csv", "application/zip"):
        answer = client.get(path, headers={"Accept": media})
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:glle:problem:dataset-damaged")
        assert "etag" not in answer.headers
    assert client.post("/v1/datasets", content=body, headers=csv).status_code == 200
    again = client.get(path, headers={"Accept": "application/x-npy"})
    assert (again.content, again.headers["etag"]) == (good.content, good.headers["etag"])


CSV = {"Content-Type": "text/csv"}
SHEET = {"name": "s_curve", "n": 50}
ALL = 2**60  # more than any disk has


def test_uploads_leave_the_reserve_free(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 with the numbers and the remedy, and no file; other requests succeed with the queue's log elsewhere."""
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
    """Permissions alone do not show that a disk is full."""
    register_worker(stores)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    health._probe_folder.cache_clear()
    monkeypatch.setattr(health, "probe", full)
    answer = client.get("/readyz")
    assert check_problem(answer, 503, "storage-full")["details"]["failed"] == ["data folder"]
    monkeypatch.undo()
    assert client.get("/readyz").status_code == 200


def test_a_torn_object_is_recomputed(store_client: httpx.Client, tiered_stores: Stores, tmp_path: Path) -> None:
    """Changed bits on the disk are detected, and the result has the same bits as before."""
    posterior = fit_posterior(store_client)
    generated = result_of(tiered_stores, store_client.post(posterior + "/reconstructions", json={"count": 60}))
    before = store_client.get(generated, headers=NPY).content
    for path in set((tmp_path / "objects").rglob("*")).difference(stored_files(tiered_stores)):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2 :: 7] = bytes(len(raw[len(raw) // 2 :: 7]))
            path.write_bytes(raw)
    again = store_client.get(generated, headers=NPY)
    assert store_client.get(result_of(tiered_stores, again), headers=NPY).content == before
