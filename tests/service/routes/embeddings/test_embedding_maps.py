"""Maps of embeddings over HTTP: arrays, and the places of new points; tasks run in the test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import glle_engine
from glle_engine.methods import method as method_of
from tests.service.conftest import check_problem, store_posterior, upload
from tests.service.routes.embeddings.conftest import PCA, SHEET, N, embed
from tests.service.routes.posteriors.conftest import NPY, NPZ, npz, result_of

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores


# A linear map, a map by a kernel, and two maps without arrays beside the data.
MAPS: dict[str, dict[str, tuple[int, ...]]] = {
    "pca": {"mean": (3,), "components": (2, 3)},
    "kernel-pca": {"kernel_means": (N,)},
    "lle": {},
    "t-sne": {},
}
OPTIONS = {"t-sne": {"perplexity": 10.0, "early_iter": 20, "max_iter": 50}}


@pytest.mark.parametrize("method", MAPS)
def test_new_points_are_placed_by_the_map(client: httpx.Client, stores: Stores, sheet: str, method: str) -> None:
    """Training points get their coordinates, new ones the engine's places; the map is among the arrays."""
    answer = embed(client, sheet, method, scores=[], parameters=OPTIONS.get(method, {}))
    result_of(stores, answer)
    link = answer.json()["links"]["embedding"]
    body = client.get(link).json()
    assert body["map"] == {name: list(shape) for name, shape in MAPS[method].items()}
    assert body["links"]["transform"] == f"{link}/transform"
    arrays = npz(client.get(body["links"]["arrays"], headers=NPZ))
    assert {name: array.shape for name, array in arrays.items()} == {"embedding": (N, 2), **MAPS[method]}
    Y = arrays["embedding"]
    job = client.post(f"{link}/transform", json={"dataset": sheet})
    payload = job.json()
    assert (payload["kind"], payload["dataset"], payload["request"]["embedding"]) == ("placement", sheet, body["id"])
    assert job.json()["links"]["embedding"] == link
    result = result_of(stores, job)
    placed = npz(client.get(result, headers=NPZ))["embedding"]
    np.testing.assert_allclose(placed, Y, rtol=0, atol=1e-8 * np.abs(Y).max())
    assert client.post(f"{link}/transform", json={"dataset": sheet}).status_code == 200
    inline = client.post(f"{link}/transform", json={"data": (SHEET.X[:3] + 0.1).tolist()})
    assert "dataset" not in inline.json()["links"]
    new = client.get(result_of(stores, inline)).json()["arrays"]["embedding"]
    one = method_of(method)
    direct = one.embed(SHEET.X, one.spec(**OPTIONS.get(method, {})))
    np.testing.assert_allclose(new["data"], direct.transform(SHEET.X[:3] + 0.1), rtol=1e-9, atol=1e-9)


def test_matrices_of_all_pairs_are_embedded(client: httpx.Client, stores: Stores) -> None:
    """Given kernels and weights, and a graph of two parts, are embedded as by the engine; a kernel places points."""
    K = np.exp(-0.5 * cdist(SHEET.X, SHEET.X, "sqeuclidean"))
    parts = np.concatenate([SHEET.X, SHEET.X + 100])
    cases: dict[str, tuple[np.ndarray, dict[str, str]]] = {
        "kernel-pca": (K, {"kernel": "precomputed"}),
        "laplacian-eigenmaps": (K, {"weights": "precomputed"}),
        "isomap": (parts, {}),
    }
    links = {}
    for name, (data, parameters) in cases.items():
        answer = embed(client, upload(client, data), name, scores=[], parameters=parameters)
        result_of(stores, answer)
        links[name] = answer.json()["links"]["embedding"]
        one = method_of(name)
        direct = one.embed(data, one.spec(**parameters))
        content = client.get(f"{links[name]}/coordinates", headers=NPY).content
        assert content.endswith(direct.Y.tobytes())
        assert [note["code"] for note in client.get(links[name]).json()["notes"]] == [
            note.code for note in direct.notes
        ]
    assert len(client.get(links["isomap"]).json()["figures"]["bridges"]) == 1
    job = client.post(f"{links['kernel-pca']}/transform", json={"data": K[:5].tolist()})
    placed = client.get(result_of(stores, job)).json()["arrays"]["embedding"]["data"]
    one = method_of("kernel-pca")
    np.testing.assert_allclose(placed, one.embed(K, one.spec(kernel="precomputed")).Y[:5], atol=1e-9)


def test_the_arrays_of_an_embedding(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """An array is available by name as npy or JSON, with a strong ETag; the coordinates have no map arrays."""
    answer = embed(client, sheet, scores=["trustworthiness"])
    link = answer.json()["links"]["embedding"]
    assert list(client.get(result_of(stores, answer)).json()["arrays"]) == ["embedding"]
    assert list(npz(client.get(f"{link}/coordinates", headers=NPZ))) == ["embedding"]
    path = f"{link}/arrays?name=components"
    reply = client.get(path, headers=NPY)
    axes = PCA.embed(SHEET.X).map
    assert axes is not None
    assert reply.content.endswith(np.ascontiguousarray(axes.arrays["components"]).tobytes())
    as_json = client.get(path, headers={"accept": "application/json"}).json()
    assert (as_json["shape"], as_json["dtype"]) == ([2, 3], "float64")
    assert client.get(path, headers={**NPY, "if-none-match": reply.headers["etag"]}).status_code == 304
    tags = {client.get(f"{link}/arrays{query}").headers["etag"] for query in ("", "?dtype=float32", "?name=mean")}
    assert len(tags | {reply.headers["etag"]}) == 4
    problem = check_problem(client.get(f"{link}/arrays?name=axes"), 422, "no-such-array")
    assert "embedding, mean, components" in problem["remedy"]
    check_problem(client.get("/v1/embeddings/emb_0/arrays"), 404, "embedding-not-found")


def test_refused_placements(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A method without a map names those with one; other widths and unknown ids are refused; no job is created."""
    answers = {name: embed(client, sheet, name, scores=[]) for name in ("pca", "laplacian-eigenmaps")}
    links = {name: answer.json()["links"]["embedding"] for name, answer in answers.items()}
    for answer in answers.values():
        result_of(stores, answer)
    before = client.get("/v1/jobs").json()["items"]
    problem = check_problem(
        client.post(f"{links['laplacian-eigenmaps']}/transform", json={"dataset": sheet}), 422, "invalid-parameter"
    )
    assert "pca, ppca, factor-analysis, kernel-pca, npe, lle, isomap, t-sne, umap or pacmap" in problem["remedy"]
    assert "transform" not in client.get(links["laplacian-eigenmaps"]).json()["links"]
    assert client.get(links["laplacian-eigenmaps"]).json()["map"] is None
    path = f"{links['pca']}/transform"
    assert "3 columns" in check_problem(client.post(path, json={"data": [[1, 2]]}), 422, "invalid-shape")["remedy"]
    check_problem(client.post(path, json={}), 422, "invalid-request")
    check_problem(client.post(path, json={"data": [[1, 2, 3]], "n_draws": 4}), 422, "invalid-request")
    check_problem(client.post(path, json={"dataset": "ds_none"}), 404, "dataset-not-found")
    check_problem(client.post("/v1/embeddings/emb_0/transform", json={"dataset": sheet}), 404, "embedding-not-found")
    assert client.get("/v1/jobs").json()["items"] == before


@pytest.mark.parametrize("kind", ["embedding", "posterior"])
def test_named_columns_of_new_points_have_any_order(client: httpx.Client, stores: Stores, kind: str) -> None:
    """Columns of new points are matched by their names; missing and unknown names are refused."""
    named, mixed, other = (
        client.post("/v1/datasets", json={"data": SHEET.X[:, order].tolist(), "names": [*names]}).json()["id"]
        for order, names in (([0, 1, 2], "xyz"), ([2, 0, 1], "zxy"), ([0, 1, 2], "xyw"))
    )
    path = f"/v1/posteriors/{store_posterior(stores, named, glle_engine.fit(SHEET.X), 1)}"
    if kind == "embedding":
        result_of(stores, answer := embed(client, named, scores=[]))
        path = answer.json()["links"]["embedding"]
    placed = client.post(f"{path}/transform", json={"dataset": mixed})
    arrays = npz(client.get(f"{path}/arrays", headers=NPZ))
    placed_arrays = npz(client.get(result_of(stores, placed), headers=NPZ))
    np.testing.assert_allclose(
        placed_arrays["embedding"], arrays["embedding"], atol=1e-8 * np.abs(arrays["embedding"]).max()
    )
    problem = check_problem(client.post(f"{path}/transform", json={"dataset": other}), 422, "invalid-shape")
    assert problem["details"] == {"missing": ["z"], "unknown": ["w"]}
