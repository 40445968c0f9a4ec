"""Estimates of posteriors over HTTP, and the refusal of fits; tasks run in the test process, without workers."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.graph.neighbors import EXPECTED_RECALL
from glle_engine.posterior.cost import rates
from glle_engine.posterior.cost.estimate import Search, estimate
from service.app import create_app
from service.submission import validation
from tests.conftest import in_turn
from tests.service.conftest import check_problem, serving, upload
from tests.service.routes.posteriors.conftest import result_of
from worker.records.job import INTERACTIVE
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx

PATH = "/v1/posteriors/estimate"
N = 900
DATA = np.random.default_rng(0).normal(size=(N, 20))


def make_estimate(client: httpx.Client, stores: Stores, body: dict[str, Any]) -> dict[str, Any]:
    """Make an estimate and return it."""
    result_of(stores, client.post(f"{PATH}?wait=0", json=body))
    answer = client.post(f"{PATH}?wait=0", json=body)
    assert answer.status_code == 200, answer.text
    payload: dict[str, Any] = answer.json()
    return payload


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
    payload = make_estimate(client, stores, body)
    expected = estimate(X, n_neighbors=8, n_components=3)
    assert payload["fit"] == asdict(expected.fit)
    assert payload["draw"] == {"seconds": expected.draw.seconds, "bytes": expected.draw.bytes}
    assert payload["single_draw_seconds"] == expected.single_draw_seconds
    assert payload["intrinsic_dimension"] == expected.factorization.dimension
    assert (payload["n"], payload["n_features"], payload["spec"]["n_components"]) == (60, 3, 3)
    assert (payload["problem"], payload["most_points"], payload["analysed_points"]) == (None, 60, [60])
    assert (payload["allowed_seconds"], payload["allowed_bytes"]) == (300, 2**31)
    assert client.get("/v1/posteriors").json()["items"] == []


def test_long_fits_have_a_feasible_size_and_remedies(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem names, in this order, fewer points, fewer neighbors, PCA, and the setting."""
    seconds_per_point(monkeypatch, 1.0)
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    payload = make_estimate(client, stores, body)
    problem, most = payload["problem"], payload["most_points"]
    assert problem["type"] == "urn:glle:problem:too-long"
    assert most == problem["details"]["most_points"] == 299
    places = [problem["remedy"].index(text) for text in ("at most 299 points", "fewer", "PCA", "GLLE_JOB_TIMEOUT")]
    assert places == sorted(places)
    assert "900 points" in problem["detail"]
    assert "n_neighbors=12" in problem["detail"]
    seconds_per_point(monkeypatch, 0.1)
    assert client.post(PATH, json=body).json()["problem"] is None


def test_a_long_search_names_the_other_one(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy has the seconds of both searches and the recall; the approximate one has no such remedy."""
    monkeypatch.setattr(Search, "at", lambda _, n: 1.0 * n)
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    remedy = make_estimate(client, stores, body)["problem"]["remedy"]
    seconds = f"some {900 * (8e-5 + 20 * 4e-7):.3g} s in place of 900.0"
    assert f"use search='approximate' ({seconds}; it finds {EXPECTED_RECALL})" in remedy
    other = make_estimate(client, stores, {**body, "search": "approximate"})
    assert "approximate" not in other["problem"]["remedy"]


def test_large_draws_are_a_problem_of_memory(client: httpx.Client, stores: Stores) -> None:
    """The limit is a setting; the factors of four lanes count."""
    body = {"dataset": upload(client, DATA)}
    whole = make_estimate(client, stores, body)
    assert whole["problem"] is None
    limit = int(0.8 * max(whole["fit"]["bytes"], whole["draw"]["bytes"]))
    with serving(create_app(Stores.connect(replace(stores.settings, method_bytes=limit)))) as small:
        payload = small.post(PATH, json=body).json()
    assert payload["problem"]["type"] == "urn:glle:problem:too-much-memory"
    assert "GLLE_METHOD_BYTES" in payload["problem"]["remedy"]
    assert 10 < payload["most_points"] < N


def test_fits_far_beyond_the_time_limit_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a cached estimate of more than the limit on a machine of twice the speed refuses a fit."""
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    fit = "/v1/posteriors?wait=0"
    seconds_per_point(monkeypatch, 1.3)  # 1,170 s; the limit is 600 s, the margin 2
    assert make_estimate(client, stores, body)["problem"]["type"].endswith("too-long")
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
    """Covariance factors that exceed the free disk cannot be stored, so that no fit is begun."""
    body = {"dataset": upload(client, DATA), "n_neighbors": 12}
    monkeypatch.setattr(validation, "free_bytes", lambda _: 8 * N * 12 * 12 - 1)
    problem = check_problem(client.post("/v1/posteriors", json=body), 507, "storage-full")
    assert "900 points with n_neighbors=12" in problem["detail"]
    assert problem["remedy"].startswith("Fit fewer points, or use fewer neighbors;")
    payload = make_estimate(client, stores, body)
    assert payload["problem"]["type"] == problem["type"]
    assert payload["most_points"] == N - 1
    assert client.post("/v1/posteriors?wait=0", json={**body, "n_neighbors": 11}).status_code == 202


def test_refusals_precede_the_queue(client: httpx.Client, stores: Stores) -> None:
    """Of fits and estimates: problems that need no computation are reported at once, with the remedy."""
    few, equal = upload(client, DATA[:30]), upload(client, np.full((40, 3), 2.5))
    both: tuple[tuple[dict[str, Any], int, str], ...] = (
        ({"dataset": "ds_none"}, 404, "dataset-not-found"),
        ({"dataset": few, "n_neighbors": 30}, 422, "too-few-points"),
        ({"dataset": few, "n_components": 29}, 422, "too-few-points"),
        ({"dataset": few, "n_neighbors": 201}, 422, "over-the-limit"),
        ({"dataset": few, "n_components": 51}, 422, "over-the-limit"),
        ({"dataset": few, "mean": "derived"}, 422, "invalid-parameter"),
        ({"dataset": equal}, 422, "degenerate-data"),
    )
    for path, cases in ((PATH, both), ("/v1/posteriors", both)):
        for body, status, code in cases:
            assert check_problem(client.post(path, json=body), status, code)["remedy"], (path, body)
    assert in_turn(stores) == []
    assert list(stores.jobs.iterate()) == []
