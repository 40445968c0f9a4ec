"""Data sets, posteriors and jobs over HTTP without workers, so that jobs stay queued."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from service.app import create_app
from tests.conftest import in_turn
from tests.service.conftest import X, serving, upload
from worker.base.problems import Problem
from worker.base.versions import versioned_key
from worker.stores import Stores

if TYPE_CHECKING:
    import httpx


def test_upload_is_created_once_and_reads_back(client: httpx.Client) -> None:
    """201, then 200 with the same id; npy, npz and JSON return the values."""
    headers = {"content-type": "text/csv"}
    body = "x,y,kind\n1.5,2,a\n3,4,b\n5,6,a\n"
    first = client.post("/v1/datasets?label=kind", content=body, headers=headers)
    again = client.post("/v1/datasets?label=kind", content=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.headers["location"] == first.json()["links"]["self"]
    payload = client.get(first.headers["location"]).json()
    assert (payload["n"], payload["d"], payload["names"], payload["has_labels"]) == (3, 2, ["x", "y"], True)
    data = payload["links"]["data"]
    values = [[1.5, 2], [3, 4], [5, 6]]
    as_json = client.get(data).json()
    assert (as_json["data"], as_json["names"], as_json["labels"]) == (values, ["x", "y"], ["a", "b", "a"])
    npy = client.get(data, headers={"accept": "application/x-npy"})
    assert int(npy.headers["content-length"]) == len(npy.content)
    assert np.load(io.BytesIO(npy.content)).tolist() == values
    with np.load(io.BytesIO(client.get(data, headers={"accept": "application/zip"}).content)) as npz:
        assert npz["data"].tolist() == values
        assert npz["labels"].tolist() == ["a", "b", "a"]
    half = client.get(data + "?dtype=float32", headers={"accept": "application/x-npy"}).content
    assert np.load(io.BytesIO(half)).dtype == np.float32


def test_float32_that_overflows_is_refused(client: httpx.Client) -> None:
    """A data set beyond float32 is refused, not sent as infinities."""
    id_ = upload(client, X * 1e300)
    answer = client.get(f"/v1/datasets/{id_}/data?dtype=float32")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:float32-overflow")


def test_synthetic_has_its_true_coordinates(client: httpx.Client) -> None:
    """A sheet is stored with its coordinates; an equal request has the same id."""
    body = {"name": "s_curve", "n": 50, "seed": 3}
    first = client.post("/v1/datasets/synthetic", json=body)
    assert first.status_code == 201
    assert client.post("/v1/datasets/synthetic", json=body).status_code == 200
    data = client.get(first.json()["links"]["data"]).json()
    assert np.shape(data["data"]) == (50, 3)
    assert np.shape(data["coordinates"]) == (50, 2)


def test_lists_page_by_cursor(client: httpx.Client) -> None:
    """The pages of `next` have each item once, the newest first; the last page has no cursor."""
    uploads = {upload(client, X + shift) for shift in range(5)}
    ids: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get("/v1/datasets", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["items"]) <= 2
        ids += [item["id"] for item in page["items"]]
        cursor = page["next"]
    assert len(ids) == 5
    assert set(ids) == uploads
    created = [client.get(f"/v1/datasets/{id_}").json()["created"] for id_ in ids]
    assert created == sorted(created, reverse=True)


def test_bodies_beyond_their_limits_are_refused(client: httpx.Client, stores: Stores) -> None:
    """A chunked body ends at its limit, JSON at a smaller one."""
    small = Stores.connect(replace(stores.settings, max_body=2**20))
    with serving(create_app(small)) as other:
        body = (b"1,2\n" * 2**14 for _ in range(17))
        answer = other.post("/v1/datasets", content=body, headers={"content-type": "text/csv"})
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:glle:problem:body-too-large")
    small.close()
    big = b"[" + b"[1,2]," * 10**6 + b"[1,2]]"
    answer = client.post("/v1/datasets", content=big, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["details"]) == (413, {"allowed": 4 * 2**20})


def test_fit_is_refused_before_it_is_queued(client: httpx.Client, stores: Stores) -> None:
    """Too large k or p, equal points and limits are reported at once; no job is queued."""
    id_ = upload(client)
    equal = upload(client, np.full((40, 3), 2.5))
    cases = [
        ({"dataset": id_, "n_neighbors": 40}, "too-few-points"),
        ({"dataset": id_, "n_components": 39}, "too-few-points"),
        ({"dataset": id_, "n_neighbors": 201}, "over-the-limit"),
        ({"dataset": id_, "n_components": 51}, "over-the-limit"),
        ({"dataset": equal}, "degenerate-data"),
    ]
    for body, code in cases:
        answer = client.post("/v1/posteriors", json=body)
        assert (answer.status_code, answer.json()["type"]) == (422, f"urn:glle:problem:{code}")
        assert answer.json()["remedy"]
    assert in_turn(stores) == []
    assert list(stores.jobs.iterate()) == []


def test_same_fit_twice_is_one_job(client: httpx.Client, stores: Stores) -> None:
    """A queued fit is shared by equal requests, also with unused options; another spec has a separate job."""
    id_ = upload(client)
    first = client.post("/v1/posteriors", json={"dataset": id_})
    again = client.post("/v1/posteriors", json={"dataset": id_, "reg": 0.001, "n_neighbors": 10})
    idle = client.post("/v1/posteriors", json={"dataset": id_, "max_iter": 3, "tol": 0})  # of the published em
    other = client.post("/v1/posteriors", json={"dataset": id_, "n_neighbors": 11})
    assert [answer.status_code for answer in (first, again, idle, other)] == [202] * 4
    assert first.json()["id"] == again.json()["id"] == idle.json()["id"] != other.json()["id"]
    assert first.headers["location"] == f"/v1/jobs/{first.json()['id']}"
    assert int(first.headers["retry-after"]) >= 1
    assert len(in_turn(stores)) == 2


def test_posterior_during_its_fit(client: httpx.Client) -> None:
    """It is a 202 with its job; its draws are a 409 that names the job."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    posterior = job["links"]["posterior"]
    assert client.get(posterior).status_code == 202
    assert client.get(posterior).headers["location"] == job["links"]["self"]
    answer = client.post(posterior + "/draws", json={"count": 1})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:glle:problem:posterior-not-ready")
    assert job["id"] in answer.json()["remedy"]


def test_failed_fit_is_reported_everywhere(client: httpx.Client, stores: Stores) -> None:
    """The job is 200 with the problem inside; posterior, result and draws return the problem itself."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    problem = Problem(code="disconnected-graph", status=422, detail="Two.", remedy="k = 12.", details={"k": 12})
    stores.jobs.fail(job["id"], problem)
    payload = client.get(job["links"]["self"])
    assert (payload.status_code, payload.json()["status"], payload.json()["error"]) == (
        200,
        "failed",
        problem.to_dict(),
    )
    posterior = job["links"]["posterior"]
    for answer in (
        client.get(posterior),
        client.get(payload.json()["links"]["self"] + "/result"),
        client.get(posterior + "/draws/3"),
        client.post(posterior + "/draws", json={"count": 2}),
    ):
        assert (answer.status_code, answer.json()) == (422, problem.to_dict())


def test_cancel_queued_job(client: httpx.Client) -> None:
    """DELETE cancels at once, and a repetition changes nothing; the result is a 409."""
    job = client.post("/v1/posteriors", json={"dataset": upload(client)}).json()
    for _ in range(2):
        answer = client.delete(job["links"]["self"])
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    result = client.get(job["links"]["self"] + "/result")
    assert (result.status_code, result.json()["type"]) == (409, "urn:glle:problem:job-cancelled")
    assert client.post("/v1/posteriors", json={"dataset": job["request"]["dataset"]}).json()["id"] != job["id"]


def test_waiting_ends_with_the_timeout(client: httpx.Client) -> None:
    """After the timeout the current state returns: 202, or 200 for the job itself with Retry-After."""
    job = client.post("/v1/posteriors?wait=0.05", json={"dataset": upload(client)})
    assert job.status_code == 202
    payload = client.get(job.json()["links"]["self"] + "?wait=0.05")
    assert (payload.status_code, payload.headers["retry-after"]) == (200, "1")


def test_delete_data_set(client: httpx.Client) -> None:
    """204, then 404."""
    id_ = upload(client)
    assert client.delete(f"/v1/datasets/{id_}").status_code == 204
    assert client.delete(f"/v1/datasets/{id_}").status_code == 404
    assert client.get("/v1/datasets").json() == {"next": None, "items": [], "unreadable": []}


def test_delete_posterior_cancels_its_fit(client: httpx.Client, stores: Stores, drawn: str) -> None:
    """A deletion cancels the second fit of an evicted posterior."""
    stores.cache.delete(versioned_key(f"posterior:{drawn.rpartition('/')[2]}"))
    job = client.get(f"{drawn}/arrays").json()["id"]
    assert client.delete(drawn).status_code == 204
    assert client.get(f"/v1/jobs/{job}").json()["status"] == "cancelled"
    assert in_turn(stores) == []


def test_info_has_limits_and_defaults(client: httpx.Client, stores: Stores) -> None:
    """The limits are the settings; the defaults are those of the engine."""
    payload = client.get("/v1/info").json()
    assert payload["limits"]["max_body"] == stores.settings.max_body
    assert payload["posterior_defaults"]["n_neighbors"] == "auto"
    assert "swiss_roll" in payload["manifolds"]


@pytest.mark.parametrize("accept", ["text/html", "application/x-npy;q=0"])
def test_unacceptable_representation(client: httpx.Client, accept: str) -> None:
    """406 has the list of representations."""
    answer = client.get(f"/v1/datasets/{upload(client)}/data", headers={"accept": accept})
    assert (answer.status_code, len(answer.json()["details"]["offered"])) == (406, 5)
