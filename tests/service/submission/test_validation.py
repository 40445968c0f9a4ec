"""Checks before a job is queued: every route refuses draws that cannot be computed or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.tables.table import Table
from tests.service.conftest import check_problem, posterior_record, upload
from tests.service.submission.conftest import POST_1
from tests.service.tenants import serve_stores

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores

N, FREE = 600, 2**19  # points, and bytes of the disk
WHOLE = 2**64 - 1

ROUTES = ("draws", "transform", "reconstructions", "summary")  # below a posterior, for draws first, first + 1, ...


def request_draws(client: httpx.Client, dataset: str, route: str, n_draws: int, **parameters: Any) -> httpx.Response:
    """Send a request for draws to a route."""
    parameters |= {"n_draws": n_draws}
    if route == "summary":
        return client.get(f"{POST_1}/summary", params=parameters | {"wait": 0, "scale": 1})  # without resamples
    return client.post(f"{POST_1}/{route}", json=parameters | ({"dataset": dataset} if route == "transform" else {}))


def test_equal_draws_are_refused_equally(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws beyond a limit are refused by every route with the same problem, and within the limits accepted."""
    monkeypatch.setattr("service.submission.validation.MAX_DRAWS", 900)
    X = np.random.default_rng(0).normal(size=(N, 3))
    dataset = stores.datasets.add(Table(values=X, source={"kind": "test"}))[0].id
    stores.posteriors.create(posterior_record(dataset=dataset, n=N))
    monkeypatch.setattr("service.submission.validation.free_bytes", lambda _: FREE)
    with serve_stores(stores) as client:
        for route in ROUTES:
            check_problem(request_draws(client, dataset, route, 100), 507, "storage-full")
            check_problem(request_draws(client, dataset, route, 3, first=WHOLE - 1), 422, "over-the-limit")
            check_problem(request_draws(client, dataset, route, 950), 422, "over-the-limit")
        assert client.get("/v1/jobs").json()["items"] == []
        for route in ROUTES:
            assert request_draws(client, dataset, route, 4).status_code == 202


def test_the_groups_of_an_audit_are_few_classes(client: httpx.Client, stores: Stores) -> None:
    """An audit compares the classes of the data set `labels`; by default, the few classes of its own data set."""
    X, classes = np.random.default_rng(0).normal(size=(120, 3)), np.arange(120)
    dataset = stores.datasets.add(Table(values=X, labels=classes, source={}))[0].id
    few, many, halves, wide = (upload(client, each) for each in (classes[:, None] % 2, classes[:, None], X[:, :1], X))

    def send(labels: str | None) -> httpx.Response:
        body = {"dataset": dataset, "method": "pca", "labels": labels, "score_neighbors": 5}
        return client.post("/v1/audits?wait=0", json=body)

    for labels in (few, None):
        assert stores.jobs.fetch(send(labels).json()["id"]).spec["labels"] == labels
    for refused, code in ((many, "invalid-parameter"), (halves, "invalid-shape"), (wide, "invalid-shape")):
        check_problem(send(refused), 422, code)


def test_a_posterior_has_room_for_its_covariance_factors(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit is refused if a k x k matrix of float64 for each point does not fit on the disk."""
    body = {"dataset": upload(client, np.random.default_rng(0).normal(size=(N, 3))), "n_neighbors": 10}
    for free, status in ((8 * N * 10**2 - 1, 507), (8 * N * 10**2, 202)):
        monkeypatch.setattr("service.submission.validation.free_bytes", lambda _, free=free: free)
        assert client.post("/v1/posteriors", json=body).status_code == status
