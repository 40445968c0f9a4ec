"""Fits of every kind over HTTP: the bits of the engine, ids, given neighbors, and refusals before any job."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import glle_engine
from glle_engine.tables.table import Table
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import NPY, NPZ, SHEET, N, fit_posterior, npz, post_fit, result_of
from worker.execution import tasks
from worker.storage.datasets import DatasetStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from numpy.typing import NDArray

    from worker.stores import Stores

NEAR = np.argsort(cdist(SHEET, SHEET, "cityblock"), axis=1, kind="stable")[:, :9]  # with each point itself
DISTANCES = cdist(SHEET, SHEET)


@pytest.mark.parametrize(
    "spec",
    [
        {"landmarks": 40, "n_neighbors": 8},
        {"standardize": "zscore"},
        {"metric": "precomputed"},
        {"neighbors": NEAR, "method": "direct", "variance": "ml"},
        {"variant": "published", "covariance": "full-corrected", "max_iter": 3},  # with the values of Eq. 23 to 25
    ],
    ids=" ".join,
)
def test_a_fit_is_the_engines(client: httpx.Client, stores: Stores, spec: dict[str, Any]) -> None:
    """Record, arrays, a draw and positions of points have the engine's bits, also after the cache was lost."""
    X = DISTANCES if spec.get("metric") == "precomputed" else SHEET
    path = fit_posterior(client, X, **spec)
    record = client.get(path).json()
    expected = glle_engine.fit(X, **spec)
    asked = {"neighbors": upload(client, NEAR)} if "neighbors" in spec else {}
    assert record["spec"] == {**expected.spec.to_dict(), **asked}
    figures, notes = record["diagnostics"]["figures"], record["diagnostics"]["notes"]
    assert figures == expected.diagnostics.to_dict()["figures"]
    assert [note["code"] for note in notes] == [note.code for note in expected.notes]
    before = npz(client.get(path + "/arrays", headers=NPZ))
    arrays = expected.arrays()
    assert {"embedding", "mean"} <= set(before)
    assert all(array.tobytes() == arrays[name].tobytes() for name, array in before.items())
    stores.cache.client.flushall()
    draw = client.get(result_of(stores, client.get(f"{path}/draws/3?wait=0")), headers=NPY)
    np.testing.assert_array_equal(np.load(io.BytesIO(draw.content))[0], expected.draw(3).embedding)
    placed = client.post(f"{path}/transform", json={"data": X[:3].tolist()})
    places = client.get(result_of(stores, placed)).json()["arrays"]["embedding"]["data"]
    np.testing.assert_array_equal(places, expected.embedding[:3])
    after = npz(client.get(path + "/arrays", headers=NPZ))
    assert all(array.tobytes() == before[name].tobytes() for name, array in after.items())
    repeated = post_fit(client, X, **spec)
    assert (repeated.status_code, repeated.json()["id"]) == (200, record["id"])
    summary = result_of(stores, client.get(f"{path}/summary?n_draws=4&wait=0&scale=1"))
    assert len(client.get(summary).json()["arrays"]["local_trust"]["data"]) == N


def test_values_that_change_nothing_are_not_part_of_the_id(client: httpx.Client) -> None:
    """Defaults, and as many landmarks as points, give the same posterior; other values give other ones."""
    plain: list[dict[str, Any]] = [
        {},
        {"n_neighbors": None, "variance": None},
        {"landmarks": N, "standardize": "none", "metric": "euclidean"},
    ]
    plain += [{"reg": 0.001, "n_neighbors": 10}, {"max_iter": 3, "tol": 0}]  # the last two are of the published em
    others: list[dict[str, Any]] = [
        {"landmarks": 50},
        {"standardize": "zscore"},
        {"noise": "auto"},
        {"neighbors": NEAR},
        {"neighbors": NEAR[:, :8], "n_neighbors": 7},
        {"neighbors": NEAR[:, 1:]},
    ]
    ids = [[post_fit(client, **spec).json()["posterior"] for spec in specs] for specs in (plain, others)]
    assert len({*ids[0]}) == 1
    assert len({*ids[0], *ids[1]}) == 1 + len(others)


def wrong(change: Callable[[NDArray[Any]], NDArray[Any]]) -> dict[str, Any]:
    """Return changed neighbors."""
    return {"neighbors": np.asarray(change(NEAR[:, 1:].astype(float)))}


def test_impossible_fits_are_refused(client: httpx.Client) -> None:
    """An impossible fit is refused before any job, with the first wrong entry and the remedy."""
    cases: list[tuple[dict[str, Any], str]] = [
        (wrong(lambda near: np.where(near == 7, N, near)), f"is {N}, not a point from 0 to {N - 1}"),
        (wrong(lambda near: np.where(near == 7, -2, near)), "is -2, not a point"),
        (wrong(lambda near: near + 0.5), "not the number of a point"),
        (wrong(lambda near: near[:-1]), f"`neighbors` has {N - 1} rows, but the data have {N} points"),
        ({"neighbors": np.zeros((N, 300))}, '"n_neighbors": 299 is too large; '),
        (wrong(lambda near: np.where(np.arange(N)[:, None] == 5, 5, near)), "among their own neighbors, but not each"),
        (
            wrong(lambda near: np.where(np.arange(N)[:, None] == 5, 6, near)),
            "have a neighbor twice; the first is point 5",
        ),
        (wrong(lambda near: near[:, :1]), "more than 1 neighbor(s) beside itself"),
        ({"landmarks": 5, "n_neighbors": 8}, '"landmarks": 5'),
        ({"standardize": "zscore", "metric": "hamming"}, '"standardize": "zscore"'),
    ]
    also: list[dict[str, Any]] = [
        {"n_neighbors": 9},
        {"landmarks": 50},
        {"noise": "tangent"},
        {"search": "approximate"},
    ]
    cases += [({"neighbors": NEAR, **spec}, "cannot be combined with `neighbors`") for spec in also]
    for spec, words in cases:
        answer = post_fit(client, **spec)
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
        assert answer.json()["remedy"]
    assert client.get("/v1/jobs").json()["items"] == []


def test_neighbors_need_a_data_set_and_the_data_set_a_fit(client: httpx.Client, stores: Stores) -> None:
    """Missing or foreign neighbors are 404; deleting used neighbors is 409, unless forced."""
    theirs = stores.for_tenant("alice").datasets.add(Table(values=NEAR, source={"kind": "test"}))[0]
    for missing in ("ds_" + "0" * 32, theirs.id):
        check_problem(post_fit(client, neighbors=missing), 404, "dataset-not-found")
    near = upload(client, NEAR)
    path = fit_posterior(client, neighbors=NEAR)
    check_problem(client.delete(f"/v1/datasets/{near}"), 409, "dataset-in-use")
    assert client.delete(f"/v1/datasets/{near}?force=true").status_code == 204
    assert client.get(path).status_code == 404
    job = post_fit(client, neighbors=NEAR).json()
    stores.datasets.delete(upload(client, NEAR))  # during the fit
    tasks.fit(job["id"])
    assert client.get(job["links"]["self"]).json()["error"]["type"] == "urn:glle:problem:dataset-not-found"
    assert client.get(job["links"]["posterior"]).status_code == 404


def test_no_posterior_is_left_without_its_data_by_a_killed_deletion(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit ends after the deletion has looked for posteriors, and the process is killed then: the data set stays."""
    dataset, job, real = upload(client, SHEET), post_fit(client).json(), DatasetStore.delete

    def delete(store: DatasetStore, id_: str, **options: Any) -> None:
        tasks.fit(job["id"])
        real(store, id_, **options)
        raise RuntimeError

    with monkeypatch.context() as killed:
        killed.setattr(DatasetStore, "delete", delete)
        assert client.delete(f"/v1/datasets/{dataset}").status_code == 500
    check_problem(client.delete(f"/v1/datasets/{dataset}"), 409, "dataset-in-use")
    assert client.delete(f"/v1/datasets/{dataset}?force=true").status_code == 204
    assert list(stores.posteriors.all()) == []
    assert stores.posteriors.of_dataset(dataset) == []


def test_distances_generate_no_data(client: httpx.Client) -> None:
    """For a posterior of distances, generated data are refused, and the remedy names coordinates."""
    answer = client.post(
        fit_posterior(client, DISTANCES, metric="precomputed") + "/reconstructions", json={"n_draws": 1}
    )
    assert "coordinates" in check_problem(answer, 422, "invalid-parameter")["remedy"]
