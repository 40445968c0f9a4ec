"""The main job: upload, fit, draw and fetch; known results are not computed again."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.system.arrays import NPY, from_npy, get_array
from tests.system.conftest import fit_posterior, synthetic, wait_for_end

if TYPE_CHECKING:
    import httpx


N = 300


@pytest.fixture(scope="module")
def posterior(client: httpx.Client) -> str:
    """Return the path of a fitted posterior."""
    return fit_posterior(client, synthetic(client, N))


def draws_job(client: httpx.Client, posterior: str, **body: Any) -> dict[str, Any]:
    """Run a draws job and return its record."""
    answer = client.post(posterior + "/draws?wait=60", json=body)
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    assert job["status"] == "succeeded"
    return job


def test_draw_731_alone_and_in_a_batch_same_bits(client: httpx.Client, posterior: str) -> None:
    """A single draw and a shard of any worker give the same bits; draws of scale 0 are the reference."""
    alone = get_array(client, posterior + "/draws/731", seed=11)
    batch = draws_job(client, posterior, n_draws=70, first=700, seed=11, scales=[0, 1])
    result = get_array(client, batch["links"]["result"])
    assert result.shape == (2, 70, N, 2)
    assert alone.tobytes() == result[1, 31].tobytes()
    reference = get_array(client, posterior + "/arrays", name="embedding")
    np.testing.assert_allclose(result[0, 0], reference, atol=1e-5)


def test_simultaneous_identical_requests_share_one_job(client: httpx.Client) -> None:
    """Eight simultaneous requests get one job."""
    body = {"dataset": synthetic(client, 2000, seed=5), "n_neighbors": 9}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/posteriors", json=body), range(8)))
    ids = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    assert len(ids) == 1
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert wait_for_end(client, ids.pop())["status"] == "succeeded"


def test_single_draw_in_every_representation(client: httpx.Client, posterior: str) -> None:
    """npy, npz, JSON and float32 agree; each has an ETag, and a current copy gets 304."""
    path = posterior + "/draws/3?scale=0.5"
    values = get_array(client, path)
    as_json = client.get(path)
    body = as_json.json()
    assert np.array(body["data"]).tobytes() == values.tobytes()
    assert (body["shape"], body["index"], body["scale"], len(body["eigenvalues"])) == ([N, 2], 3, 0.5, 2)
    assert body["diagnostics"]["disparity"] > 0
    with np.load(io.BytesIO(client.get(path, headers={"accept": "application/zip"}).content)) as npz:
        assert npz["embedding"].tobytes() == values.tobytes()
        assert npz["eigenvalues"].tolist() == body["eigenvalues"]
    half = client.get(path + "&dtype=float32", headers=NPY)
    assert from_npy(half.content).tobytes() == values.astype(np.float32).tobytes()
    full = client.get(path, headers=NPY)
    assert len({as_json.headers["etag"], full.headers["etag"], half.headers["etag"]}) == 3
    assert "immutable" in full.headers["cache-control"]
    cached = client.get(path, headers={**NPY, "if-none-match": f'"x", {full.headers["etag"]}'})
    assert (cached.status_code, cached.content) == (304, b"")
