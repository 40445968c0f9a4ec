"""What an API process accepts as HTTP."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from service.server.uvicorn_server import HEAD_BYTES
from tests.service.server.conftest import serving_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.stores import Stores

UPLOAD = b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"


@pytest.fixture
def port(stores: Stores) -> Iterator[int]:
    """The port of an API process."""
    with serving_process(stores, drain=0.0) as (_, client, _):
        yield client.base_url.port or 80


def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes; return what the service sends until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(sent)
        while piece := sock.recv(2**16):
            received += piece
    return received


def test_malformed_http_is_400(port: int) -> None:
    """Bytes that are no HTTP, ambiguous lengths, a Host that is missing or given twice."""
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        UPLOAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ):
        assert exchange(port, sent).startswith(b"HTTP/1.1 400 "), sent


def test_long_heads_are_refused(port: int) -> None:
    """One beyond the limit is 400; a long upload is not a head."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: "
    assert exchange(port, head + b"x" * HEAD_BYTES).startswith(b"HTTP/1.1 400 ")
    rows, headers = b"1,2\n" * HEAD_BYTES, {"Content-Type": "text/csv"}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=rows, headers=headers, timeout=30)
    assert answer.status_code == 201


def test_trailers_are_ignored(port: int) -> None:
    """They arrive after the headers were checked, so a header in them would be an unchecked one."""
    chunked = UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n8\r\n1,2\n3,4\n\r\n0\r\nX-Request-Id: trailer\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(chunked)
        head = sock.recv(2**16)
    assert b" 201 " in head
    assert b"x-request-id: trailer" not in head.lower()


def test_upgrades_are_declined(port: int) -> None:
    """An offer of HTTP/2 is answered in HTTP/1.1, with and without a body; the connection stays open."""
    offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        for request, status in (
            (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n", b" 200 "),
            (UPLOAD + offer + b"Content-Length: 8\r\n\r\n1,2\n3,6\n", b" 201 "),
            (UPLOAD + offer + b"Transfer-Encoding: chunked\r\n\r\n8\r\n1,2\n3,5\n\r\n0\r\n\r\n", b" 201 "),
            (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 200 "),
        ):
            sock.sendall(request)
            with sock.makefile("rb") as answer:
                assert status in answer.readline()
                lines = dict(line.split(b": ", 1) for line in iter(answer.readline, b"\r\n"))
                answer.read(int(lines[b"content-length"]))
