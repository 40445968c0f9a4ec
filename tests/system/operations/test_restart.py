"""Stops and restarts of a whole service."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.conftest import until
from tests.system.conftest import ONE_EACH, command_line, ended, fitted, glle, running, synthetic
from worker.execution import process_guard

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def test_a_stopped_service_resumes_and_a_killed_head_leaves_no_process(tmp_path: Path) -> None:
    """SIGTERM ends the tree within seconds, and queued work runs after the next start. Kill -9 of its head ends all."""
    with running(tmp_path, **ONE_EACH) as first:
        with httpx.Client(base_url=first.url, timeout=30) as client:
            posterior = fitted(client, synthetic(client, 1000))
            job = client.post(posterior + "/draws", json={"count": 400}).json()
            until(lambda: client.get(job["links"]["self"]).json()["progress"]["done"] > 0)
        tree = first.tree()
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0
        assert not any(command_line(pid) for pid in tree)
    with running(tmp_path, **ONE_EACH) as second:
        with httpx.Client(base_url=second.url, timeout=60) as client:
            assert client.get(posterior).status_code == 200
            final = ended(client, job["id"])
            assert (final["status"], final["progress"]["done"]) == ("succeeded", 400)
            refuse_a_second_head(tmp_path)
            job = client.post("/v1/posteriors", json={"dataset": synthetic(client, 20_000)}).json()
            until(lambda: client.get(job["links"]["self"]).json()["progress"]["stage"] in {"weights", "embedding"})
        tree = second.tree()
        what = "the head, two servers, an API with its reader, a worker with three children, a work-horse"
        assert len(tree) == 10, what
        second.process.kill()
        until(lambda: not any(command_line(pid) for pid in tree[1:]))


def refuse_a_second_head(folder: Path) -> None:
    """Check that a second `glle up` refuses a data folder in use."""
    busy = glle("up", "--port", "0", "--data-dir", str(folder / "data"))
    assert busy.returncode == 2
    assert "Another `glle up`, backup or restore uses" in busy.stderr


@pytest.mark.slow
def test_a_service_whose_workers_cannot_start_ends_with_the_reason(tmp_path: Path) -> None:
    """`glle up` on a machine with other bits than the deployment's names the remedy, and does not wait."""
    settings = {**ONE_EACH, "GLLE_ALLOW_OTHER_BITS": "0123456789abcdef"}
    up = glle("up", "--port", "0", "--data-dir", str(tmp_path / "data"), **settings)
    assert up.returncode == 2
    assert "The worker does not start, because its results would differ in bits" in up.stderr
    assert "A process cannot start. See the message above." in up.stderr
