"""What an API process accepts as HTTP."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import h11
import httpx
import pytest

from service.server.http_protocol import (
    EVENTS_PER_ITERATION,
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    MAX_SMALL_CHUNKS,
    BoundedConnection,
)
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
    """Bytes that are no HTTP, ambiguous lengths, and a missing or repeated Host are 400."""
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        UPLOAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ):
        assert exchange(port, sent).startswith(b"HTTP/1.1 400 "), sent


def problem_of(received: bytes) -> tuple[int, str]:
    """Return status and type of a refusal that closes its connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head.lower()
    assert b"\r\ncontent-type: application/problem+json" in head.lower()
    assert json.loads(body)["remedy"]
    return int(head.split()[1]), json.loads(body)["type"].removeprefix("urn:glle:problem:")


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    "long",
    [b"X-Long: " + b"x" * MAX_HEAD_BYTES, b"a:\r\n" * MAX_HEAD_LINES, b"a:\r\n" * 15_000],
    ids=["bytes", "lines", "many"],
)
def test_long_heads_are_431(port: int, long: bytes, *, is_whole: bool) -> None:
    """Heads with too many bytes or lines are 431, whether they end or not."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + long
    assert problem_of(exchange(port, head + b"\r\n\r\n" * is_whole)) == (431, "head-too-long")


def test_a_long_upload_is_no_head(port: int) -> None:
    """Neither the bytes nor the lines of a body count."""
    rows, headers = b"1,2\n" * MAX_HEAD_BYTES, {"Content-Type": "text/csv"}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=rows, headers=headers, timeout=30)
    assert answer.status_code == 201


def test_tiny_chunks_are_refused(port: int) -> None:
    """A body of one byte in each chunk ends soon; its connection closes while the client is still sending."""
    sent = UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n1\r\n" * (MAX_SMALL_CHUNKS + 10_000)
    assert problem_of(exchange(port, sent)) == (413, "chunks-too-small")


def test_many_chunks_are_one_body(port: int) -> None:
    """Chunks that are parsed in many iterations of the event loop are one body, also thousands of tiny chunks."""
    rows = [b"%d,%d\n" % (number, number % 7) for number in range(MAX_SMALL_CHUNKS - 1)]
    long = [b"".join(rows[start : start + 10]) for start in range(0, len(rows), 10)]
    answers = [
        httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=iter(body), headers={"Content-Type": "text/csv"})
        for body in (rows, long, [b"".join(rows)])
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert len({answer.json()["sha256"] for answer in answers}) == 1


def test_a_connection_parses_a_few_chunks_at_a_turn() -> None:
    """A connection parses a few chunks per iteration of the event loop, however many bytes have arrived."""
    connection = BoundedConnection(h11.SERVER)
    connection.receive_data(UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n1\r\n" * 1000)
    counts: list[int] = []
    while connection.events_left < EVENTS_PER_ITERATION or not counts:
        connection.events_left = EVENTS_PER_ITERATION
        while connection.next_event() not in (h11.PAUSED, h11.NEED_DATA):  # requests have no hash
            pass
        counts.append(EVENTS_PER_ITERATION - connection.events_left)
    assert set(counts[:-2]) == {EVENTS_PER_ITERATION}
    assert sum(counts) == 1001  # the head, and the chunks


REFUSED = b"POST /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"


@pytest.mark.parametrize(
    "how",
    [
        b"Transfer-Encoding: chunked\r\n\r\n" + b"fff\r\n" + b"x" * 4095,
        b"Content-Length: 1000000000\r\n\r\n" + b"x" * 4096,
        b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
    ],
    ids=["chunks", "long", "waits for 100"],
)
def test_a_refusal_with_an_unread_body_closes_the_connection(port: int, how: bytes) -> None:
    """The client reads the refusal and then the end, although it has announced more and is still sending."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(REFUSED + how)
        received = b""
        while piece := sock.recv(2**16):
            received += piece
            sock.sendall(b"x" * 2**16)
    assert problem_of(received) == (404, "no-such-route")


def test_a_refused_short_body_keeps_the_connection(port: int) -> None:
    """The rest of a short body is read, and the next request is served on the same connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock, sock.makefile("rb") as answers:
        sock.sendall(REFUSED + b"Content-Length: 100\r\n\r\n")
        assert b" 404 " in answers.readline()
        lines = dict(line.split(b": ", 1) for line in iter(answers.readline, b"\r\n"))
        answers.read(int(lines[b"content-length"]))
        sock.sendall(b"x" * 100 + b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in answers.readline()


def test_trailers_are_ignored(port: int) -> None:
    """Trailers are not added to the headers, which have been checked before the trailers arrive."""
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
