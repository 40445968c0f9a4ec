"""Results of analyses on real workers equal those of the engine."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import manifolds
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import calibrate
from tests.conftest import until
from tests.system.arrays import get_array
from tests.system.conftest import ended, fitted, synthetic

if TYPE_CHECKING:
    import httpx

    from glle_engine import Posterior
    from tests.system.conftest import Up

N = 300
SHEET = manifolds.make("s_curve", N, seed=6).X
NPZ = {"accept": "application/zip"}


@pytest.fixture(scope="module")
def posterior(client: httpx.Client) -> str:
    """Return the path of a fitted posterior."""
    return fitted(client, synthetic(client, N, seed=6))


@pytest.fixture(scope="module")
def direct() -> Posterior:
    """Fit the same data with the engine."""
    return glle_engine.fit(SHEET)


def arrays(client: httpx.Client, path: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an npz response."""
    answer = client.get(path, headers=NPZ)
    assert answer.status_code == 200, answer.text
    with np.load(io.BytesIO(answer.content)) as loaded:
        return {name: loaded[name] for name in loaded.files}


def result(client: httpx.Client, path: str, **body: Any) -> str:
    """Request an analysis, wait for its end and return the path of its result."""
    answer = client.post(path + "?wait=60", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "succeeded"
    return str(answer.json()["links"]["result"])


def test_summary(client: httpx.Client, posterior: str, direct: Posterior) -> None:
    """A summary within the wait equals the engine's, and its draws equal single draws."""
    path = posterior + "/summary?count=12&seed=4&scale=1&wait=60"
    summary = direct.summary(12, seed=4)
    result_arrays = arrays(client, path)
    np.testing.assert_allclose(result_arrays["consensus"], summary.consensus, atol=1e-6)
    np.testing.assert_allclose(result_arrays["spread"], summary.spread, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result_arrays["eigenvalues"], summary.eigenvalues, rtol=1e-6)
    body = client.get(path).json()
    assert body["spectrum"]["agreement"] == result_arrays["agreement"].tolist()
    draw = client.get(posterior + "/draws/7?seed=4").json()
    assert draw["eigenvalues"] == body["spectrum"]["eigenvalues"][7]


def test_new_points(client: httpx.Client, posterior: str, direct: Posterior) -> None:
    """Inline points get the engine's coordinates, mean and covariance, alone or in a batch."""
    new = SHEET[:4] + 0.05
    extension = direct.extend(SHEET, new)
    mean, covariance = extension.spread(direct.draws(6, first=1, seed=2), direct.embedding)
    result_arrays = arrays(
        client, result(client, posterior + "/transform", data=new.tolist(), draws=6, first=1, seed=2)
    )
    np.testing.assert_allclose(result_arrays["embedding"], extension.embed(direct.embedding), atol=1e-6)
    np.testing.assert_allclose(result_arrays["distances"], extension.distances)
    np.testing.assert_allclose(result_arrays["mean"], mean, atol=1e-5)
    np.testing.assert_allclose(result_arrays["covariance"], covariance, rtol=1e-3, atol=1e-6)
    alone = get_array(client, result(client, posterior + "/transform", data=new[2:3].tolist()))
    assert alone.tobytes() == result_arrays["embedding"][2:3].tobytes()


def test_draws_at_the_calibrated_scale(client: httpx.Client, posterior: str, direct: Posterior) -> None:
    """`scale=auto` calibrates on a worker and returns the draw at the engine's scale."""
    scale = calibrate(direct, SHEET).scale
    answer = client.get(posterior + "/draws/3?seed=2&scale=auto&wait=60")
    assert answer.status_code == 200, answer.text
    assert float(answer.headers["glle-scale"]) == pytest.approx(scale, rel=1e-4)
    number = client.get(f"{posterior}/draws/3?seed=2&scale={answer.headers['glle-scale']}")
    assert number.json() == {name: value for name, value in answer.json().items() if name != "notes"}
    codes = [note["code"] for note in answer.json().get("notes", [])]
    assert answer.headers.get("glle-notes", "") == ", ".join(codes)
    np.testing.assert_allclose(answer.json()["data"], direct.draw(3, seed=2, scale=scale).embedding, atol=1e-3)
    many = get_array(client, result(client, posterior + "/draws", count=4, seed=2, scale="auto"))
    assert many[3].tolist() == answer.json()["data"]


def test_generated_data(client: httpx.Client, posterior: str, direct: Posterior) -> None:
    """Reconstructions equal those of the engine."""
    data = get_array(client, result(client, posterior + "/reconstructions", count=3, seed=8, first=10))
    for reconstruction, index in zip(data, (10, 11, 12), strict=True):
        expected = direct.reconstruct(SHEET, direct.weights(index, seed=8))
        np.testing.assert_allclose(reconstruction, expected, atol=1e-9)


def test_advice(client: httpx.Client, posterior: str) -> None:
    """Curves and suggestions equal those of the engine."""
    dataset = client.get(posterior).json()["dataset"]
    body = client.get(result(client, "/v1/advice", dataset=dataset, n_neighbors=[6, 8, 10])).json()
    advice = advise(SHEET, n_neighbors=[6, 8, 10]).to_dict()
    assert (body["n_neighbors"], body["n_components"]) == (advice["n_neighbors"], advice["n_components"])
    for point, expected in zip(body["neighbors_curve"], advice["neighbors_curve"], strict=True):
        assert point == pytest.approx(expected, rel=1e-4)


def test_flushed_cache_same_bits(client: httpx.Client, posterior: str, up: Up) -> None:
    """After a cache flush, recomputed results have the same bits and ETag."""
    path = posterior + "/summary?count=6&resamples=4&wait=60"
    summary = client.get(path)
    generated = result(client, posterior + "/reconstructions", count=2)
    data = get_array(client, generated)
    with up.redis("GLLE_CACHE_URL") as cache:
        cache.flushall()
    again = client.get(path)
    assert (again.content, again.headers["etag"]) == (summary.content, summary.headers["etag"])
    reopened = client.get(generated)
    assert reopened.status_code == 202
    assert ended(client, reopened.json()["id"])["status"] == "succeeded"
    assert get_array(client, generated).tobytes() == data.tobytes()


def test_a_cancelled_summary_keeps_its_draws(client: httpx.Client) -> None:
    """The summary stops between two draws; finished draws stay cached, and a new request creates another job."""
    big = fitted(client, synthetic(client, 3000, seed=6))
    path = big + "/summary?count=400&scale=1&wait=0"
    job = client.get(path).json()
    link = job["links"]["self"]
    until(lambda: client.get(link).json()["progress"]["done"] >= 3)
    stopped = client.delete(link)
    # The worker may have stopped before the answer.
    assert (stopped.status_code, stopped.json()["status"]) in {(202, "cancelling"), (200, "cancelled")}
    assert ended(client, job["id"])["status"] == "cancelled"
    assert client.get(link + "/result").status_code == 409
    draw = client.get(big + "/draws/0?wait=0")
    assert draw.status_code == 200, "no job is needed"
    again = client.get(path).json()
    assert again["id"] != job["id"]
    assert client.delete(again["links"]["self"]).status_code in {200, 202}
    assert ended(client, again["id"])["status"] == "cancelled"
