"""Kills and restarts of single processes of the tree."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.conftest import until
from tests.system.conftest import command_line, ended, fitted, synthetic
from worker.execution import process_guard

if TYPE_CHECKING:
    from tests.system.conftest import Up

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")


def test_killed_worker_costs_only_time(up: Up, client: httpx.Client) -> None:
    """After kill -9 of a worker during a fit, the job succeeds and two workers run again."""
    job = client.post("/v1/posteriors", json={"dataset": synthetic(client, 20_000, seed=9)}).json()
    until(lambda: client.get(job["links"]["self"]).json()["progress"]["stage"] in {"weights", "embedding"})
    (busy,) = [pid for pid in up.workers() if up.horses(pid)]
    os.kill(busy, signal.SIGKILL)
    assert ended(client, job["id"])["status"] == "succeeded"
    until(lambda: len(up.workers()) == 2)
    assert busy not in up.workers()


def test_each_api_process_answers_and_is_replaced_alone(up: Up, client: httpx.Client) -> None:
    """Each of two API processes answers while the other is stopped; after kill -9 of one, two answer again."""
    posterior = fitted(client, synthetic(client, 200, seed=3))
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


def test_a_killed_worker_is_replaced_alone(up: Up, client: httpx.Client) -> None:
    """The others go on. Its head holds no connection, which forked processes would share."""
    until(lambda: len(up.apis()) == len(up.workers()) == 2)  # those that the tests before killed are back
    until(lambda: client.get("/readyz").json().get("workers", 0) >= 2)
    head = up.process.pid
    inodes = {path.readlink().name for path in Path(f"/proc/{head}/fd").iterdir()}
    lines = [line.split() for line in Path(f"/proc/{head}/net/tcp").read_text().splitlines()[1:]]
    connected = "01"  # TCP_ESTABLISHED
    assert not inodes & {f"socket:[{line[9]}]" for line in lines if line[3] == connected}
    others = {*up.apis(), *up.workers()}
    killed = up.workers()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(up.workers()) == 2 and killed not in up.workers())
    until(lambda: others - {killed} < {*up.apis(), *up.workers()})
    until(lambda: client.get("/readyz").json().get("workers", 0) >= 2)
    assert client.get(fitted(client, synthetic(client, 100, seed=4)) + "/draws/0?wait=30").status_code == 200


def test_killed_api_and_servers_come_back(up: Up, client: httpx.Client) -> None:
    """After kill -9 of all API processes and of the queue server, the same address serves the same records."""
    posterior = fitted(client, synthetic(client, 200, seed=3))
    killed = up.apis()
    for api in killed:
        os.kill(api, signal.SIGKILL)
    until(lambda: up.apis() and not set(killed) & set(up.apis()))
    with httpx.Client(base_url=up.url, timeout=60) as fresh:
        assert fresh.get(posterior).status_code == 200
        time.sleep(1.1)  # appendfsync everysec: writes older than one second are on disk
        server = up.children("valkey-server")[0]
        os.kill(server, signal.SIGKILL)
        until(lambda: len(up.children("valkey-server")) == 2 and server not in up.children("valkey-server"))
        until(lambda: fresh.get("/readyz").status_code == 200)
        assert fresh.get(posterior).status_code == 200
        assert fresh.get(posterior + "/draws/0?seed=123&wait=30").status_code == 200
