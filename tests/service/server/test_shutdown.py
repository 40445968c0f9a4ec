"""Listening and graceful shutdown of an API process."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import FastAPI

from service.cli.main import listen
from service.server.listening import ACCEPTED, BACKLOG
from service.server.uvicorn_server import ApiServer
from tests.conftest import until
from tests.service.server.conftest import serving_process
from worker.base.settings import Settings
from worker.execution import process_guard

if TYPE_CHECKING:
    from worker.stores import Stores


def test_draining_answers_everything_and_is_not_ready(stores: Stores) -> None:
    """After the signal /readyz is 503 and other responses close their connection; then the server exits."""
    with serving_process(stores, drain=0.6) as (server, client, thread):
        assert "connection" not in client.get("/livez").headers
        server.handle_exit(15, None)
        until(lambda: client.get("/readyz").json().get("type") == "urn:glle:problem:draining")
        refused = client.get("/readyz")
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        answer = client.get("/v1/info")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        thread.join(30)
        assert not thread.is_alive()
        try:
            client.get("/livez")
        except httpx.ConnectError:
            return
    raise AssertionError("a process that has stopped answers")


def test_waiting_requests_return_the_current_job(stores: Stores) -> None:
    """A long poll ends with the job's state before its timeout."""
    job = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)[0].id  # without a worker
    results: dict[str, object] = {}
    with serving_process(stores, drain=0.0) as (server, client, thread):

        def poll() -> None:
            results["poll"] = client.get(f"/v1/jobs/{job}?wait=60")

        polling = threading.Thread(target=poll)
        polling.start()
        until(lambda: len(server.server_state.tasks) == 1)
        server.handle_exit(15, None)
        for each in (polling, thread):
            each.join(30)
            assert not each.is_alive()
    answer = results["poll"]
    assert isinstance(answer, httpx.Response)
    assert (answer.status_code, answer.json()["status"], answer.headers["connection"]) == (200, "queued", "close")


def test_a_connection_before_the_shutdown_is_served(stores: Stores) -> None:
    """A connection accepted before the shutdown is served."""
    with serving_process(stores, drain=0.0) as (server, client, _):
        client.get("/livez")  # the connection stays open
        server.handle_exit(15, None)
        until(lambda: not server.servers[0].is_serving())
        assert client.get("/livez").headers["connection"] == "close"


pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads TCP_INFO")


def places(sock: socket.socket) -> int:
    """Return the length of the queue of a listening socket: tcpi_sacked of TCP_INFO."""
    return int(struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)[0])


def test_a_process_accepts_one_connection_a_turn_from_a_long_queue() -> None:
    """Accepting one connection per iteration of the event loop does not shorten the backlog of the socket."""
    expected = min(BACKLOG, int(Path("/proc/sys/net/core/somaxconn").read_text()))

    async def serve(sock: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=sock, backlog=ACCEPTED)
        assert places(sock) == expected
        server.close()

    with listen("127.0.0.1", 0) as sock:
        asyncio.run(serve(sock))


def test_the_event_loop_is_asyncios_beside_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """If uvloop is installed, the server still uses asyncio's loop, because uvloop would shorten the backlog."""
    monkeypatch.setitem(sys.modules, "uvloop", ModuleType("uvloop"))
    server = ApiServer(FastAPI(), Settings())
    assert server.config.get_loop_factory() is asyncio.SelectorEventLoop
