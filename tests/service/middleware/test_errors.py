"""Unexpected errors and the limit on requests: problem+json on a connection that stays open."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import StreamingResponse

from service.app import create_app
from tests.conftest import stored_files, until
from tests.service.conftest import serving
from tests.service.tenants import serve_stores
from worker.records import shares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from worker.stores import Stores


LAB = "https://lab.example.org"


@pytest.fixture(autouse=True)
def _bug(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the list of jobs."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("the password is x")

    monkeypatch.setattr(type(stores.jobs), "iterate", fail)


def test_unexpected_error_shows_no_secrets(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    """The 500 has no message of the exception; the log has it once, under the response's id."""
    answer = client.get("/v1/jobs", headers={"x-request-id": "abc"})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:glle:problem:internal-error")
    assert "password" not in answer.text
    assert (answer.headers["x-request-id"], answer.headers["x-content-type-options"]) == ("abc", "nosniff")
    assert [record.name for record in caplog.records if record.exc_info] == ["service.schemas.problems"]


def test_the_connection_goes_on(client: httpx.Client) -> None:
    """Later requests on the same connection succeed."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port or 80, timeout=10)
    for path, status in [("/v1/jobs", 500), ("/livez", 200), ("/v1/jobs", 500), ("/livez", 200)]:
        connection.request("GET", path)
        sock = connection.sock
        answer = connection.getresponse()
        assert (answer.status, bool(json.loads(answer.read()))) == (status, True)
        assert connection.sock is sock  # not closed, and no other one
    connection.close()


def test_pages_of_allowed_origins_read_the_problem(stores: Stores) -> None:
    """A page of an allowed origin can read the problem."""
    with serve_stores(stores, cors_origins=LAB) as client:
        answer = client.get("/v1/jobs", headers={"origin": LAB})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (500, LAB)


def test_a_started_response_is_aborted(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes the connection, so that the client sees an incomplete response; its place is free again."""
    monkeypatch.setattr(stores.shares.requests, "total", 1)

    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    app = create_app(stores)
    app.add_api_route("/half", lambda: StreamingResponse(half()))
    with serving(app) as client:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                client.get("/half")


def test_a_disconnect_during_an_upload_is_no_error(
    app: FastAPI, client: httpx.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that disconnects while it uploads is counted as 499; no error is logged, and no file is left."""
    monkeypatch.setattr(app.state.metrics, "drain", lambda: ({}, 0))  # a flush leaves the counts

    def counted() -> list[tuple[str, str, int]]:
        return [key for key in tuple(app.state.metrics._responses) if key[1] == "/v1/datasets"]

    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=10) as sock:
        head = b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: 99\r\n\r\n"
        sock.sendall(head + b"x,y\n1,2\n")
    until(counted)
    assert counted() == [("POST", "/v1/datasets", 499)]
    assert [record for record in caplog.records if record.exc_info] == []
    assert stored_files(app.state.stores) == []


def test_a_request_beyond_the_limit_is_refused_early(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """While requests wait for a job, one more is 503 with the remedy; probes and later requests pass."""
    job, _ = stores.for_tenant("default").jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    monkeypatch.setattr(shares, "MAX_REQUESTS", 2)
    with serve_stores(stores) as client, ThreadPoolExecutor(2) as pool:
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


def test_livez_answers_while_every_thread_is_busy(stores: Stores) -> None:
    """The event loop answers the probe, although the thread pool has no free thread."""
    free, entered = threading.Event(), threading.Semaphore(0)
    app = create_app(stores)

    @app.get("/blocked")
    def block() -> None:
        entered.release()
        free.wait(60)

    with serving(app) as client, ThreadPoolExecutor(60) as pool:
        requests = [pool.submit(client.get, "/blocked", timeout=60) for _ in range(60)]
        try:
            for _ in range(40):  # threads of the pool; the other requests wait for one
                assert entered.acquire(timeout=30)
            assert client.get("/livez").status_code == 200
            assert not entered.acquire(blocking=False)
        finally:
            free.set()
        assert {request.result().status_code for request in requests} == {200}
