"""Progress, priority and cancellation of jobs on real workers, and a burst of posts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from qa.load import burst
from tests.conftest import until
from tests.service.responses.events import parse_events
from tests.system.arrays import NPY, UPLOAD, from_npy, to_npy
from tests.system.conftest import MAX_JOBS, fit_posterior, synthetic, wait_for_end
from worker.execution import process_guard

if TYPE_CHECKING:
    import httpx

    from tests.system.conftest import Up


@pytest.fixture(scope="module")
def posterior(client: httpx.Client) -> str:
    """Return the path of a posterior whose draws take milliseconds each."""
    return fit_posterior(client, synthetic(client, 2000, seed=20))


def test_events_of_draws_end_with_the_job(client: httpx.Client, posterior: str) -> None:
    """Progress never decreases, an eta precedes the end, and the last event is the job record."""
    job = client.post(posterior + "/draws", json={"n_draws": 400, "seed": 20}).json()
    with client.stream("GET", job["links"]["events"]) as answer:
        *progress, (number, name, last) = list(parse_events(answer.iter_lines()))
    assert (name, last["status"]) == ("end", "succeeded")
    assert last == client.get(job["links"]["self"]).json()
    numbers = [event[0] for event in progress]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < number
    counts = [event[2]["done"] for event in progress]
    assert counts == sorted(counts)
    assert any(event[2]["eta"] for event in progress)


def test_draws_are_streamed_while_the_job_runs(client: httpx.Client, posterior: str) -> None:
    """The first shard arrives before the end of the job; the whole body equals the result, bit for bit."""
    job = client.post(posterior + "/draws", json={"n_draws": 5000, "seed": 21}).json()
    path = job["links"]["self"] + "/result"
    with client.stream("GET", path + "?partial=true", headers=NPY) as answer:
        raw = answer.iter_raw()
        body = next(raw) + next(raw)
        early = client.get(job["links"]["self"]).json()
        body += b"".join(raw)
    assert early["status"] == "running"
    assert len(body) == int(answer.headers["content-length"])
    assert from_npy(body).shape == (5000, 2000, 2)
    assert wait_for_end(client, job["id"])["status"] == "succeeded"
    assert client.get(path, headers=NPY).content == body


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


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_a_burst_is_refused_with_retry_after_and_loses_nothing(limited_up: Up) -> None:
    """Posts are refused, accepted jobs succeed, memory grows with them alone, and /livez answers throughout."""
    outcome = burst.run(limited_up, posts=60, clients=40)
    assert outcome.faults == []
    assert outcome.answers[429, "quota-exceeded"] > 0
    assert outcome.answers[202, ""] + outcome.answers[201, ""] >= MAX_JOBS
    assert outcome.alive.answered
    until(lambda: not burst.count_unfinished(limited_up, outcome))
