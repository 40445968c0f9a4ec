"""Kills, stops and restarts of processes of the tree, and of a whole service."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from service.cli import main
from tests.conftest import until
from tests.processes import command_line
from tests.system.conftest import ONE_EACH, fit_posterior, running, synthetic, wait_for_end
from worker.execution import process_guard

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import Up

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def test_each_api_process_answers_and_is_replaced_alone(up: Up, client: httpx.Client) -> None:
    """Each of two API processes answers while the other is stopped; after kill -9 of one, two answer again."""
    posterior = fit_posterior(client, synthetic(client, 200, seed=3))
    new = httpx.Client(base_url=up.url, headers={"Connection": "close"}, timeout=30)  # a connection for each request

    def answers_alone(answering: int) -> bool:
        """Return whether a process answers a new connection while all others are stopped."""
        others = [pid for pid in up.apis() if pid != answering]
        try:
            for pid in others:
                os.kill(pid, signal.SIGSTOP)
            return new.get(posterior).status_code == 200
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    until(lambda: len(up.apis()) == 2)
    first, second = up.apis()
    assert answers_alone(first)
    assert answers_alone(second)
    os.kill(first, signal.SIGKILL)
    until(lambda: not command_line(first))
    while len(up.apis()) < 2:
        assert new.get(posterior).status_code == 200
    (replacement,) = set(up.apis()) - {second}
    assert replacement != first
    assert answers_alone(replacement)
    new.close()


def test_no_command_line_and_no_log_line_has_a_password(up: Up) -> None:
    """The passwords of the embedded servers, which all processes know, are shown by none."""
    passwords = [str(urlsplit(up.redis_url(name)).password) for name in ("GLLE_REDIS_URL", "GLLE_CACHE_URL")]
    assert all(len(password) >= 32 for password in passwords)
    shown = [up.log.read_text(), *(command_line(pid) for pid in up.tree())]
    assert not any(password in text for password in passwords for text in shown)


@pytest.mark.slow
def test_a_stopped_service_resumes_and_a_killed_head_leaves_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM ends the tree within seconds, and queued work runs after the next start. Kill -9 of its head ends all."""
    with running(tmp_path, **ONE_EACH) as first:
        with httpx.Client(base_url=first.url, timeout=30) as client:
            posterior = fit_posterior(client, synthetic(client, 1000))
            job = client.post(posterior + "/draws", json={"n_draws": 400}).json()
            until(lambda: client.get(job["links"]["self"]).json()["progress"]["done"] > 0)
        tree = first.tree()
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0
        assert not any(command_line(pid) for pid in tree)
    with running(tmp_path, **ONE_EACH) as second:
        with httpx.Client(base_url=second.url, timeout=60) as client:
            assert client.get(posterior).status_code == 200
            final = wait_for_end(client, job["id"])
            assert (final["status"], final["progress"]["done"]) == ("succeeded", 400)
            close_with_a_key(client, tmp_path, capsys)
            assert client.get(posterior).status_code == 404, "of another tenant"
            job = client.post("/v1/posteriors", json={"dataset": synthetic(client, 20_000)}).json()
            until(lambda: client.get(job["links"]["self"]).json()["progress"]["stage"] in {"weights", "embedding"})
        tree = second.tree()
        what = "the head, two servers, an API with its reader, a worker with three children, a work-horse"
        assert len(tree) == 10, what
        second.process.kill()
        until(lambda: not any(command_line(pid) for pid in tree[1:]))


def close_with_a_key(client: httpx.Client, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Create the first key, after which the running service requires keys; give the key to the client."""
    assert client.get("/v1/info").status_code == 200
    words = ["keys", "create", "--tenant", "alice", "--scope", "write", "--data-dir", str(folder / "data")]
    assert main.main(words) == 0
    until(lambda: client.get("/v1/info").status_code == 401, seconds=5)
    client.headers["Authorization"] = f"Bearer {capsys.readouterr().out.strip()}"
    until(lambda: client.get("/v1/info").status_code == 200, seconds=5)
