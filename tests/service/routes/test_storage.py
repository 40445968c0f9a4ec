"""The object store as clients and operators see it: answers when it is away, health, `glle store`."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.app import create_app
from service.cli import main
from tests.service.conftest import register_worker, serving
from tests.service.routes.test_analyses import NPY, check, drawn, fitted, worked
from worker.execution import tasks
from worker.operations import doctor
from worker.storage.object_store import backend
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx


@pytest.fixture
def stored(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Stores with a cache of which half is 64 kB, and a store."""
    made = Stores.connect(replace(stores.settings, store_url=f"file://{tmp_path}/objects", cache_bytes=2**17))
    monkeypatch.setattr(tasks, "process_stores", lambda: made)
    monkeypatch.setattr(backend, "REST_SECONDS", 0.0)
    yield made
    made.close()


@pytest.fixture
def asked(stored: Stores) -> Iterator[httpx.Client]:
    """A client of an app on them."""
    with serving(create_app(stored)) as made:
        yield made


def away(stored: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the store fail from now on."""

    def fail() -> Any:
        raise OSError(5, "geheim")

    assert stored.cache.objects is not None
    monkeypatch.setattr(stored.cache.objects.bucket, "_connect", fail)


def test_a_store_that_is_away_is_503_and_then_as_before(
    asked: httpx.Client, stored: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for its draws and results get 503; other requests are answered."""
    posterior = fitted(asked)
    draws = drawn(stored, asked.post(posterior + "/draws", json={"count": 24}))
    generated = worked(stored, asked.post(posterior + "/reconstructions", json={"count": 60}))
    before = [asked.get(path, headers=NPY).content for path in (draws, generated)]
    with monkeypatch.context() as broken:
        away(stored, broken)
        for path in (draws, generated, posterior + "/draws/23"):
            answer = asked.get(path, headers=NPY)
            assert "geheim" not in str(check(answer, 503, "store-unavailable"))
            assert answer.headers["retry-after"] == "5"
        assert asked.get(posterior).status_code == 200
        register_worker(stored)
        (body,) = [one for one in asked.get("/readyz").json()["checks"] if one["name"] == "object store"]
        assert body["state"] == "warning"
    assert [asked.get(path, headers=NPY).content for path in (draws, generated)] == before


def test_a_torn_object_is_made_again(asked: httpx.Client, stored: Stores, tmp_path: Path) -> None:
    """Bits that changed on the disk are seen, and the result is the same as before."""
    posterior = fitted(asked)
    generated = worked(stored, asked.post(posterior + "/reconstructions", json={"count": 60}))
    before = asked.get(generated, headers=NPY).content
    for path in (tmp_path / "objects").rglob("*"):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2 :: 7] = bytes(len(raw[len(raw) // 2 :: 7]))
            path.write_bytes(raw)
    again = asked.get(generated, headers=NPY)
    assert asked.get(worked(stored, again), headers=NPY).content == before


def test_draws_beyond_the_cache_are_refused_only_beyond_the_store(asked: httpx.Client, stored: Stores) -> None:
    """Then with the setting that would allow them."""
    posterior = fitted(asked)
    assert stored.cache.objects is not None
    stored.cache.objects._most_bytes = 2**20
    answer = asked.post(posterior + "/draws", json={"count": 1000})
    assert "GLLE_STORE_BYTES" in check(answer, 422, "store-too-small")["remedy"]


def test_a_posterior_of_a_store_that_is_away_is_fitted_again(
    asked: httpx.Client, stored: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cache has room for it the store is not waited for."""
    assert stored.cache.objects is not None
    stored.cache.objects._rule = "always"
    posterior = fitted(asked)
    assert stored.cache.objects.index.sums()[0] == 1
    draw = drawn(stored, asked.get(posterior + "/draws/0?wait=0"))
    before = asked.get(draw, headers=NPY).content
    stored.cache.client.flushall()
    away(stored, monkeypatch)
    assert asked.get(drawn(stored, asked.get(posterior + "/draws/0?wait=0")), headers=NPY).content == before


def test_doctor_writes_reads_and_removes(stored: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """And names a store that fails, or is not swept."""
    stored.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    checks = {one.name: one.state for one in doctor._servers(stored.settings)}
    assert (checks["object store"], checks["object store's sweep"]) == ("ok", "ok")
    later = SimpleNamespace(time=lambda: time.time() + stored.settings.cache_ttl + 1)
    assert stored.cache.objects is not None
    with monkeypatch.context() as old:
        old.setattr("worker.storage.object_store.index.time", later)
        checks = {one.name: one.state for one in doctor._object_store(stored.cache.objects)}
        assert (checks["object store"], checks["object store's sweep"]) == ("ok", "warning")
    away(stored, monkeypatch)
    assert [one.state for one in doctor._object_store(stored.cache.objects)] == ["problem"]


def test_glle_store_shows_and_sweeps(
    stored: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the settings of the deployment; without a store it says so."""
    for name, value in replace(stored.settings, cache_bytes=2**20).to_env().items():
        monkeypatch.setenv(name, value)
    stored.cache.put("result:post_a:x", {}, {"x": np.zeros(2**17)})
    assert main.main(["store", "show"]) == 0
    assert capsys.readouterr().out.startswith("1 objects of 1,04")
    assert main.main(["store", "sweep", "--age-hours", "0"]) == 0
    assert "0 expired, 1 unreferenced; 1 removed" in capsys.readouterr().out
    monkeypatch.setenv("GLLE_STORE_URL", "")
    assert main.main(["store", "show"]) == 2
    assert "GLLE_STORE_URL is not set" in capsys.readouterr().err
