"""Estimates of posteriors over HTTP, and the refusal of fits; tasks run in the test process, without workers."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.graph.neighbors import EXPECTED_RECALL
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.posterior.cost import rates
from glle_engine.posterior.cost.estimate import Search, estimate
from service.app import create_app
from tests.conftest import in_turn
from tests.service.conftest import serving, upload
from tests.service.routes.posteriors.conftest import check_problem, result_of
from worker.execution import tasks
from worker.jobs.rq_types import INTERACTIVE
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx

PATH = "/v1/posteriors/estimate"
N = 900
DATA = np.random.default_rng(0).normal(size=(N, 20))


def estimated(client: httpx.Client, stores: Stores, body: dict[str, Any]) -> dict[str, Any]:
    """Make an estimate and return it."""
    result_of(stores, client.post(f"{PATH}?wait=0", json=body))
    answer = client.post(f"{PATH}?wait=0", json=body)
    assert answer.status_code == 200, answer.text
    payload: dict[str, Any] = answer.json()
    return payload


def resulting(client: httpx.Client, stores: Stores, answer: httpx.Response) -> dict[str, Any]:
    """Run the job of a 202, and return its result."""
    result: dict[str, Any] = client.get(result_of(stores, answer)).json()
    return result


def seconds_per_point(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the weights of each point take so many seconds."""
    monkeypatch.setattr(rates, "weights_seconds", lambda n, *_: seconds * n)


def test_an_estimate_is_made_once(client: httpx.Client, stores: Stores) -> None:
    """A job makes it, an interactive task; its result is cached, and answers the next request."""
    X = manifolds.make("s_curve", 60, seed=2).X
    body = {"dataset": upload(client, X), "n_neighbors": 8, "n_components": 3}
    first = client.post(f"{PATH}?wait=0", json=body)
    job = first.json()
    assert client.post(f"{PATH}?wait=0", json=body).json()["id"] == job["id"]
    assert (job["kind"], job["posterior"], job["dataset"]) == ("estimate", None, body["dataset"])
    assert stores.jobs.fetch(job["id"]).queue == INTERACTIVE
    result = client.get(result_of(stores, first)).json()
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    payload = answer.json()
    expected = estimate(X, n_neighbors=8, n_components=3)
    assert payload["fit"] == result["fit"] == asdict(expected.fit)
    assert payload["draw"] == {"seconds": expected.draw.seconds, "bytes": expected.draw.bytes}
    assert payload["single_draw_seconds"] == expected.single_draw_seconds
    assert payload["intrinsic_dimension"] == expected.factorization.dimension
    assert (payload["n"], payload["d"], payload["spec"]["n_components"]) == (60, 3, 3)
    assert (payload["problem"], payload["most_points"], payload["analysed_points"]) == (None, 60, [60])
    assert (payload["allowed_seconds"], payload["allowed_bytes"]) == (300, 2**31)
    assert client.get("/v1/posteriors").json()["items"] == []


def test_long_fits_have_a_feasible_size_and_remedies(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem names, in this order, fewer points, fewer neighbors, PCA, and the setting."""
    seconds_per_point(monkeypatch, 1.0)
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    payload = estimated(client, stores, body)
    problem, most = payload["problem"], payload["most_points"]
    assert problem["type"] == "urn:glle:problem:too-long"
    assert most == problem["details"]["most_points"] == 299
    places = [problem["remedy"].index(text) for text in ("at most 299 points", "fewer", "PCA", "GLLE_JOB_TIMEOUT")]
    assert places == sorted(places)
    assert "900 points" in problem["detail"]
    assert "n_neighbors=12" in problem["detail"]
    hurried = client.post(f"{PATH}?deadline=100", json=body).json()
    assert (hurried["allowed_seconds"], hurried["most_points"]) == (50, 49)
    seconds_per_point(monkeypatch, 0.1)
    assert client.post(PATH, json=body).json()["problem"] is None


def test_a_long_search_names_the_other_one(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy has the seconds of both searches and the recall; the approximate one has no such remedy."""
    monkeypatch.setattr(Search, "at", lambda _, n: 1.0 * n)
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    remedy = estimated(client, stores, body)["problem"]["remedy"]
    seconds = f"some {900 * (8e-5 + 20 * 4e-7):.3g} s in place of 900.0"
    assert f"use search='approximate' ({seconds}; it finds {EXPECTED_RECALL})" in remedy
    other = estimated(client, stores, {**body, "search": "approximate"})
    assert "approximate" not in other["problem"]["remedy"]


def test_large_draws_are_a_problem_of_memory(client: httpx.Client, stores: Stores) -> None:
    """The limit is a setting; the factors of four lanes count."""
    body = {"dataset": upload(client, DATA)}
    whole = estimated(client, stores, body)
    assert whole["problem"] is None
    limit = int(0.8 * max(whole["fit"]["bytes"], whole["draw"]["bytes"]))
    with serving(create_app(Stores.connect(replace(stores.settings, method_bytes=limit)))) as small:
        payload = small.post(PATH, json=body).json()
    assert payload["problem"]["type"] == "urn:glle:problem:too-much-memory"
    assert "GLLE_METHOD_BYTES" in payload["problem"]["remedy"]
    assert 10 < payload["most_points"] < N


def test_bad_requests_are_refused_before_a_job(client: httpx.Client, stores: Stores) -> None:
    """Problems that need no computation are those of a fit."""
    dataset, few = upload(client, DATA), upload(client, DATA[:30])
    for body, status, code in (
        ({"dataset": "ds_none"}, 404, "dataset-not-found"),
        ({"dataset": few, "n_neighbors": 30}, 422, "too-few-points"),
        ({"dataset": dataset, "n_neighbors": 201}, 422, "over-the-limit"),
        ({"dataset": dataset, "mean": "derived"}, 422, "invalid-parameter"),
        ({"dataset": upload(client, np.full((40, 3), 2.5))}, 422, "degenerate-data"),
    ):
        assert check_problem(client.post(PATH, json=body), status, code)["remedy"]
    assert in_turn(stores) == []


def test_fits_far_beyond_the_time_limit_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a cached estimate of more than the limit on a machine of twice the speed refuses a fit."""
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    fit = "/v1/posteriors?wait=0"
    seconds_per_point(monkeypatch, 1.3)  # 1,170 s; the limit is 600 s, the margin 2
    assert estimated(client, stores, body)["problem"]["type"].endswith("too-long")
    assert client.post(fit, json=body).status_code == 202
    seconds_per_point(monkeypatch, 1.4)
    assert client.post(fit, json={**body, "n_neighbors": 11}).status_code == 202  # without an estimate
    result_of(stores, client.post(f"{PATH}?wait=0", json={**body, "n_neighbors": 13}))
    problem = check_problem(client.post(fit, json={**body, "n_neighbors": 13}), 422, "too-long")
    assert problem["details"]["expected_seconds"] == pytest.approx(1260, rel=0.01)
    assert "at most 214 points" in problem["remedy"]


def test_posteriors_without_room_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covariance factors of more than half the cache cannot be stored, so that no fit is begun."""
    monkeypatch.setattr(stores.cache, "budget", 8 * N * 12 * 12 * 2 - 1)
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    problem = check_problem(client.post("/v1/posteriors", json=body), 422, "cache-too-small")
    assert "900 points with n_neighbors=12" in problem["detail"]
    assert problem["remedy"].startswith("Fit fewer points, or use fewer neighbors;")
    payload = estimated(client, stores, body)
    assert payload["problem"]["type"] == problem["type"]
    assert payload["most_points"] == N - 1
    assert client.post("/v1/posteriors?wait=0", json={**body, "n_neighbors": 11}).status_code == 202


def test_a_posterior_on_landmarks_over_http(client: httpx.Client, stores: Stores) -> None:
    """Estimate, fit, arrays, a draw and a summary have all points; as many landmarks as points are a full fit."""
    X = manifolds.make("s_curve", 120, seed=2).X
    body = {"dataset": upload(client, X), "n_neighbors": 8, "landmarks": 61}
    assert {"landmarks", "placing"} <= estimated(client, stores, body)["stages"].keys()
    tasks.fit(client.post("/v1/posteriors?wait=0", json=body).json()["id"])
    posterior = client.post("/v1/posteriors?wait=0", json=body).json()
    expected = fit(X, n_neighbors=8, landmarks=61)
    assert (posterior["n"], posterior["spec"]["landmarks"]) == (120, 61)
    url = posterior["links"]["self"]
    rows = client.get(f"{url}/arrays?name=landmarks", headers={"Accept": "application/x-npy"})
    assert expected.landmarks is not None
    np.testing.assert_array_equal(np.load(io.BytesIO(rows.content)), expected.landmarks)
    job = stores.jobs.fetch(client.get(f"{url}/draws/3?wait=0").json()["id"])
    tasks.draw(job.id, job.round, 0)
    drawn = client.get(f"{url}/draws/3", headers={"Accept": "application/x-npy"})
    assert np.load(io.BytesIO(drawn.content)).tobytes() == expected.draw(3).embedding.tobytes()
    result_of(stores, client.get(f"{url}/summary?count=4&resamples=4&wait=0"))
    assert len(client.get(f"{url}/summary?count=4&resamples=4").json()["arrays"]["spread"]["data"]) == 120
    whole, none = (
        client.post("/v1/posteriors?wait=0", json={**body, "landmarks": landmarks}).json() for landmarks in (120, None)
    )
    assert whole["posterior"] == none["posterior"] != posterior["id"]
    check_problem(client.post("/v1/posteriors", json={**body, "landmarks": 5}), 422, "invalid-parameter")


def test_standardized_posteriors_over_http(client: httpx.Client, stores: Stores) -> None:
    """Fit, arrays, new points and advice; the defaults are no parameters, so that the id stays."""
    X = manifolds.make("s_curve", 120, seed=2).X * [1, 700, 1]
    body = {"dataset": upload(client, X), "n_neighbors": 8, "standardize": "zscore"}
    estimated(client, stores, body)
    tasks.fit(client.post("/v1/posteriors?wait=0", json=body).json()["id"])
    posterior = client.post("/v1/posteriors?wait=0", json=body).json()
    assert posterior["spec"]["standardize"] == "zscore"
    url = posterior["links"]["self"]
    scale = client.get(f"{url}/arrays?name=scale", headers={"Accept": "application/x-npy"})
    np.testing.assert_allclose(np.load(io.BytesIO(scale.content)), X.std(axis=0))
    expected = fit(X, n_neighbors=8, standardize="zscore")
    moved = resulting(client, stores, client.post(f"{url}/transform?wait=0", json={"data": X[:5].tolist()}))
    np.testing.assert_array_equal(moved["arrays"]["embedding"]["data"], expected.embedding[:5].tolist())
    assert resulting(client, stores, client.get(f"{url}/summary?count=4&resamples=4&wait=0"))["arrays"]["local_trust"][
        "data"
    ]
    plain = {"dataset": body["dataset"], "n_neighbors": 8}
    same = {**plain, "standardize": "none", "metric": "euclidean"}
    ids = [client.post("/v1/posteriors?wait=0", json=each).json()["posterior"] for each in (plain, same)]
    assert ids[0] == ids[1] != posterior["id"]
    request = {"dataset": body["dataset"], "n_neighbors": [8, 10], "standardize": "zscore"}
    advice = resulting(client, stores, client.post("/v1/advice?wait=0", json=request))
    assert advice["n_components"] == round(advice["intrinsic_dimension"]) == 2
    assert advice["notes"][0]["code"] == "dimension"
    wrong = {**plain, "standardize": "zscore", "metric": "hamming"}
    check_problem(client.post("/v1/posteriors", json=wrong), 422, "invalid-parameter")


def test_posteriors_of_distances_over_http(client: httpx.Client, stores: Stores) -> None:
    """The data set is the matrix; new points are rows of distances; nothing generates data."""
    X = manifolds.make("s_curve", 60, seed=2).X
    D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    body = {"dataset": upload(client, D), "n_neighbors": 8, "metric": "precomputed"}
    estimated(client, stores, body)
    tasks.fit(client.post("/v1/posteriors?wait=0", json=body).json()["id"])
    posterior = client.post("/v1/posteriors?wait=0", json=body).json()
    url = posterior["links"]["self"]
    moved = resulting(client, stores, client.post(f"{url}/transform?wait=0", json={"data": D[:3].tolist()}))
    expected = fit(D, n_neighbors=8, metric="precomputed")
    np.testing.assert_array_equal(moved["arrays"]["embedding"]["data"], expected.embedding[:3].tolist())
    trust = resulting(client, stores, client.get(f"{url}/summary?count=4&resamples=4&wait=0"))["arrays"]["local_trust"][
        "data"
    ]
    assert np.mean(trust) == pytest.approx(trustworthiness(X, expected.embedding), abs=1e-9)
    problem = client.post(f"{url}/reconstructions", json={"count": 1})
    check_problem(problem, 422, "invalid-parameter")
    assert "coordinates" in problem.json()["remedy"]
