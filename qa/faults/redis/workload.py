"""A sample of every operation of the service, so that every Redis command occurs."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from service.cli.main import main
from tests.conftest import until
from tests.system.conftest import ended, fitted, synthetic

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.system.conftest import Up


def _is_at_work(client: httpx.Client, job: str) -> bool:
    return bool(client.get(job).json()["status"] != "queued")


def everything(client: httpx.Client) -> None:
    """Request each kind of work and resource once; every answer must be a success."""
    for path in ("/readyz", "/metrics", "/v1/info", "/v1/methods"):
        assert client.get(path).status_code == 200, path
    dataset = synthetic(client, 300, seed=21)
    posterior = fitted(client, dataset)
    assert client.patch(posterior, json={"name": "mine", "tags": ["a"]}).status_code == 200
    headers = {"idempotency-key": "once"}
    for _ in range(2):
        answer = client.post(posterior + "/draws?wait=60", json={"count": 40, "seed": 1}, headers=headers)
        assert answer.status_code == 200, answer.text
    for path in (
        "/draws/3?wait=60",
        "/summary?count=20&scale=1&wait=60",
        "/arrays?name=embedding",
        "/draws/3?scale=auto&wait=60",
    ):
        answer = client.get(posterior + path)
        assert answer.status_code == 200, (path, answer.text)
    large = fitted(client, synthetic(client, 30_000, seed=3))  # of many pieces
    assert client.get(large + "/arrays?name=embedding").status_code == 200
    body = {"dataset": dataset, "method": "lle"}
    answer = client.post("/v1/embeddings?wait=60", json=body)
    assert answer.status_code in {200, 201}, answer.text
    fit = {"dataset": synthetic(client, 20_000, seed=5), "n_neighbors": 20}
    for wait_for in ("queued", "running"):
        job = client.post("/v1/posteriors", json={**fit, "n_components": 2 + (wait_for == "running")}).json()
        if wait_for == "running":
            until(partial(_is_at_work, client, job["links"]["self"]))
        assert client.delete(job["links"]["self"]).status_code in {200, 202}
        assert ended(client, job["id"])["status"] in {"cancelled", "succeeded"}
    late = client.post(posterior + "/draws?deadline=0.001", json={"count": 500, "seed": 2}).json()
    assert "details" in late or ended(client, late["id"])["status"] == "failed"
    job = client.post(posterior + "/draws", json={"count": 100, "seed": 3}).json()
    with client.stream("GET", job["links"]["events"]) as events:
        assert "event: end" in list(events.iter_lines())
    for listing in ("/v1/jobs", "/v1/posteriors", "/v1/datasets"):
        assert client.get(listing).json()["items"]
    assert client.delete(f"/v1/datasets/{dataset}?force=true").status_code in {200, 204}


def worker_killed(up: Up, client: httpx.Client) -> None:
    """Kill a worker in the middle of a job; other workers finish it."""
    posterior = fitted(client, synthetic(client, 1000, seed=6))
    job = client.post(posterior + "/draws", json={"count": 400, "seed": 6}).json()
    until(partial(_is_at_work, client, job["links"]["self"]))
    os.kill(up.workers()[0], signal.SIGKILL)
    assert ended(client, job["id"])["status"] == "succeeded"


def commands(folder: Path) -> None:
    """Run an operator's commands against the configured servers; each must succeed."""
    file, data = str(folder / "backup.tar"), ("--data-dir", str(folder / "data"))
    for command in (
        ("backup", file, "--keys", *data),
        ("restore", file, "--keys", *data),
        ("store", "show", *data),
        ("store", "sweep", "--age-hours", "0", *data),
        ("doctor", *data),
    ):
        assert main(command) == 0, command
