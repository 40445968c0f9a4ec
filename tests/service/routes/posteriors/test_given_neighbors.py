"""Fits with given neighbors over HTTP, and by the client's data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

import glle_engine
from glle.inputs import neighbor_indices
from tests.conftest import evict
from tests.service.conftest import upload
from tests.service.routes.posteriors.conftest import NPY, SHEET, check_problem, drawn
from worker.execution import tasks
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from numpy.typing import NDArray

    from worker.stores import Stores

N = len(SHEET)
NEAR = np.argsort(cdist(SHEET, SHEET, "cityblock"), axis=1, kind="stable")[:, :9]  # with each point itself
DIRECT = {"method": "direct", "variance": "ml"}


def posted(client: httpx.Client, neighbors: Any, **spec: Any) -> httpx.Response:
    """Upload data and neighbors, and ask for the fit."""
    given = neighbors if isinstance(neighbors, str) else upload(client, np.asarray(neighbors))
    return client.post("/v1/posteriors", json={"dataset": upload(client, SHEET), "neighbors": given, **spec})


def fitted(client: httpx.Client, **spec: Any) -> str:
    """Fit with the neighbors and return the path."""
    job = posted(client, NEAR, **spec).json()
    tasks.fit(job["id"])
    return str(job["links"]["posterior"])


@pytest.mark.parametrize("spec", [{}, {"metric": "euclidean", "n_neighbors": 8}, DIRECT], ids=str)
def test_the_posterior_is_the_engines(client: httpx.Client, stores: Stores, spec: dict[str, Any]) -> None:
    """The same bits as `fit(X, neighbors=...)`; the record names the neighbors, and n_neighbors is their number."""
    path = fitted(client, **spec)
    record = client.get(path).json()
    expected = glle_engine.fit(SHEET, neighbors=NEAR, **spec)
    assert record["spec"] == {**expected.spec.to_dict(), "neighbors": upload(client, NEAR)}
    assert record["spec"]["n_neighbors"] == 8
    assert record["diagnostics"] == expected.diagnostics.to_dict()
    assert record["diagnostics"]["figures"]["given_neighbors"] is True
    assert client.get(record["links"]["neighbors"]).json()["d"] == 9
    draw = client.get(drawn(stores, client.get(f"{path}/draws/3?wait=0")), headers=NPY)
    np.testing.assert_array_equal(np.load(io.BytesIO(draw.content))[0], expected.draw(3).embedding)
    again = posted(client, NEAR, **spec)
    assert (again.status_code, again.json()["id"]) == (200, record["id"])


def test_neighbors_are_part_of_the_id(client: httpx.Client) -> None:
    """Other neighbors, and none, are other posteriors."""
    without = client.post("/v1/posteriors", json={"dataset": upload(client, SHEET), "n_neighbors": 8})
    jobs = [without, posted(client, NEAR), posted(client, NEAR[:, :8], n_neighbors=7), posted(client, NEAR[:, 1:])]
    assert len({job.json()["links"]["posterior"] for job in jobs}) == 4
    assert posted(client, NEAR).json()["id"] == jobs[1].json()["id"]


def test_evicted_arrays_are_fitted_again_with_the_neighbors(client: httpx.Client, stores: Stores) -> None:
    """With the same bits; the recorded digest would refuse others."""
    path = fitted(client)
    before = client.get(path + "/arrays?name=embedding", headers=NPY).content
    evict(stores, "posterior:")
    again = client.get(path + "/arrays?name=embedding", headers=NPY)
    assert again.status_code == 202
    tasks.fit(again.json()["id"])
    assert stores.jobs.fetch(again.json()["id"]).status == "succeeded"
    assert client.get(path + "/arrays?name=embedding", headers=NPY).content == before
    job = client.post(path + "/draws", json={"count": 2}).json()
    evict(stores, "posterior:")
    tasks.draw(job["id"], 0, 0)
    assert stores.jobs.fetch(job["id"]).status == "succeeded"


def wrong(change: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
    """Return changed neighbors."""
    return np.asarray(change(NEAR[:, 1:].astype(float)))


@pytest.mark.parametrize(
    ("neighbors", "words"),
    [
        (wrong(lambda near: np.where(near == 7, N, near)), f"is {N}, not a point from 0 to {N - 1}"),
        (wrong(lambda near: np.where(near == 7, -1, near)), "is -1, not a point"),
        (wrong(lambda near: near + 0.5), "not the number of a point"),
        (wrong(lambda near: near[:-1]), f"has {N - 1} rows; the data have {N} points"),
        (np.zeros((N, 300)), "n_neighbors=299; "),
        (wrong(lambda near: np.where(np.arange(N)[:, None] == 5, 5, near)), "Point 5 is its own neighbor"),
        (wrong(lambda near: np.where(np.arange(N)[:, None] == 5, 6, near)), "Point 5 has a neighbor twice"),
        (wrong(lambda near: near[:, :1]), "1 neighbors beside itself"),
    ],
)
def test_wrong_neighbors_are_refused(client: httpx.Client, neighbors: NDArray[Any], words: str) -> None:
    """Before any job, with the first wrong entry and the remedy."""
    answer = posted(client, neighbors)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["remedy"]
    assert client.get("/v1/jobs").json()["items"] == []


@pytest.mark.parametrize(
    "spec", [{"n_neighbors": 9}, {"landmarks": 50}, {"noise": "tangent"}, {"search": "approximate"}], ids=str
)
def test_contradictions_are_refused(client: httpx.Client, spec: dict[str, Any]) -> None:
    """As by the engine."""
    problem = check_problem(posted(client, NEAR, **spec), 422, "invalid-parameter")
    assert "contradicts given neighbors" in problem["detail"]


def test_neighbors_need_a_data_set_and_the_data_set_a_fit(client: httpx.Client, stores: Stores) -> None:
    """404 for none, or another tenant's; 409 for its deletion, unless forced; 422 for an estimate."""
    check_problem(posted(client, "ds_" + "0" * 32), 404, "dataset-not-found")
    theirs = stores.of("alice").datasets.add(Table(values=NEAR, source={"kind": "test"}))[0]
    check_problem(posted(client, theirs.id), 404, "dataset-not-found")
    body = {"dataset": upload(client, SHEET), "neighbors": upload(client, NEAR)}
    problem = check_problem(client.post("/v1/posteriors/estimate", json=body), 422, "invalid-parameter")
    assert "n_neighbors" in problem["remedy"]
    path = fitted(client)
    check_problem(client.delete(f"/v1/datasets/{body['neighbors']}"), 409, "dataset-in-use")
    assert client.delete(f"/v1/datasets/{body['neighbors']}?force=true").status_code == 204
    assert client.get(path).status_code == 404
    assert stores.posteriors.of_dataset(body["dataset"]) == []


def test_neighbors_that_are_deleted_during_the_fit_fail_it(client: httpx.Client, stores: Stores) -> None:
    """The job has the reason, and no posterior stays."""
    job = posted(client, NEAR).json()
    stores.datasets.delete(upload(client, NEAR))
    tasks.fit(job["id"])
    ended = stores.jobs.fetch(job["id"])
    assert ended.error is not None
    assert ended.error.code == "dataset-not-found"
    assert client.get(job["links"]["posterior"]).status_code == 404


def test_the_scale_cannot_be_calibrated(client: httpx.Client) -> None:
    """Half-samples would need neighbors of halves; refused before any job."""
    path = fitted(client)
    for answer in (
        client.post(path + "/calibration", json={}),
        client.post(path + "/draws", json={"count": 2, "scale": "auto"}),
        client.get(path + "/summary?count=4&scale=auto"),
        client.get(path + "/summary?count=4&resamples=8"),
    ):
        assert "given neighbors" in check_problem(answer, 422, "invalid-parameter")["detail"]


def test_the_summary_is_that_of_draws_and_says_so(client: httpx.Client, stores: Stores) -> None:
    """Without a scale it is the summary at scale 1; the note has the reason."""
    path = fitted(client)
    job = client.get(path + "/summary?count=4&wait=0").json()["id"]
    assert job == client.get(path + "/summary?count=4&scale=1&wait=0").json()["id"]
    tasks.analyse(job, stores.jobs.fetch(job).round)
    (note,) = [
        note for note in client.get(path + "/summary?count=4").json()["notes"] if note["code"] == "spread-of-draws"
    ]
    assert "given neighbors" in note["message"]


def test_the_client_takes_every_form_of_neighbors() -> None:
    """Arrays stay; pairs have the indices, in either order; a graph has a row's columns."""
    graph = kneighbors_graph(SHEET, 8)
    indices = graph.indices.reshape(N, 8)
    apart = np.ones((N, 8))
    for form in (indices, (apart, indices), (indices, apart), graph):
        np.testing.assert_array_equal(neighbor_indices(form), indices)
    assert neighbor_indices("near.npy") == "near.npy"
    with pytest.raises(ValueError, match="from 8 to 9"):
        neighbor_indices(_uneven(graph))
    with pytest.raises(ValueError, match="indices"):
        neighbor_indices((apart, apart))


def _uneven(graph: Any) -> Any:
    """Return a graph whose first point has a further neighbor."""
    changed = graph.tolil()
    changed[0, int(np.setdiff1d(np.arange(1, N), graph.indices[:8])[0])] = 1
    return changed
