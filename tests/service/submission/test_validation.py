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
    from numpy.typing import NDArray

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
        check_problem(request_draws(client, dataset, "draws", 1, source="prior"), 422, "invalid-parameter")
        assert client.get("/v1/jobs").json()["items"] == []
        for route in ROUTES:
            assert request_draws(client, dataset, route, 4).status_code == 202


def test_the_groups_of_an_audit_are_those_of_its_labels(client: httpx.Client, stores: Stores) -> None:
    """An audit compares the classes of the data set `labels`, or else those of the data set itself, if they are few."""
    X, classes = np.random.default_rng(0).normal(size=(120, 3)), np.arange(120)

    def send(labels: str | None, own: NDArray[Any] | None = None) -> tuple[str, httpx.Response]:
        dataset = stores.datasets.add(Table(values=X, labels=own, source={}))[0].id
        body = {"dataset": dataset, "method": "pca", "labels": labels, "score_neighbors": 5}
        return dataset, client.post("/v1/audits?wait=0", json=body)

    few, many, halves, wide = (upload(client, each) for each in (classes[:, None] % 2, classes[:, None], X[:, :1], X))
    for labels, own in ((few, None), (few, classes), (None, classes % 2), (None, classes), (None, None)):
        dataset, answer = send(labels, own)
        expected = dataset if labels is None and own is not None and own.max() == 1 else labels
        assert stores.jobs.fetch(answer.json()["id"]).spec["labels"] == expected
    for refused, code in ((many, "invalid-parameter"), (halves, "invalid-shape"), (wide, "invalid-shape")):
        check_problem(send(refused)[1], 422, code)


def test_a_fit_beyond_a_limit_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many neighbors or components, and factors of the covariance for which there is no room."""
    dataset = upload(client, np.random.default_rng(0).normal(size=(N, 3)))
    for name, allowed in (("n_neighbors", 200), ("n_components", 50)):
        answer = client.post("/v1/posteriors", json={"dataset": dataset, name: allowed + 1})
        assert check_problem(answer, 422, "over-the-limit")["details"] == {"allowed": allowed}
    for free, status in ((8 * N * 10**2 - 1, 507), (8 * N * 10**2, 202)):
        monkeypatch.setattr("service.submission.validation.free_bytes", lambda _, free=free: free)
        assert client.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": 10}).status_code == status


def test_blocks_are_no_features(client: httpx.Client) -> None:
    """The problem says whether the given name is the one of a feature, or of no column at all."""
    rows = "".join(f"{row},{row * row}\n" for row in range(40))
    answer = client.post("/v1/datasets", content="x,y\n" + rows, headers={"content-type": "text/csv"})
    for blocks, words in (("x", "is a feature of the data"), ("z", "is neither a column")):
        body = {"dataset": answer.json()["id"], "method": "pca", "blocks": blocks, "score_neighbors": 5}
        assert words in check_problem(client.post("/v1/audits", json=body), 422, "invalid-parameter")["detail"]
