"""Deadlines and priorities over HTTP without workers, so that jobs stay queued."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import in_turn
from tests.service.conftest import upload
from tests.service.submission.conftest import CREATING, POST_1
from worker.jobs.rq_types import BATCH, INTERACTIVE, QUEUES

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores


def test_every_job_may_have_a_deadline(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The deadline is reported, and each job fails at its end: 504 with the remedy."""
    dataset = stores.posteriors.fetch("post_1").dataset

    def post(kind: str, query: str = "") -> httpx.Response:
        path, body = CREATING[kind]
        payload = body if path.startswith(POST_1) else {**body, "dataset": dataset}
        return client.post(path + query, json=payload)

    with ThreadPoolExecutor(len(CREATING)) as threads:
        answers = list(threads.map(lambda kind: post(kind, "?deadline=0.3&wait=60"), CREATING))
    jobs = {job["kind"]: job for job in client.get("/v1/jobs").json()["items"]}
    assert jobs.keys() == CREATING.keys()
    for kind, answer in zip(CREATING, answers, strict=True):
        assert (answer.status_code, answer.json()["type"]) == (504, "urn:glle:problem:deadline-exceeded"), kind
        assert "deadline" in answer.json()["remedy"]
        assert jobs[kind]["status"] == "failed"
        assert jobs[kind]["deadline"] == answer.json()["details"]["deadline"]
        assert client.get(jobs[kind]["links"]["self"] + "/result").status_code == 504
    tasks = {task.partition("-")[0] for task in in_turn(stores)}  # of a deadline that passed while it was enqueued
    assert not any(stores.jobs.fetch(job).is_open for job in tasks)
    for kind, job in jobs.items():
        again = post(kind)
        assert (again.status_code, again.json()["deadline"]) == (202, None)
        assert again.json()["id"] != job["id"]


def test_a_shared_job_has_the_latest_deadline(client: httpx.Client, posterior: str) -> None:
    """A job of two requests has the later deadline, or none."""
    path = posterior + "/draws"
    first = client.post(path + "?deadline=1000", json={"count": 8}).json()
    later = client.post(path + "?deadline=2000", json={"count": 8}).json()
    sooner = client.post(path + "?deadline=10", json={"count": 8}).json()
    assert first["id"] == later["id"] == sooner["id"]
    assert first["deadline"] < later["deadline"] == sooner["deadline"]
    assert client.post(path, json={"count": 8}).json()["deadline"] is None


@pytest.mark.parametrize("deadline", ["0", "-1", "nan", "inf", "1e99", "soon"])
def test_bad_deadlines_are_refused(client: httpx.Client, posterior: str, deadline: str) -> None:
    """A deadline is a positive number of seconds, at most a year."""
    answer = client.post(posterior + "/draws", params={"deadline": deadline}, json={"count": 8})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:invalid-request")


def test_interactive_jobs_precede_batches(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Single draws and small interactive requests precede batches."""
    batch = client.post(posterior + "/draws", json={"count": 8}).json()
    single = client.get(posterior + "/draws/5?wait=0").json()
    few = client.post(posterior + "/draws", json={"count": 8, "seed": 1, "priority": "interactive"}).json()
    small = client.post("/v1/posteriors", json={"dataset": batch["dataset"] or upload(client)}).json()
    calibrated = client.get(posterior + "/draws/5?wait=0&scale=auto").json()
    summary = client.get(posterior + "/summary?wait=0&scale=1").json()
    auto = client.get(posterior + "/summary?wait=0&scale=auto").json()
    jobs = (single, few, small, summary, batch, calibrated, auto)
    assert [job["priority"] for job in jobs] == [*["interactive"] * 4, *["batch"] * 3]
    queues = [stores.jobs.fetch(job["id"]).queue for job in jobs]
    assert queues == [*[INTERACTIVE] * 4, *[BATCH] * 3] == sorted(queues, key=QUEUES.index)


def test_priority_does_not_change_the_draws(client: httpx.Client, posterior: str) -> None:
    """An interactive request for the same draws shares the job of the batch."""
    first = client.post(posterior + "/draws", json={"count": 8}).json()
    second = client.post(posterior + "/draws", json={"count": 8, "priority": "interactive"}).json()
    assert (second["id"], second["priority"]) == (first["id"], "interactive")


@pytest.mark.parametrize("body", [{"count": 800}, {"count": 8, "scale": "auto"}])
def test_a_long_job_is_not_interactive(
    client: httpx.Client, stores: Stores, posterior: str, body: dict[str, Any]
) -> None:
    """Draws that would delay other jobs cannot be interactive."""
    record = stores.posteriors.fetch("post_1")
    stores.client.delete("glle:posterior:post_1")
    stores.posteriors.record(replace(record, draw_cost={**record.draw_cost, "each_seconds": 0.004}))
    answer = client.post(posterior + "/draws", json={**body, "priority": "interactive"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:not-interactive")
    assert in_turn(stores) == []
