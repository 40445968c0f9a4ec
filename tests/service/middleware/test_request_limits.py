"""Limit on the requests in progress of one API process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from service.app import create_app
from service.middleware import request_limits
from service.middleware.request_limits import RequestLimits
from tests.conftest import until
from tests.service.conftest import serving
from tests.service.tenants import served

if TYPE_CHECKING:
    from starlette.types import Message

    from worker.stores import Stores


def test_a_request_beyond_the_limit_is_refused_early(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """While requests wait for a job, one more is 503 with the remedy; probes and later requests pass."""
    job, _ = stores.of("default").jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    monkeypatch.setattr(request_limits, "MAX_REQUESTS", 2)
    with served(stores) as client, ThreadPoolExecutor(2) as pool:
        url = f"{client.base_url}/v1/jobs/{job.id}?wait=30"

        def wait() -> int:
            """Return the status of a wait; one that comes during a poll is refused and sent again."""
            while (status := httpx.get(url, timeout=60).status_code) == 503:
                pass
            return status

        waits = [pool.submit(wait) for _ in range(2)]
        until(lambda: client.get("/v1/info").status_code == 503)
        refused = client.get("/v1/info")
        assert refused.json()["type"] == "urn:glle:problem:too-many-requests"
        assert "GLLE_API_PROCESSES" in refused.json()["remedy"]
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/livez").status_code == 200
        stores.jobs.cancel(job.id)
        assert [each.result() for each in waits] == [200, 200]
        until(lambda: client.get("/v1/info").status_code == 200)


def test_a_failed_request_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception or a disconnect of a request does not reduce the limit."""

    async def failing(*_: object) -> None:
        raise ZeroDivisionError

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pytest.fail("nothing is refused")

    monkeypatch.setattr(request_limits, "MAX_REQUESTS", 1)
    limited = RequestLimits()

    async def ask() -> None:
        for _ in range(3):
            scope = {"type": "http", "path": "/v1/info", "query_string": b"", "headers": []}
            with pytest.raises(ZeroDivisionError):
                await limited.serve(failing, scope, receive, send)

    anyio.run(ask)


def test_livez_answers_while_every_thread_is_busy(stores: Stores) -> None:
    """The event loop answers the probe, although the thread pool has no free thread."""
    free, entered = threading.Event(), threading.Semaphore(0)
    app = create_app(stores)

    @app.get("/blocked")
    def blocked() -> None:
        entered.release()
        free.wait(60)

    with serving(app) as client, ThreadPoolExecutor(60) as pool:
        requests = [pool.submit(client.get, "/blocked", timeout=60) for _ in range(60)]
        try:
            assert entered.acquire(timeout=30)
            running = 1
            while entered.acquire(timeout=1):
                running += 1
            assert running < 60, "every thread is busy, and requests wait for one"
            assert client.get("/livez").status_code == 200
            assert not entered.acquire(blocking=False)
        finally:
            free.set()
        assert {request.result().status_code for request in requests} == {200}
