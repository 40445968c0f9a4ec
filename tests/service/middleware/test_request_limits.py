"""Bodies that arrive slowly."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from service.middleware import request_limits
from tests.service.conftest import connected_app, serving
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
        patched.setattr(request_limits, "PATIENCE_SECONDS", 0.4)
        patched.setattr(request_limits, "MIN_SPEED", 1000)
        yield replace(server_settings, data_dir=folder, auth="off")


@pytest.fixture(scope="module")
def port(settings: Settings) -> Iterator[int]:
    """The port of a service with short timeouts."""
    with serving(connected_app(Stores.connect(settings))) as client:
        yield client.base_url.port or 80


def drip(port: int, first: bytes, drop: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes, then a drop at a time until the service closes; return its response."""
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
                if not received:
                    sock.sendall(drop)
            except ConnectionResetError:
                break
        else:
            pytest.fail("the connection was held")
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


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
