"""Priority and cancellation of jobs on real workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.conftest import until
from tests.system.arrays import UPLOAD, to_npy
from tests.system.conftest import fit_posterior, synthetic, wait_for_end

if TYPE_CHECKING:
    import httpx


@pytest.fixture(scope="module")
def posterior(client: httpx.Client) -> str:
    """Return the path of a posterior whose draws take milliseconds each."""
    return fit_posterior(client, synthetic(client, 2000, seed=20))


def test_a_draw_does_not_wait_for_a_batch(client: httpx.Client, posterior: str) -> None:
    """Single draws are answered while both workers draw batches."""
    jobs = [client.post(posterior + "/draws", json={"n_draws": 5000, "seed": seed}).json() for seed in (22, 23)]
    until(lambda: all(client.get(job["links"]["self"]).json()["progress"]["done"] for job in jobs))
    for index in range(3):
        assert client.get(posterior + f"/draws/{100 * index}?seed=24&wait=30").status_code == 200
    assert all(client.get(job["links"]["self"]).json()["status"] == "running" for job in jobs)
    for job in jobs:
        client.delete(job["links"]["self"])
        assert wait_for_end(client, job["id"])["status"] == "cancelled"


def test_cancel_ends_a_fit_inside_one_long_call(client: httpx.Client) -> None:
    """A factorization of one minute, in one call, is cancelled before its end."""
    X = np.random.default_rng(0).normal(size=(5000, 100))
    uploaded = client.post("/v1/datasets", content=to_npy(X), headers=UPLOAD)
    job = client.post("/v1/posteriors", json={"dataset": uploaded.json()["id"]}).json()
    path = job["links"]["self"]
    until(lambda: client.get(path).json()["progress"]["stage"] == "embedding")
    time.sleep(0.5)
    assert client.delete(path).json()["status"] in {"cancelling", "cancelled"}, "it may wait as a batch"
    assert client.get(path + "?wait=30").json()["status"] == "cancelled"
