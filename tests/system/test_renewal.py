"""SIGHUP: every process of the tree is a new one, and nobody notices."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.conftest import until
from tests.system.conftest import ended, fitted, synthetic
from worker.execution import process_guard

if TYPE_CHECKING:
    from tests.system.conftest import Up

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(300),  # six processes start, one after the other
    pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc"),
]


def test_a_renewal_fails_no_request(up: Up, client: httpx.Client) -> None:
    """While API and workers are replaced every request has a good answer, and a job that is at work ends well."""
    posterior = fitted(client, synthetic(client, 500, seed=30))
    servers, before = up.children("valkey-server"), up.children(" serve ") + up.children(" worker ")
    job = client.post(posterior + "/draws", json={"count": 2000, "seed": 30}).json()
    over, statuses, failed = threading.Event(), [], []

    def ask(*, kept: bool) -> None:
        with httpx.Client(base_url=up.url, timeout=30) as mine:
            while not over.wait(0.01):
                try:
                    answer = mine.get("/v1/jobs?limit=1") if kept else httpx.get(up.url + "/livez", timeout=30)
                    statuses.append(answer.status_code)
                except httpx.TransportError as error:
                    failed.append(repr(error))

    askers = [threading.Thread(target=ask, kwargs={"kept": kept}) for kept in (True, False)]
    for asker in askers:
        asker.start()
    up.process.send_signal(signal.SIGHUP)
    until(lambda: "Every process is a new one." in up.log.read_text(), 200)
    over.set()
    for asker in askers:
        asker.join()
    assert failed == []
    assert set(statuses) == {200}
    after = up.children(" serve ") + up.children(" worker ")
    assert len(after) == len(before)
    assert not set(after) & set(before)
    assert up.children("valkey-server") == servers
    with httpx.Client(base_url=up.url, timeout=60) as fresh:
        assert ended(fresh, job["id"])["status"] == "succeeded"
