"""Summaries, new points, generated data and advice over HTTP; tasks run in the test process, without workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.app import create_app
from tests.conftest import evict, in_turn
from tests.service.conftest import serving, upload
from tests.service.routes.posteriors.conftest import (
    JSON,
    NPY,
    NPZ,
    SHEET,
    N,
    check_problem,
    fitted,
    npz,
    result_of,
)
from worker.base.versions import versioned_key
from worker.execution import tasks
from worker.execution.draws import draw_and_cache
from worker.records.draws import DrawAddress
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx


def test_summary_is_computed_once_then_immutable(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Simultaneous requests share its job; afterwards it is 200 with an ETag for each representation."""
    path = posterior + "/summary?count=5&seed=3&scale=1"
    first = client.get(path + "&wait=0")
    again = client.get(path.replace("scale=1", "scale=1.0") + "&wait=0&first=0")
    assert again.json()["id"] == first.json()["id"]
    result = result_of(stores, first)
    answer = client.get(path)
    payload = answer.json()
    assert answer.status_code == 200
    assert payload == client.get(result).json()
    assert (payload["count"], payload["seed"], payload["source"], payload["notes"]) == (5, 3, "posterior", [])
    assert {name: array["shape"] for name, array in payload["arrays"].items()} == {
        "consensus": [N, 2],
        "covariance": [N, 2, 2],
        "spread": [N],
        "stability": [N],
        "local_trust": [N],
    }
    assert np.shape(payload["spectrum"]["eigenvalues"]) == (5, 2)
    arrays = npz(client.get(path, headers=NPZ))
    assert {*payload["arrays"], *payload["spectrum"]} == set(arrays)
    for name, array in payload["arrays"].items():
        assert np.array(array["data"]).tobytes() == arrays[name].tobytes()
    for name, values in payload["spectrum"].items():
        assert values == arrays[name].tolist()
    levels = payload["quantiles"]["levels"]
    assert payload["quantiles"]["spread"] == np.quantile(arrays["spread"], levels).tolist()
    half = npz(client.get(path + "&dtype=float32", headers=NPZ))
    assert (half["consensus"].dtype, half["eigenvalues"].dtype) == (np.float32, np.float64)
    tags = {
        client.get(path + more, headers=kind).headers["etag"] for more in ("", "&dtype=float32") for kind in ({}, NPZ)
    }
    assert len(tags) == 4
    cached = client.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (cached.status_code, cached.content) == (304, b"")
    assert "immutable" in cached.headers["cache-control"]


def test_an_unknown_gap_is_null(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Without an estimate of the next eigenvalue the gap is null in the JSON and NaN in the npz."""
    id_ = posterior.rpartition("/")[2]
    arrays_id, key = stores.posteriors.arrays_id(id_), DrawAddress(0, 1, 1.0, "posterior", "procrustes")
    path = posterior + "/summary?count=3&scale=1"
    job = client.get(path + "&wait=0")
    fit = stores.posteriors.load(id_)
    assert fit is not None
    draw_and_cache(stores.draws, arrays_id, fit, [key])
    entry = stores.draws.get(arrays_id, key)
    assert entry is not None
    entry.meta["diagnostics"]["next_eigenvalue"] = None
    stores.draws.put(arrays_id, {key: entry})
    result_of(stores, job)
    answer = client.get(path)
    assert [gap is None for gap in answer.json()["spectrum"]["relative_gaps"]] == [False, True, False]
    assert answer.text.count("null") == 1
    assert "NaN" not in answer.text
    arrays = npz(client.get(path, headers=NPZ))
    assert np.isnan(arrays.pop("relative_gaps")).tolist() == [False, True, False]
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_training_data_transformed_are_the_embedding(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The bits are equal as npy, npz and JSON; the record of the job names its data set."""
    dataset = client.get(posterior).json()["dataset"]
    job = client.post(posterior + "/transform", json={"dataset": dataset})
    payload = job.json()
    assert (payload["kind"], payload["dataset"]) == ("transform", dataset)
    assert payload["links"]["posterior"] == posterior
    assert payload["links"]["dataset"] == f"/v1/datasets/{dataset}"
    assert "engine" not in payload["request"]
    result = result_of(stores, job)
    embedding = client.get(posterior + "/arrays?name=embedding", headers=NPY)
    assert client.get(result, headers=NPY).content == embedding.content
    arrays = npz(client.get(result, headers=NPZ))
    assert set(arrays) == {"embedding", "distances"}
    as_json = client.get(result).json()["arrays"]
    assert np.array(as_json["embedding"]["data"]).tobytes() == arrays["embedding"].tobytes()
    assert as_json["distances"]["data"] == [0.0] * N


def test_inline_points_belong_to_their_job(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """They are no data set; equal points share one id and one job. Draws add mean and covariance."""
    rows = (SHEET[:3] + 0.01).tolist()
    before = client.get("/v1/datasets").json()
    first = client.post(posterior + "/transform", json={"data": rows, "draws": 4, "seed": 1})
    dataset = first.json()["dataset"]
    assert client.get("/v1/datasets").json() == before
    check_problem(client.get(f"/v1/datasets/{dataset}"), 404, "dataset-not-found")
    assert "dataset" not in first.json()["links"]
    assert upload(client, np.array(rows)) == dataset
    again = client.post(posterior + "/transform", json={"dataset": dataset, "draws": 4, "seed": 1})
    assert again.json()["id"] == first.json()["id"]
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    arrays = npz(client.get(result_of(stores, first), headers=NPZ))
    assert {name: array.shape for name, array in arrays.items()} == {
        "embedding": (3, 2),
        "distances": (3,),
        "mean": (3, 2),
        "covariance": (3, 2, 2),
    }
    assert (np.linalg.eigvalsh(arrays["covariance"]) > 0).all()
    done = client.post(posterior + "/transform", json={"data": rows, "draws": 4, "seed": 1})
    assert (done.status_code, done.json()["status"]) == (200, "succeeded")


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        ({}, "invalid-request", "either dataset or data"),
        ({"dataset": "ds_x", "data": [[1, 2, 3]]}, "invalid-request", "either dataset or data"),
        ({"data": [[1, 2, 3]], "draws": 1}, "invalid-request", "no covariance"),
        ({"data": [[1, 2, 3]], "draws": -1}, "invalid-request", "greater than"),
        ({"data": [[1, 2, 3]], "seed": 4, "scale": 2.0}, "invalid-request", "seed, scale has a meaning"),
        ({"data": [[1, 2]]}, "invalid-shape", "3 features"),
        ({"data": []}, "invalid-shape", "(0,)"),
        ({"data": [[1, 2, 3], [1, 2]]}, "ragged-row", "Row 2"),
        ({"data": [[1, 2, "3"]]}, "bad-cell", "column 3"),
        ({"data": [[1, True, 3]]}, "bad-cell", "column 2"),
        ({"data": [[1, 2, 3], [4, float("nan"), 6]]}, "not-finite", "row 2, column 2"),
        ({"data": [[1, 2, 3]], "draws": 10_001}, "over-the-limit", "10,000 are allowed"),
        ({"data": [[1, 2, 3]], "draws": 2, "first": 2**64 - 1}, "over-the-limit", "2^64 - 1"),
    ],
)
def test_bad_new_points_are_refused(
    client: httpx.Client, stores: Stores, posterior: str, body: Any, code: str, detail: str
) -> None:
    """The refusal names the place; no job is queued, and no data are stored."""
    waiting, cached = len(in_turn(stores)), len(list(stores.datasets.newest()))
    answer = client.post(posterior + "/transform", content=json.dumps(body), headers=JSON)
    assert detail in check_problem(answer, 422, code)["detail"]
    assert (len(in_turn(stores)), len(list(stores.datasets.newest()))) == (waiting, cached)


def test_mismatched_and_missing_new_points(client: httpx.Client, posterior: str) -> None:
    """A data set with other features or an unknown id is refused; many rows are uploaded first."""
    other = upload(client, SHEET[:, :2])
    check_problem(client.post(posterior + "/transform", json={"dataset": other}), 422, "invalid-shape")
    check_problem(client.post(posterior + "/transform", json={"dataset": "ds_none"}), 404, "dataset-not-found")
    long = check_problem(
        client.post(posterior + "/transform", json={"data": [[0.5, 0.5, 0.5]] * 9000}), 413, "body-too-large"
    )
    assert "POST /v1/datasets" in long["remedy"]


def test_generated_data(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """(count, n, d) as npy and JSON, each near the data of the fit."""
    result = result_of(
        stores, client.post(posterior + "/reconstructions", json={"count": 3, "first": 1, "scale": 0.01})
    )
    data = np.load(io.BytesIO(client.get(result, headers=NPY).content))
    assert data.shape == (3, N, 3)
    assert 0 < np.abs(data - SHEET).max() < np.ptp(SHEET)
    payload = client.get(result).json()
    assert (payload["count"], payload["first"], payload["scale"]) == (3, 1, 0.01)
    assert np.array(payload["arrays"]["data"]["data"]).tobytes() == data.tobytes()
    half = np.load(io.BytesIO(client.get(result + "?dtype=float32", headers=NPY).content))
    assert half.tobytes() == data.astype(np.float32).tobytes()


def test_advice(client: httpx.Client, stores: Stores) -> None:
    """The range of a data set, without a posterior; equal ranges share one job; JSON alone."""
    dataset = upload(client, SHEET)
    first = client.post("/v1/advice", json={"dataset": dataset, "n_neighbors": [9, 5, 7]})
    again = client.post("/v1/advice", json={"dataset": dataset, "n_neighbors": [5, 7, 9, 9]})
    job = first.json()
    assert again.json()["id"] == job["id"]
    assert (job["kind"], job["posterior"], job["dataset"]) == ("advice", None, dataset)
    assert set(job["links"]) == {"self", "events", "dataset"}
    assert job["request"]["n_neighbors"] == [5, 7, 9]
    result = result_of(stores, first)
    payload = client.get(result).json()
    assert [row["n_neighbors"] for row in payload["neighbors_curve"]] == [5, 7, 9]
    assert payload["n_neighbors"] in {5, 7, 9}
    assert set(payload) == {
        "n_neighbors", "n_components", "intrinsic_dimension", "neighbors_curve", "components_curve", "notes",
    }  # fmt: skip
    for headers in (NPY, NPZ):
        assert check_problem(client.get(result, headers=headers), 406, "not-acceptable")["details"]["offered"] == [
            "application/json"
        ]
    default = client.post("/v1/advice", json={"dataset": dataset}).json()
    assert default["request"]["n_neighbors"] == [5, 6, 7, 8, 10, 12, 15, 20, 25, 30]
    assert [job["id"] for job in client.get("/v1/jobs?kind=advice").json()["items"]] == [default["id"], job["id"]]


def test_advice_is_refused_before_it_is_queued(client: httpx.Client, stores: Stores) -> None:
    """Problems that need no computation are reported at once."""
    id_ = upload(client, SHEET)
    cases = [
        ({"dataset": "ds_none"}, 404, "dataset-not-found"),
        ({"dataset": id_, "n_neighbors": [N, N + 1]}, 422, "too-few-points"),
        ({"dataset": id_, "n_neighbors": []}, 422, "invalid-request"),
        ({"dataset": id_, "n_neighbors": [1]}, 422, "invalid-request"),
        ({"dataset": id_, "n_neighbors": [5, 201]}, 422, "over-the-limit"),
        ({"dataset": id_, "max_components": 51}, 422, "over-the-limit"),
        ({"dataset": id_, "n_components": 51}, 422, "over-the-limit"),
        ({"dataset": id_, "reg": 0}, 422, "invalid-request"),
        ({"dataset": upload(client, np.full((40, 3), 2.5))}, 422, "degenerate-data"),
    ]
    for body, status, code in cases:
        assert check_problem(client.post("/v1/advice", json=body), status, code)["remedy"]
    assert in_turn(stores) == []


def test_methods_without_a_prior_refuse_its_draws(client: httpx.Client, stores: Stores) -> None:
    """The published direct method has no prior: every route refuses at once."""
    direct = fitted(client, method="direct", variant="published")
    waiting = len(in_turn(stores))
    for answer in (
        client.post(direct + "/draws", json={"count": 2, "source": "prior"}),
        client.get(direct + "/draws/0?source=prior"),
        client.get(direct + "/summary?source=prior"),
        client.post(direct + "/reconstructions", json={"count": 2, "source": "prior"}),
        client.post(direct + "/transform", json={"data": [[0, 0, 0]], "draws": 2, "source": "prior"}),
    ):
        assert "source='posterior'" in check_problem(answer, 422, "invalid-parameter")["remedy"]
    assert len(in_turn(stores)) == waiting
    em = fitted(client, variant="published")
    assert client.post(em + "/draws", json={"count": 2, "source": "prior"}).status_code == 202


def test_results_beyond_the_cache_are_refused(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result, or its draws, of more than half the cache; draws beyond the limits."""
    waiting = len(in_turn(stores))
    many = upload(client, np.tile(SHEET, (100, 1)))
    monkeypatch.setattr(stores.cache, "budget", 2**20)
    for answer in (
        client.post(posterior + "/reconstructions", json={"count": 1000}),
        client.get(posterior + "/summary?count=1000"),
        client.post(posterior + "/transform", json={"data": [[0, 0, 0]], "draws": 1000}),
        client.post(posterior + "/transform", json={"dataset": many, "draws": 10}),
        client.post(posterior + "/transform", json={"dataset": upload(client, np.tile(SHEET, (200, 1)))}),
    ):
        assert stores.cache.budget // 2 < check_problem(answer, 422, "cache-too-small")["details"]["bytes"]
    check_problem(client.post(posterior + "/reconstructions", json={"count": 10_001}), 422, "over-the-limit")
    check_problem(client.get(posterior + "/summary?count=1001"), 422, "invalid-request")
    check_problem(client.get(posterior + "/summary?count=1"), 422, "invalid-request")
    check_problem(client.get(posterior + f"/summary?first={2**64 - 1}"), 422, "over-the-limit")
    check_problem(client.post(posterior + "/draws", json={"count": 2, "first": 2**64 - 1}), 422, "over-the-limit")
    assert len(in_turn(stores)) == waiting


def test_evicted_result_is_recomputed(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The next request opens the job again, once, and the result has the same bits."""
    body = {"count": 2, "seed": 9}
    job = client.post(posterior + "/reconstructions", json=body)
    result = result_of(stores, job)
    before = client.get(result, headers=NPY).content
    stores.cache.client.flushall()
    again = client.get(result, headers=NPY)
    assert client.post(posterior + "/reconstructions", json=body).json()["id"] == job.json()["id"]
    assert stores.jobs.fetch(job.json()["id"]).round == 1
    assert result_of(stores, again) == result
    assert client.get(result, headers=NPY).content == before
    stores.cache.client.flushall()
    posted = client.post(posterior + "/reconstructions", json=body)
    assert stores.jobs.fetch(job.json()["id"]).round == 2
    assert result_of(stores, posted) == result
    assert client.get(result, headers=NPY).content == before


def test_inline_points_outlast_the_result(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """An evicted result is recomputed from the points in the job's record, to the bit."""
    job = client.post(posterior + "/transform", json={"data": [[0.1, 0.2, 0.3]]})
    before = client.get(result_of(stores, job), headers=NPY).content
    evict(stores, "result:")
    again = client.get(job.json()["links"]["self"] + "/result", headers=NPY)
    assert again.status_code == 202
    assert client.get(result_of(stores, again), headers=NPY).content == before


def test_inline_points_count_towards_no_quota(stores: Stores, posterior: str) -> None:
    """A tenant at its quota of bytes can place points; a refused request stores no data."""
    full = Stores.connect(replace(stores.settings, quotas="*=bytes:1"))
    used = stores.datasets.usage()
    with serving(create_app(full)) as client:
        csv = client.post("/v1/datasets", content=b"1,2,3\n", headers={"content-type": "text/csv"})
        check_problem(csv, 429, "quota-exceeded")
        jobs = client.get("/v1/jobs").json()
        check_problem(client.post(posterior + "/transform", json={"data": [[1, 2]]}), 422, "invalid-shape")
        large = {"data": [[1, 2, 3]], "draws": 10_001}
        check_problem(client.post(posterior + "/transform", json=large), 422, "over-the-limit")
        assert client.get("/v1/jobs").json() == jobs
        assert client.post(posterior + "/transform", json={"data": [[1, 2, 3]]}).status_code == 202
    assert stores.datasets.usage() == used
    full.close()


def test_failed_analysis_returns_its_problem(client: httpx.Client, stores: Stores) -> None:
    """The result of a failed job is the problem that ended it."""
    dataset = upload(client, SHEET)
    job = client.post("/v1/advice", json={"dataset": dataset}).json()
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    tasks.analyse(job["id"], 0)
    payload = client.get(job["links"]["self"]).json()
    assert (payload["status"], payload["error"]["type"]) == ("failed", "urn:glle:problem:dataset-not-found")
    check_problem(client.get(job["links"]["self"] + "/result"), 404, "dataset-not-found")


def test_deleted_data_set_deletes_its_advice(client: httpx.Client, stores: Stores) -> None:
    """No result about it stays in the cache."""
    dataset = upload(client, SHEET)
    result_of(stores, client.post("/v1/advice", json={"dataset": dataset, "n_neighbors": [6]}))
    assert len(list(stores.cache.client.scan_iter(versioned_key("result:*")))) == 1
    assert client.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert list(stores.cache.client.scan_iter("*")) == []
