"""Slow requests and idle connections."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from service.cli.main import listen
from service.middleware import request_limits, slow_clients
from service.middleware.slow_clients import HEAD_BYTES, limited_protocol
from tests.conftest import until
from tests.service.conftest import connected_app
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

CSV = {"Content-Type": "text/csv"}
UPLOAD = b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"


@pytest.fixture(scope="module")
def settings(server_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Short timeouts."""
    folder = str(tmp_path_factory.mktemp("slow"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slow_clients, "PATIENCE_SECONDS", 0.4)
        patched.setattr(request_limits, "PATIENCE_SECONDS", 0.4)
        patched.setattr(request_limits, "MIN_SPEED", 1000)
        yield replace(server_settings, data_dir=folder, auth="off")


@contextmanager
def listening(settings: Settings) -> Iterator[int]:
    """Serve as `glle serve` does; yield the port."""
    with listen("127.0.0.1", 0) as sock:
        app = connected_app(Stores.connect(settings))
        config = uvicorn.Config(app, log_level="critical", lifespan="off", http=limited_protocol(settings))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        until(lambda: server.started)
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def port(settings: Settings) -> Iterator[int]:
    """The port of a service with short timeouts."""
    with listening(settings) as number:
        yield number


def drip(port: int, first: bytes, drop: bytes = b"") -> tuple[int, dict[str, Any]]:
    """Send bytes, then a byte at a time until the service closes; return its response."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(first)
        sock.settimeout(0.05)
        received, deadline = b"", time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if not (piece := sock.recv(2**16)):
                    break
                received += piece
            except TimeoutError:
                if drop and not received:
                    sock.sendall(drop)
            except ConnectionResetError:
                break
        else:
            pytest.fail("the connection was held")
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /live", b"GET /livez HTTP/1.1\r\nX-Slow: "])
def test_slow_headers_are_408(port: int, sent: bytes) -> None:
    """With nothing, or with a byte at a time."""
    status, problem = drip(port, sent, b"x" if b"G" in sent else sent)
    assert (status, problem["type"]) == (408, "urn:glle:problem:request-timeout")
    assert "at once" in problem["remedy"]


@pytest.mark.parametrize("how", [b"Content-Length: 100000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_slow_body_is_408_and_leaves_no_file(port: int, settings: Settings, how: bytes) -> None:
    """A steady drip is below the minimum speed; other requests are served meanwhile."""
    drop = b"1" if b"Length" in how else b"1\r\n1\r\n"
    status, problem = drip(port, UPLOAD + how, drop)
    assert (status, problem["type"]) == (408, "urn:glle:problem:request-timeout")
    assert "faster" in problem["remedy"]
    assert not any((Path(settings.data_dir) / "incoming").iterdir())
    assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    command = b"POST /v1/advice HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert drip(port, command + how.replace(b"100000", b"1000"), drop)[0] == 408


def test_a_body_at_the_minimum_speed_is_accepted(port: int) -> None:
    """A body may take longer than the timeout at the minimum speed."""

    def rows() -> Iterator[bytes]:
        for _ in range(8):
            yield b"1,2\n" * 100
            time.sleep(0.1)

    assert httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=rows(), headers=CSV).status_code == 201


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        UPLOAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        *(f"GET /livez HTTP/{version}\r\nHost: localhost\r\n\r\n".encode() for version in ("0.9", "1.2", "2.0", "3.0")),
    ],
)
def test_malformed_http_is_a_problem(port: int, sent: bytes) -> None:
    """A problem that names the versions of HTTP, not uvicorn's line of text."""
    status, problem = drip(port, sent)
    assert (status, problem["type"]) == (400, "urn:glle:problem:malformed-request")


def test_long_heads_are_431(port: int) -> None:
    """However the bytes arrive; a long upload is not a head."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * (HEAD_BYTES + 1)
    status, problem = drip(port, head)
    assert (status, problem["type"]) == (431, "urn:glle:problem:head-too-large")
    rows = b"1,2\n" * HEAD_BYTES
    assert httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=rows, headers=CSV, timeout=30).status_code == 201


def test_trailers_are_ignored(port: int) -> None:
    """They arrive after the headers were checked, so a request smuggled with them would be another one."""
    chunked = UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n8\r\n1,2\n3,4\n\r\n0\r\nX-Request-Id: trailer\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(chunked)
        head = sock.recv(2**16)
    assert b" 201 " in head
    assert b"x-request-id: trailer" not in head.lower()


def test_a_body_after_its_response_is_not_awaited_forever(port: int) -> None:
    """A refused body that drips in after the response closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert b" 415 " in sock.recv(2**16)
        until(lambda: is_closed_after(sock, b"x"))


def is_closed_after(sock: socket.socket, drop: bytes) -> bool:
    """Send bytes; return whether the service has closed the connection."""
    time.sleep(0.02)
    try:
        sock.sendall(drop)
        sock.settimeout(0.0)
        return not sock.recv(2**16)
    except BlockingIOError:
        return False
    except (ConnectionResetError, BrokenPipeError):
        return True
    finally:
        sock.settimeout(20)


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


def limit(monkeypatch: pytest.MonkeyPatch, connections: int, of_address: int = 1000) -> None:
    """Set the limits on connections, and a patience beyond the test."""
    monkeypatch.setattr(slow_clients, "MAX_CONNECTIONS", connections)
    monkeypatch.setattr(slow_clients, "MAX_ADDRESS_CONNECTIONS", of_address)
    for module in (slow_clients, request_limits):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 30.0)


def test_connections_beyond_the_limit_are_503(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is free again once a connection ends."""
    limit(monkeypatch, connections=2)
    with listening(settings) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        time.sleep(0.1)
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/info")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:too-many-connections")
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["connection"] == "close"
        for sock in held:
            sock.close()
        until(lambda: httpx.get(f"http://127.0.0.1:{port}/v1/info").status_code == 200)


def idle(port: int, count: int, address: str = "127.0.0.1") -> list[socket.socket]:
    """Return idle connections from an address of this machine."""
    return [socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) for _ in range(count)]


def close_all(socks: list[socket.socket]) -> None:
    """Close connections."""
    for sock in socks:
        sock.close()


def status_of(port: int, path: str, address: str) -> int:
    """Return the status of a response to a client of an address; 0 without a response."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=10) as client:
        try:
            return client.get(f"http://127.0.0.1:{port}{path}").status_code
        except httpx.TransportError:
            return 0


def test_probes_are_answered_though_all_connections_are_held(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy process answers probes; an idle connection holds a probe's slot for some time."""
    monkeypatch.setattr(slow_clients, "PROBE_SECONDS", 0.7)
    limit(monkeypatch, connections=20)
    with listening(settings) as port:
        held = idle(port, 20)
        time.sleep(0.1)
        assert status_of(port, "/livez", "127.0.0.1") == 200
        assert status_of(port, "/v1/info", "127.0.0.1") == 503
        held += idle(port, 40)  # of this address no more probes have a place
        time.sleep(0.1)
        assert status_of(port, "/livez", "127.0.0.2") == 200
        assert status_of(port, "/v1/info", "127.0.0.2") == 503
        until(lambda: status_of(port, "/livez", "127.0.0.1") == 200)
        close_all(held)
        until(lambda: status_of(port, "/v1/info", "127.0.0.1") == 200)


def test_one_address_cannot_hold_all_connections(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other addresses are served, and a trusted proxy may hold more."""
    limit(monkeypatch, connections=100, of_address=10)
    with listening(settings) as port:
        held = idle(port, 40)
        time.sleep(0.1)
        assert status_of(port, "/v1/info", "127.0.0.1") in {0, 503}
        assert status_of(port, "/v1/info", "127.0.0.2") == 200
        close_all(held)
        until(lambda: status_of(port, "/v1/info", "127.0.0.1") == 200)
    with listening(replace(settings, trusted_proxies="127.0.0.3", auth="off")) as port:
        held = idle(port, 40, "127.0.0.3")
        time.sleep(0.1)
        assert status_of(port, "/v1/info", "127.0.0.3") == 200
        close_all(held)
