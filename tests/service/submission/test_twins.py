"""Equal checks of equal work: every route refuses draws that cannot be computed or cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.service.conftest import posterior_record
from tests.service.tenants import serve_stores
from worker.records import sharding
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from fastapi import FastAPI

    from worker.stores import Stores

N, CACHE = 600, 2**20
WHOLE = 2**64 - 1

# Request of each route for draws first, ..., first + count - 1 at a scale: method, path below the posterior, query
# or body. All make the same draws.
ROUTES: dict[str, tuple[str, str, dict[str, str]]] = {
    "draws": ("POST", "/draws", {}),
    "transform": ("POST", "/transform", {"count": "draws"}),
    "reconstructions": ("POST", "/reconstructions", {}),
    "summary": ("GET", "/summary", {}),
    "summary.png": ("GET", "/summary.png", {}),
    "summary.svg": ("GET", "/summary.svg", {}),
    "draws.png": ("GET", "/draws.png", {}),
    "draws.svg": ("GET", "/draws.svg", {}),
}
TOO_MANY = {"draws.png": 64, "draws.svg": 64}  # the most that a sheet has


@pytest.fixture(scope="module")
def _small(_service: tuple[Stores, FastAPI, httpx.Client]) -> Iterator[httpx.Client]:
    """A client of a service with a small cache and few draws on the data of the session's app."""
    with pytest.MonkeyPatch.context() as patched, serve_stores(_service[0], cache_bytes=CACHE) as client:
        patched.setattr("service.submission.validation.MAX_DRAWS", 900)
        yield client


@pytest.fixture
def small(stores: Stores, _small: httpx.Client) -> tuple[httpx.Client, str, str]:
    """A client of a service with a small cache and few draws, the path of a posterior, and its data set."""
    X = np.random.default_rng(0).normal(size=(N, 3))
    dataset, _ = stores.datasets.add(Table(values=X, source={"kind": "test"}))
    stores.posteriors.record(posterior_record(dataset=dataset.id, n=N))
    return _small, "/v1/posteriors/post_1", dataset.id


def request_draws(small: tuple[httpx.Client, str, str], route: str, **parameters: Any) -> httpx.Response:
    """Send a request for draws to a route."""
    client, posterior, dataset = small
    method, path, names = ROUTES[route]
    payload = {names.get(name, name): value for name, value in parameters.items()}
    if method == "GET":
        alone = {"scale": 1} if route.startswith("summary") else {}  # of the draws alone, without resamples
        return client.get(posterior + path, params=payload | {"wait": 0} | alone)
    return client.post(posterior + path, json=payload | ({"dataset": dataset} if route == "transform" else {}))


@pytest.mark.parametrize("route", ROUTES)
def test_equal_draws_are_refused_equally(small: tuple[httpx.Client, str, str], route: str) -> None:
    """Numbers, summaries and pictures: 422 with one type, and no job; within the limits they are accepted."""
    cases: list[tuple[str, dict[str, int]]] = [
        ("cache-too-small", {"count": TOO_MANY.get(route, 100)}),
        ("over-the-limit", {"count": 3, "first": WHOLE - 1}),
    ]
    cases += [] if route in TOO_MANY else [("over-the-limit", {"count": 950})]  # a sheet has not so many panels
    for code, parameters in cases:
        answer = request_draws(small, route, **parameters)
        assert (answer.status_code, answer.json()["type"]) == (422, f"urn:glle:problem:{code}"), answer.text
    assert small[0].get("/v1/jobs").json()["items"] == []
    assert request_draws(small, route, count=4).status_code == 202


def test_a_sheet_of_many_draws_is_a_batch(
    small: tuple[httpx.Client, str, str], stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long draws are a batch; a single draw precedes batches."""
    client, posterior, _ = small
    with monkeypatch.context() as patched, serve_stores(stores) as slow:
        patched.setattr(sharding, "SHARD_SECONDS", 0.01)
        many = slow.get(f"{posterior}/draws.png", params={"count": 32, "wait": 0}).json()["id"]
        single = slow.get(f"{posterior}/draws/0.png", params={"wait": 0}).json()["id"]
    few = client.get(f"{posterior}/draws.png", params={"count": 2, "wait": 0}).json()["id"]
    states = {stores.jobs.fetch(id_).priority for id_ in (single, few)}
    assert (stores.jobs.fetch(many).priority, states) == ("batch", {"interactive"})
