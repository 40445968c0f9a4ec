"""Equal checks of equal work: every route refuses draws that cannot be computed or cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import NUMBERS, FitSpec
from tests.service.tenants import served
from worker.records import sharding
from worker.records.ids import posterior_id
from worker.storage.datasets import Table
from worker.storage.posteriors import ARRAYS, PosteriorRecord

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
    "summary": ("GET", "/summary", {}),
    "summary.png": ("GET", "/summary.png", {}),
    "summary.svg": ("GET", "/summary.svg", {}),
    "draws.png": ("GET", "/draws.png", {}),
    "draws.svg": ("GET", "/draws.svg", {}),
}
TOO_MANY = {"draws.png": 64, "draws.svg": 64}  # the most that a sheet has


@pytest.fixture(scope="module")
def record() -> PosteriorRecord:
    """The record of a posterior of many points."""
    spec = FitSpec(n_neighbors=10).to_dict()
    return PosteriorRecord(
        draw_cost={"seconds": 0.01, "each_seconds": 0.004, "bytes": 1e7},
        id="", dataset="", n=N, d=3, spec=spec, diagnostics={}, seconds=0.1, eigenvalues=[], arrays={}, nbytes=0,
        provenance={"numbers": NUMBERS, ARRAYS: "0" * 64}, job="job_1", created="now",
    )  # fmt: skip


@pytest.fixture(scope="module")
def _small(_served: tuple[Stores, FastAPI, httpx.Client]) -> Iterator[httpx.Client]:
    """A client of a service with a small cache and few draws on the data of the session's app."""
    with pytest.MonkeyPatch.context() as patched, served(_served[0], cache_bytes=CACHE) as client:
        patched.setattr("service.submission.validation.MAX_DRAWS", 900)
        yield client


@pytest.fixture
def small(stores: Stores, _small: httpx.Client, record: PosteriorRecord) -> tuple[httpx.Client, str, str]:
    """A client of a service with a small cache and few draws, the path of a posterior, and its data set."""
    X = np.random.default_rng(0).normal(size=(N, 3))
    dataset, _ = stores.datasets.add(Table(values=X, source={"kind": "test"}))
    id_ = posterior_id(dataset.id, record.spec, glle_engine.__version__)
    stores.posteriors.record(PosteriorRecord(**{**vars(record), "id": id_, "dataset": dataset.id}))
    return _small, f"/v1/posteriors/{id_}", dataset.id


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
@pytest.mark.parametrize(
    ("parameters", "type_"),
    [
        ({"count": 100}, "cache-too-small"),
        ({"count": 950}, "over-the-limit"),
        ({"count": 3, "first": WHOLE - 1}, "over-the-limit"),
    ],
)
def test_equal_draws_are_refused_equally(
    small: tuple[httpx.Client, str, str], route: str, parameters: dict[str, Any], type_: str
) -> None:
    """Numbers, summaries and pictures: 422 with one type, and no job."""
    most = TOO_MANY.get(route, 1000)
    if parameters["count"] > most:
        if type_ == "over-the-limit":
            pytest.skip("a sheet has not so many panels")
        parameters = {**parameters, "count": most}
    answer = request_draws(small, route, **parameters)
    assert (answer.status_code, answer.json()["type"]) == (422, f"urn:glle:problem:{type_}"), answer.text
    assert small[0].get("/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("route", ROUTES)
def test_draws_within_the_limits_are_accepted(small: tuple[httpx.Client, str, str], route: str) -> None:
    """By the same routes."""
    assert request_draws(small, route, count=4).status_code == 202


def test_a_sheet_of_many_draws_is_a_batch(
    small: tuple[httpx.Client, str, str], stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long draws are a batch; a single draw precedes batches."""
    client, posterior, _ = small
    with monkeypatch.context() as patched, served(stores) as slow:
        patched.setattr(sharding, "SHARD_SECONDS", 0.01)
        many = slow.get(f"{posterior}/draws.png", params={"count": 32, "wait": 0}).json()["id"]
        single = slow.get(f"{posterior}/draws/0.png", params={"wait": 0}).json()["id"]
    few = client.get(f"{posterior}/draws.png", params={"count": 2, "wait": 0}).json()["id"]
    states = {stores.jobs.fetch(id_).priority for id_ in (single, few)}
    assert (stores.jobs.fetch(many).priority, states) == ("batch", {"interactive"})
