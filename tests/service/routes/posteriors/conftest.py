"""A fitted posterior over HTTP, and the tasks of its jobs run in the test process, without workers."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import manifolds
from tests.service.conftest import upload
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

N = 60
SHEET = manifolds.make("s_curve", N, seed=2).X
JSON = {"content-type": "application/json"}
NPY = {"accept": "application/x-npy"}
NPZ = {"accept": "application/zip"}


@pytest.fixture
def posterior(client: httpx.Client) -> str:
    """The path of a fitted posterior."""
    return fit_posterior(client)


def post_fit(client: httpx.Client, X: Any = SHEET, **spec: Any) -> httpx.Response:
    """Upload data, and neighbors that are an array, and post the fit."""
    if isinstance(spec.get("neighbors"), np.ndarray):
        spec["neighbors"] = upload(client, spec["neighbors"])
    return client.post("/v1/posteriors", json={"dataset": upload(client, X), **spec})


def fit_posterior(client: httpx.Client, X: Any = SHEET, **spec: Any) -> str:
    """Fit a posterior and return its path."""
    job = post_fit(client, X, **spec).json()
    tasks.fit(job["id"])
    path = job["links"]["posterior"]
    assert client.get(path).status_code == 200
    assert isinstance(path, str)
    return path


def finish(stores: Stores, id_: str) -> None:
    """Run the tasks of a job."""
    record = stores.jobs.fetch(id_)
    for shard in range(0 if record.sharding is None else record.sharding.shards):
        tasks.draw(id_, shard)
    if record.kind != "draws":
        (tasks.fit if record.kind == "fit" else tasks.analyze)(id_)


def result_of(stores: Stores, answer: httpx.Response) -> str:
    """Run the job of a 202, and return the path of its result."""
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["location"] == job["links"]["self"]
    finish(stores, job["id"])
    assert stores.jobs.fetch(job["id"]).status == "succeeded", stores.jobs.fetch(job["id"]).error
    return str(job["links"]["self"]) + "/result"


def members(content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an npz file."""
    with np.load(io.BytesIO(content)) as loaded:
        return {name: loaded[name] for name in loaded.files}


def npz(answer: httpx.Response) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an npz response."""
    assert answer.status_code == 200, answer.text
    return members(answer.content)
