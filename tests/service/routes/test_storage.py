"""The object store over HTTP: responses without it, health, `glle store`."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.app import create_app
from service.cli import main
from tests.conftest import stored_files
from tests.service.conftest import register_worker, serving
from tests.service.routes.posteriors.conftest import NPY, check_problem, drawn, fitted, result_of
from worker.execution import tasks
from worker.operations import doctor
from worker.storage.datasets import Table
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx


@pytest.fixture
def stored(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Stores with an object store and a small cache, of which half is 64 kB."""
    store_stores = Stores.connect(replace(stores.settings, store_url=f"file://{tmp_path}/objects", cache_bytes=2**17))
    monkeypatch.setattr(tasks, "process_stores", lambda: store_stores)
    yield store_stores
    store_stores.close()


@pytest.fixture
def store_client(stored: Stores) -> Iterator[httpx.Client]:
    """A client of an app on these stores."""
    with serving(create_app(stored)) as store_stores:
        yield store_stores


def unreachable(stored: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each operation of the store fail."""

    def fail() -> Any:
        raise OSError(5, "geheim")

    assert stored.cache.objects is not None
    monkeypatch.setattr(stored.cache.objects.bucket, "_connect", fail)


def test_an_unreachable_store_is_503_until_it_returns(
    store_client: httpx.Client, stored: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for its draws and results get 503; other requests are answered."""
    posterior = fitted(store_client)
    draws = drawn(stored, store_client.post(posterior + "/draws", json={"count": 24}))
    generated = result_of(stored, store_client.post(posterior + "/reconstructions", json={"count": 60}))
    before = [store_client.get(path, headers=NPY).content for path in (draws, generated)]
    with monkeypatch.context() as broken:
        unreachable(stored, broken)
        for path in (draws, generated, posterior + "/draws/23"):
            answer = store_client.get(path, headers=NPY)
            assert "geheim" not in str(check_problem(answer, 503, "store-unavailable"))
            assert answer.headers["retry-after"] == "5"
        assert store_client.get(posterior).status_code == 200
        register_worker(stored)
        (body,) = [check for check in store_client.get("/readyz").json()["checks"] if check["name"] == "object store"]
        assert body["state"] == "warning"
    assert [store_client.get(path, headers=NPY).content for path in (draws, generated)] == before


def test_a_torn_object_is_recomputed(store_client: httpx.Client, stored: Stores, tmp_path: Path) -> None:
    """Changed bits on the disk are detected, and the result has the same bits as before."""
    posterior = fitted(store_client)
    generated = result_of(stored, store_client.post(posterior + "/reconstructions", json={"count": 60}))
    before = store_client.get(generated, headers=NPY).content
    for path in set((tmp_path / "objects").rglob("*")).difference(stored_files(stored)):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2 :: 7] = bytes(len(raw[len(raw) // 2 :: 7]))
            path.write_bytes(raw)
    again = store_client.get(generated, headers=NPY)
    assert store_client.get(result_of(stored, again), headers=NPY).content == before


def test_draws_beyond_the_cache_are_refused_only_beyond_the_store(store_client: httpx.Client, stored: Stores) -> None:
    """The refusal names the setting of the limit."""
    posterior = fitted(store_client)
    assert stored.cache.objects is not None
    stored.cache.objects._max_bytes = 2**20
    answer = store_client.post(posterior + "/draws", json={"count": 1000})
    assert "GLLE_STORE_BYTES" in check_problem(answer, 422, "store-too-small")["remedy"]


def test_a_posterior_of_an_unreachable_store_is_fitted_again(
    store_client: httpx.Client, stored: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the cache has room, the request does not wait for the store."""
    assert stored.cache.objects is not None
    monkeypatch.setattr("worker.storage.object_store.results.READ_SECONDS", -1.0)  # each fit takes longer than a read
    posterior = fitted(store_client)
    assert stored.cache.objects.index.sums()[0] == 1
    draw = drawn(stored, store_client.get(posterior + "/draws/0?wait=0"))
    before = store_client.get(draw, headers=NPY).content
    stored.cache.client.flushall()
    unreachable(stored, monkeypatch)
    assert (
        store_client.get(drawn(stored, store_client.get(posterior + "/draws/0?wait=0")), headers=NPY).content == before
    )


def test_doctor_writes_reads_and_removes(stored: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor also names a failing or unswept store."""
    stored.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    checks = {check.name: check.state for check in doctor._servers(stored)}
    assert (checks["object store"], checks["object store's sweep"]) == ("ok", "ok")
    later = SimpleNamespace(time=lambda: time.time() + stored.settings.cache_ttl + 1)
    assert stored.cache.objects is not None
    with monkeypatch.context() as old:
        old.setattr("worker.storage.object_store.results.time", later)
        checks = {check.name: check.state for check in doctor._object_store(stored.cache.objects)}
        assert (checks["object store"], checks["object store's sweep"]) == ("ok", "warning")
    unreachable(stored, monkeypatch)
    assert [check.state for check in doctor._object_store(stored.cache.objects)] == ["problem"]


def test_glle_store_shows_and_sweeps(
    stored: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command uses the deployment's settings; without a store of results it shows the data sets."""
    for name, value in replace(stored.settings, cache_bytes=2**20).to_env().items():
        monkeypatch.setenv(name, value)
    stored.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    assert main.main(["store", "show"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "0 data sets; with imported posteriors 0 bytes."
    assert shown[1].startswith("1 objects of results, 1,04")
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "0 expired, 1 unreferenced; 1 objects removed" in capsys.readouterr().out
    stored.datasets.add(Table(values=np.eye(2), source={}))
    stored.datasets.files.bucket.write("data/ab/values.npy", [b"killed"], 6)
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "1 files without a record: kept; --orphans removes them." in capsys.readouterr().out
    assert main.main(["store", "sweep", "--orphans", "--age-hours", "0"]) == 0
    assert "1 files without a record: removed." in capsys.readouterr().out
    assert len(stored_files(stored)) == 1
    stored.client.flushall()
    assert main.main(["store", "sweep", "--orphans", "--age-hours", "0"]) == 1
    assert "no record names any" in capsys.readouterr().err
    assert len(stored_files(stored)) == 1
    monkeypatch.setenv("GLLE_STORE_URL", "")
    assert main.main(["store", "show"]) == 0
    assert capsys.readouterr().out == "0 data sets; with imported posteriors 0 bytes.\n"
