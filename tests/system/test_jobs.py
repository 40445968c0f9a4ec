"""Jobs as a client follows and stops them, with real workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import until
from tests.system.conftest import synthetic
from worker import lifeline

if TYPE_CHECKING:
    import httpx

    from tests.system.conftest import Up


def horses(up: Up) -> list[int]:
    """Return the pids of the work-horses, which are children of the workers."""
    return [
        int(text)
        for worker in up.children("worker")
        for text in Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    ]


@pytest.mark.skipif(not lifeline.LINUX, reason="reads /proc")
def test_cancel_ends_deaf_work_within_two_seconds(up: Up, client: httpx.Client) -> None:
    """A fit whose process hears nothing is cancelled in time; it leaves no posterior, and the workers stay."""
    workers = up.children("worker")
    job = client.post("/v1/posteriors", json={"dataset": synthetic(client, 40_000, seed=21)}).json()
    path = job["links"]["self"]
    until(lambda: client.get(path).json()["progress"]["stage"] == "neighbors")
    (horse,) = horses(up)
    os.kill(horse, signal.SIGSTOP)
    started = time.monotonic()
    assert client.delete(path).json()["status"] == "cancelling"
    assert client.get(path + "?wait=10").json()["status"] == "cancelled"
    assert time.monotonic() - started < 2
    assert client.get(job["links"]["posterior"]).status_code == 409
    until(lambda: not horses(up), 5)
    assert up.children("worker") == workers
    again = client.post("/v1/posteriors?wait=30", json={"dataset": synthetic(client, 400, seed=21)})
    assert again.status_code == 201
