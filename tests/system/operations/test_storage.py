"""`glle up` with a small cache and an object store: the same bits, and complete deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.conftest import until
from tests.system.conftest import fit_posterior, running, synthetic, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.storage, pytest.mark.timeout(600)]

N = 3000
SMALL = str(5 * 2**20)
NPY = {"accept": "application/x-npy"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the object store."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[httpx.Client]:
    """Return a client of a service with a cache of 5 MB and an object store."""
    settings = {"GLLE_CACHE_BYTES": SMALL, "GLLE_STORE_URL": f"file://{folder}"}
    with (
        running(tmp_path_factory.mktemp("small"), **settings) as up,
        httpx.Client(base_url=up.url, timeout=60) as http_client,
    ):
        yield http_client


def job(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    """Run a job and return the path of its result."""
    answer = client.post(path, json=body)
    assert answer.status_code in {200, 202}, answer.text
    result = wait_for_end(client, answer.json()["id"])
    assert result["status"] == "succeeded", result
    return f"/v1/jobs/{result['id']}/result"


def everything(client: httpx.Client, dataset: str) -> dict[str, bytes]:
    """Return the bodies of a posterior and its results, whole and in parts."""
    posterior = fit_posterior(client, dataset)
    draws = job(client, posterior + "/draws", {"count": 60})
    generated = job(client, posterior + "/reconstructions", {"count": 40})
    bodies = {}
    for name, path, headers in (
        ("posterior", posterior + "/arrays?name=covariance_factor", NPY),
        (
            "part of the posterior",
            posterior + "/arrays?name=covariance_factor",
            {**NPY, "range": "bytes=500000-500099"},
        ),
        ("draw", posterior + "/draws/7", NPY),
        ("draws", draws, NPY),
        ("some draws", draws + "?draws=3:9&points=10:20", NPY),
        ("a range of draws", draws, {**NPY, "range": "bytes=2000000-2000999"}),
        ("draws as a table", draws + "?draws=0:2&points=0,2999", {"accept": "text/csv"}),
        ("summary", posterior + "/summary?count=60&scale=1&wait=60", {"accept": "application/zip"}),
        ("generated", generated, NPY),
        ("some of it", generated + "?draws=5,7&points=100:110", NPY),
        ("a range of it", generated, {**NPY, "range": "bytes=2800000-2800999"}),
        ("generated as a table", generated + "?draws=1:2&points=0:50", {"accept": "text/csv"}),
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code in {200, 206}, (name, answer.text)
        assert answer.status_code == 206 or "range" not in headers
        bodies[name] = answer.content
    return bodies


def test_large_results_have_the_same_bits_and_are_deleted_completely(
    small: httpx.Client, client: httpx.Client, folder: Path
) -> None:
    """Results larger than the cache equal those of a large cache; a deletion leaves no object."""
    dataset = synthetic(small, N)
    bodies = everything(small, dataset)
    assert synthetic(client, N) == dataset
    expected = everything(client, dataset)
    assert {name: body == expected[name] for name, body in bodies.items()} == dict.fromkeys(expected, True)
    objects = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in objects) > int(SMALL)
    assert all(path.stat().st_mode & 0o077 == 0 for path in objects), "readable only by the owner"
    assert "glle_stored_object_bytes" in small.get("/metrics").text
    assert "object store" in [check["name"] for check in small.get("/readyz").json()["checks"]]
    assert small.delete(f"/v1/datasets/{dataset}?force=true").status_code == 204
    until(lambda: not [path for path in folder.rglob("*") if path.is_file()])
