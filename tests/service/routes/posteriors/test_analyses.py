"""Summaries, new points and generated data over HTTP; tasks run in the test process, without workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array

import glle_engine
from tests.conftest import in_turn
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import JSON, NPY, NPZ, SHEET, fit_posterior, npz, result_of
from worker.execution import tasks
from worker.execution.draws import make_draws

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores


def test_summary_is_computed_once_then_immutable(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Requests at the same time share one job; then the summary is 200 with an ETag for each representation."""
    path = posterior + "/summary?n_draws=5&seed=3&scale=1"
    first = client.get(path + "&wait=0")
    again = client.get(path.replace("scale=1", "scale=1.0") + "&wait=0&first=0")
    assert again.json()["id"] == first.json()["id"]
    result = result_of(stores, first)
    answer = client.get(path)
    payload = answer.json()
    assert payload == client.get(result).json()
    assert (payload["n_draws"], payload["seed"], payload["source"], payload["notes"]) == (5, 3, "posterior", [])
    arrays = npz(client.get(path, headers=NPZ))
    assert set(arrays) == {*payload["arrays"], *payload["spectrum"]}
    assert set(payload["arrays"]) == {"consensus", "covariance", "spread", "stability", "local_trust"}
    for name, array in payload["arrays"].items():
        assert np.array(array["data"]).tobytes() == arrays[name].tobytes()
    for name, values in payload["spectrum"].items():
        assert values == arrays[name].tolist()
    levels = payload["quantiles"]["levels"]
    assert payload["quantiles"]["spread"] == np.quantile(arrays["spread"], levels).tolist()
    half = npz(client.get(path + "&dtype=float32", headers=NPZ))
    assert (half["consensus"].dtype, half["eigenvalues"].dtype) == (np.float32, np.float64)
    pairs = [(path + query, headers) for query in ("", "&dtype=float32") for headers in ({}, NPZ)]
    assert len({client.get(url, headers=headers).headers["etag"] for url, headers in pairs}) == 4
    cached = client.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (cached.status_code, cached.content) == (304, b"")
    assert "immutable" in cached.headers["cache-control"]


def test_an_unknown_gap_is_null(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an estimate of the next eigenvalue the gap is null in the JSON and NaN in the npz."""

    def make(*arguments: Any) -> Any:
        draws, seconds = make_draws(*arguments)
        unknown = [{"next_eigenvalue": None} if draw.index == 1 else {} for draw in draws]
        pairs = zip(draws, unknown, strict=True)
        return [replace(draw, diagnostics=draw.diagnostics | diagnostics) for draw, diagnostics in pairs], seconds

    monkeypatch.setattr("worker.execution.context.make_draws", make)
    path = posterior + "/summary?n_draws=3&scale=1"
    result_of(stores, client.get(path + "&wait=0"))
    answer = client.get(path)
    assert [gap is None for gap in answer.json()["spectrum"]["relative_gaps"]] == [False, True, False]
    assert answer.text.count("null") == 1
    assert "NaN" not in answer.text
    arrays = npz(client.get(path, headers=NPZ))
    assert np.isnan(arrays.pop("relative_gaps")).tolist() == [False, True, False]
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_weights_of_a_draw_are_those_of_its_embedding(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The weights are the engine's, in every form; the bottom eigenvectors of their matrix are the draw."""
    path = posterior + "/draws/3/weights?seed=2&scale=0.5"
    drawn = glle_engine.fit(SHEET)
    expected = drawn.weights(3, seed=2, scale=0.5)
    result_of(stores, client.get(path + "&wait=0"))
    arrays = npz(client.get(path, headers=NPZ))
    assert arrays["weights"].tobytes() == expected.tobytes()
    np.testing.assert_array_equal(arrays["neighbors"], drawn.neighbors)
    assert np.load(io.BytesIO(client.get(path, headers=NPY).content)).tobytes() == expected.tobytes()
    answer = client.get(path)
    n, triples = len(expected), {name: array["data"] for name, array in answer.json()["arrays"].items()}
    assert answer.json()["shape"] == [n, n]
    W = coo_array((triples["values"], (triples["rows"], triples["columns"])), shape=(n, n)).toarray()
    np.testing.assert_array_equal(W[np.arange(n)[:, None], drawn.neighbors], expected)
    bottom = np.linalg.svd(np.eye(n) - W)[2][-3:-1]  # beside the constant
    embedding = drawn.draw(3, seed=2, scale=0.5).embedding
    np.testing.assert_allclose(bottom.T @ (bottom @ embedding), embedding, atol=1e-6)
    rows = client.get(path + "&points=4:6", headers={"accept": "text/csv"}).text.splitlines()
    assert rows[0] == "row,column,value"
    assert rows[1].split(",")[:2] == ["4", str(drawn.neighbors[4, 0])]
    assert len(rows) == 1 + 2 * expected.shape[1]
    assert client.get(path, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    check_problem(client.get(posterior + f"/draws/{2**64}/weights"), 422, "invalid-request")


def test_inline_points_belong_to_their_job(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Inline points are no data set; equal points share one id and one job. With draws they get a covariance."""
    rows = (SHEET[:3] + 0.01).tolist()
    body = {"data": rows, "n_draws": 4, "seed": 1}
    before = client.get("/v1/datasets").json()
    first = client.post(posterior + "/transform", json=body)
    job = first.json()
    assert (job["kind"], job["links"]["posterior"]) == ("transform", posterior)
    assert "engine" not in job["request"]
    assert client.get("/v1/datasets").json() == before
    check_problem(client.get(f"/v1/datasets/{job['dataset']}"), 404, "dataset-not-found")
    assert "dataset" not in job["links"]
    assert upload(client, np.array(rows)) == job["dataset"]
    again = client.post(posterior + "/transform", json={"dataset": job["dataset"], "n_draws": 4, "seed": 1})
    assert again.json()["id"] == job["id"]
    assert client.delete(f"/v1/datasets/{job['dataset']}").status_code == 204
    arrays = npz(client.get(result_of(stores, first), headers=NPZ))
    shapes = {name: array.shape for name, array in arrays.items()}
    assert shapes == {"embedding": (3, 2), "distances": (3,), "mean": (3, 2), "covariance": (3, 2, 2)}
    assert (np.linalg.eigvalsh(arrays["covariance"]) > 0).all()
    done = client.post(posterior + "/transform", json=body)
    assert (done.status_code, done.json()["status"]) == (200, "succeeded")


def test_bad_new_points_are_refused(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The refusal names the place; no job is queued, and no data are stored."""
    waiting, path, one = len(in_turn(stores)), posterior + "/transform", [[1, 2, 3]]
    other = upload(client, SHEET[:, :2])
    count = len(list(stores.datasets.newest()))
    bodies: tuple[tuple[Any, str, str], ...] = (
        ({}, "invalid-request", "either dataset or data"),
        ({"data": one, "n_draws": 1}, "invalid-request", "no covariance"),
        ({"data": one, "seed": 4, "scale": 2.0}, "invalid-request", "only draws have seed, scale"),
        ({"data": [[1, 2]]}, "invalid-shape", "3 features"),
        ({"dataset": other}, "invalid-shape", "3 features"),
        ({"data": []}, "invalid-shape", "(0,)"),
        ({"data": [[1, 2, 3], [1, 2]]}, "ragged-row", "Row 2"),
        ({"data": [[1, 2, "3"]]}, "bad-cell", "column 3"),
        ({"data": [[1, 2, 3], [4, float("nan"), 6]]}, "not-finite", "row 2, column 2"),
        ({"data": one, "n_draws": 10_001}, "over-the-limit", "10,000 are allowed"),
        ({"data": one, "n_draws": 2, "first": 2**64 - 1}, "over-the-limit", "2^64 - 1"),
    )
    for body, code, detail in bodies:
        answer = client.post(path, content=json.dumps(body), headers=JSON)
        assert detail in check_problem(answer, 422, code)["detail"], body
    check_problem(client.post(path, json={"dataset": "ds_none"}), 404, "dataset-not-found")
    long = check_problem(client.post(path, json={"data": [[0.5, 0.5, 0.5]] * 9000}), 413, "body-too-large")
    assert "POST /v1/datasets" in long["remedy"]
    assert (len(in_turn(stores)), len(list(stores.datasets.newest()))) == (waiting, count)


def test_methods_without_a_prior_refuse_its_draws(client: httpx.Client, stores: Stores) -> None:
    """The published direct method has no prior: every route refuses at once."""
    direct = fit_posterior(client, method="direct", variant="published")
    waiting = len(in_turn(stores))
    for answer in (
        client.post(direct + "/draws", json={"n_draws": 2, "source": "prior"}),
        client.get(direct + "/draws/0?source=prior"),
        client.get(direct + "/summary?source=prior"),
        client.post(direct + "/reconstructions", json={"n_draws": 2, "source": "prior"}),
        client.post(direct + "/transform", json={"data": [[0, 0, 0]], "n_draws": 2, "source": "prior"}),
    ):
        assert '"source": "posterior"' in check_problem(answer, 422, "invalid-parameter")["remedy"]
    assert len(in_turn(stores)) == waiting
    em = fit_posterior(client, variant="published")
    assert client.post(em + "/draws", json={"n_draws": 2, "source": "prior"}).status_code == 202


def test_a_result_goes_with_its_job(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Without its result a job is 410; the request that made it starts another one, with the same bits."""
    body = {"n_draws": 2, "seed": 9}
    first = client.post(posterior + "/reconstructions", json=body)
    result = result_of(stores, first)
    before = client.get(result, headers=NPY).content
    assert client.post(posterior + "/reconstructions", json=body).json()["id"] == first.json()["id"]
    (record,) = [record for _, record in stores.results.newest() if record is not None]
    stores.results.delete(record.id)  # as after its time
    check_problem(client.get(result, headers=NPY), 410, "result-gone")
    again = client.post(posterior + "/reconstructions", json=body)
    assert again.json()["id"] != first.json()["id"]
    assert client.get(result_of(stores, again), headers=NPY).content == before
    client.delete(again.json()["links"]["self"], params={"record": True}).raise_for_status()
    assert not any(stores.results.newest())


def test_a_deleted_data_set_fails_its_analysis_and_deletes_results(client: httpx.Client, stores: Stores) -> None:
    """The result of a failed job is the problem that ended it; no result stays."""
    dataset = upload(client, SHEET)
    result_of(stores, client.post("/v1/audits", json={"dataset": dataset, "coordinates": dataset}))
    assert stores.results.usage()["results"] == 1
    job = client.post("/v1/audits", json={"dataset": dataset, "coordinates": dataset, "score_neighbors": 6}).json()
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert stores.results.usage()["results"] == 0
    tasks.analyze(job["id"])
    payload = client.get(job["links"]["self"]).json()
    assert (payload["status"], payload["error"]["type"]) == ("failed", "urn:glle:problem:dataset-not-found")
    check_problem(client.get(job["links"]["self"] + "/result"), 404, "dataset-not-found")
