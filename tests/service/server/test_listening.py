"""The listening socket that API processes share."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fastapi import FastAPI

from service.cli.main import listen
from service.server.listening import ACCEPTED, BACKLOG
from service.server.uvicorn_server import ApiServer
from worker.base.settings import Settings
from worker.execution import process_guard

pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="reads TCP_INFO")


def places(sock: socket.socket) -> int:
    """Return the length of the queue of a listening socket: tcpi_sacked of TCP_INFO."""
    return int(struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)[0])


def test_a_process_accepts_one_connection_a_turn_from_a_long_queue() -> None:
    """A server that accepts one connection at each turn does not shorten the queue of the socket."""
    expected = min(BACKLOG, int(Path("/proc/sys/net/core/somaxconn").read_text()))

    async def serve(sock: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=sock, backlog=ACCEPTED)
        assert places(sock) == expected
        server.close()

    with listen("127.0.0.1", 0) as sock:
        asyncio.run(serve(sock))


def test_the_event_loop_is_asyncios_beside_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With uvloop the queue has the connections of a turn, and a burst of clients is reset."""
    monkeypatch.setitem(sys.modules, "uvloop", ModuleType("uvloop"))
    server = ApiServer(FastAPI(), Settings())
    assert server.config.get_loop_factory() is asyncio.SelectorEventLoop
