"""Every POST names what it creates by its content, so that a client may send it again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from service.submission.jobs import shards_of
from tests.service.conftest import check_problem, upload
from tests.service.submission.conftest import POST_1
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI

    from worker.stores import Stores

DATA = {"dataset": "ds_here"}  # replaced by the id of the data set of the posterior
TABLE = {"data": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "labels": ["a", "b"]}
EMBEDDING = "/v1/embeddings/emb_here"  # replaced by the path of an embedding
POSTS: dict[str, dict[str, Any]] = {
    POST_1 + "/draws": {"n_draws": 8},
    POST_1 + "/transform": {"data": [[1.0, 2.0, 3.0]]},
    POST_1 + "/reconstructions": {"n_draws": 2},
    POST_1 + "/calibration": {},
    "/v1/posteriors": DATA | {"n_neighbors": 5},
    "/v1/datasets": TABLE,
    "/v1/datasets/preview": TABLE,
    "/v1/datasets/synthetic": {"name": "s_curve", "n": 50},
    "/v1/audits": DATA | {"coordinates": [[float(i), 0.5] for i in range(40)]},
    "/v1/embeddings": DATA | {"method": "lle"},
    EMBEDDING + "/transform": {"data": [[1.0, 2.0, 3.0]]},
    "/v1/comparisons": DATA | {"methods": [{"method": "pca"}, {"method": "lle"}]},
}


def test_every_post_of_the_contract_is_repeated_here(app: FastAPI) -> None:
    """Every POST of the contract is in POSTS, so that it is sent twice here."""
    contract = {path for path, methods in app.openapi()["paths"].items() if "post" in methods}
    known = {path.replace("post_1", "{id}").replace("emb_here", "{id}") for path in POSTS}
    assert known == contract


@pytest.mark.parametrize(
    ("seconds", "per_shard"), [(8 * 2.0, 1), (8 * 0.5, 4), (8 * 0.25, None), (8 * 5.0, 1), (None, 1)]
)
def test_shards_take_two_seconds(seconds: float | None, per_shard: int | None) -> None:
    """Shards take about two seconds each; work of two seconds is one task, a part of unknown time is a shard."""
    parts: Any = SimpleNamespace(parts=lambda: [SimpleNamespace(size=4)] * 8)
    shards = shards_of(parts, "resamples", seconds)
    assert (None if shards is None else shards.per_shard) == per_shard
    assert shards is None or (shards.stage, shards.sizes) == ("resamples", (4,) * 8)


@pytest.mark.parametrize("path", POSTS)
def test_the_same_post_is_the_same_resource(client: httpx.Client, stores: Stores, posterior: str, path: str) -> None:
    """Equal requests, at the same time or later, get the job or the resource of the first one."""
    body, data = POSTS[path], {"dataset": stores.posteriors.fetch("post_1").dataset}
    if path.startswith(EMBEDDING):
        made = client.post("/v1/embeddings", json=data | {"method": "pca"}).json()
        path = path.replace(EMBEDDING, made["links"]["embedding"])
    before = {job["id"] for job in client.get("/v1/jobs").json()["items"]}

    def post(_: int) -> Any:
        answer = client.post(path, json=body | data if "dataset" in body else body, params={"wait": 0})
        assert answer.is_success, answer.text
        return answer.json().get("id", answer.json())

    with ThreadPoolExecutor(4) as threads:
        first, *others = [*threads.map(post, range(4)), post(4)]
    assert others == [first] * 4
    assert len({job["id"] for job in client.get("/v1/jobs").json()["items"]} - before) <= 1


def test_a_repeat_after_the_end_of_a_job(client: httpx.Client) -> None:
    """A repeated fit returns the posterior; after a cancellation or a deletion it starts another job."""
    body = {"dataset": upload(client), "n_neighbors": 5}
    cancelled = client.post("/v1/posteriors", json=body).json()
    for _ in range(2):  # a repetition changes nothing
        assert client.delete(cancelled["links"]["self"]).json()["status"] == "cancelled"
    check_problem(client.get(cancelled["links"]["self"] + "/result"), 409, "job-cancelled")
    job = client.post("/v1/posteriors", json=body).json()
    assert job["id"] != cancelled["id"]
    tasks.fit(job["id"])
    fitted = client.post("/v1/posteriors", json=body)
    assert (fitted.status_code, fitted.json()["links"]["self"]) == (200, job["links"]["posterior"])
    assert client.delete(job["links"]["posterior"]).status_code == 204
    again = client.post("/v1/posteriors", json=body)
    assert (again.status_code, again.json()["links"]["posterior"]) == (202, job["links"]["posterior"])
    assert again.json()["id"] != job["id"]
