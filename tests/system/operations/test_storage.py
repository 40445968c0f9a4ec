"""A service whose cache loses all its data while the service runs, and the deletion of a data set's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.conftest import until
from tests.system.conftest import fit_posterior, synthetic, wait_for_end

if TYPE_CHECKING:
    import httpx

    from tests.system.conftest import Up

N = 1500
NPY = {"accept": "application/x-npy"}


def job(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    """Run a job and return the path of its result."""
    answer = client.post(path, json=body)
    assert answer.status_code in {200, 202}, answer.text
    result = wait_for_end(client, answer.json()["id"])
    assert result["status"] == "succeeded", result
    return f"/v1/jobs/{result['id']}/result"


def everything(client: httpx.Client, dataset: str) -> dict[str, bytes]:
    """Return the bodies of a posterior and of its results, whole and in parts."""
    posterior = fit_posterior(client, dataset)
    draws = job(client, posterior + "/draws", {"n_draws": 60})
    generated = job(client, posterior + "/reconstructions", {"n_draws": 40})
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
        ("a range of draws", draws, {**NPY, "range": "bytes=1000000-1000999"}),
        ("draws as a table", draws + "?draws=0:2&points=0,1499", {"accept": "text/csv"}),
        ("summary", posterior + "/summary?n_draws=60&scale=1&wait=60", {"accept": "application/zip"}),
        ("generated", generated, NPY),
        ("some of it", generated + "?draws=5,7&points=100:110", NPY),
        ("a range of it", generated, {**NPY, "range": "bytes=1400000-1400999"}),
        ("generated as a table", generated + "?draws=1:2&points=0:50", {"accept": "text/csv"}),
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code in {200, 206}, (name, answer.text)
        assert answer.status_code == 206 or "range" not in headers
        bodies[name] = answer.content
    return bodies


def test_a_lost_cache_costs_time_alone(up: Up, client: httpx.Client) -> None:
    """After the loss all results have the same bytes without a new job, and a deletion leaves no file."""
    folder = up.log.parent / "data" / "objects"
    before = {path for path in folder.rglob("*") if path.is_file()}
    dataset = synthetic(client, N, seed=11)
    bodies = everything(client, dataset)
    files = {path for path in folder.rglob("*") if path.is_file()} - before
    assert all(path.stat().st_mode & 0o077 == 0 for path in files), "readable only by the owner"
    jobs = client.get("/v1/jobs?limit=5").json()["items"]
    up.redis("GLLE_CACHE_URL").flushall()
    again = everything(client, dataset)
    assert {name: body == again[name] for name, body in bodies.items()} == dict.fromkeys(bodies, True)
    assert client.get("/v1/jobs?limit=5").json()["items"] == jobs
    assert client.delete(f"/v1/datasets/{dataset}?force=true").status_code == 204
    until(lambda: not any(path.exists() for path in files))
