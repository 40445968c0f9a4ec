"""Bodies that arrive slowly, and requests in progress of several tenants."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from service.middleware import request_limits
from service.uploads import reading
from tests.conftest import emptied, until
from tests.service.conftest import check_problem, connected_app, serving
from tests.service.tenants import bearer
from worker.records import shares
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings

CSV = {"Content-Type": "text/csv"}
UPLOAD = b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"


@pytest.fixture(scope="module")
def settings(server_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings with short timeouts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_limits, "PATIENCE_SECONDS", 0.4)
        patched.setattr(request_limits, "MIN_BYTES_PER_SECOND", 1000)
        yield replace(emptied(server_settings, tmp_path_factory.mktemp("slow")), auth="off")


@pytest.fixture(scope="module")
def port(settings: Settings) -> Iterator[int]:
    """The port of a service with short timeouts."""
    stores = Stores.connect(settings)
    stores.client.flushall()  # records of other tests do not belong to this folder
    with serving(connected_app(stores)) as client:
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
    command = b"POST /v1/audits HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert drip(port, command + how.replace(b"100000", b"1000"), drop)[0] == 408


def test_a_body_at_the_minimum_speed_is_accepted(port: int) -> None:
    """A body may take longer than the timeout at the minimum speed."""

    def rows() -> Iterator[bytes]:
        for _ in range(8):
            yield b"1,2\n" * 100
            time.sleep(0.1)

    assert httpx.post(f"http://127.0.0.1:{port}/v1/datasets", content=rows(), headers=CSV).status_code == 201


def test_a_body_that_is_held_ends_whatever_it_has_sent(port: int, settings: Settings) -> None:
    """A client that sends most of a body at once has as little time for the rest as a client that sends nothing."""
    first = UPLOAD + b"Content-Length: 200000\r\n\r\n" + b"1,2\n" * 45_000
    status, problem = drip(port, first, b"1")
    assert (status, problem["type"]) == (408, "urn:glle:problem:request-timeout")
    assert not any((Path(settings.data_dir) / "incoming").iterdir())


@contextmanager
def held(
    url: str, count: int, headers: bytes = b"", sent: bytes = b"1,2\n", *, is_chunked: bool = False
) -> Iterator[list[socket.socket]]:
    """Hold uploads open, of which each has sent some bytes."""
    head = UPLOAD + headers + b"Content-Length: 100000\r\n\r\n" + sent
    if is_chunked:
        head = UPLOAD + headers + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(sent) + sent + b"\r\n"
    with ExitStack() as stack:
        address = httpx.URL(url)
        sockets = [stack.enter_context(socket.create_connection((address.host, address.port))) for _ in range(count)]
        for each in sockets:
            each.sendall(head)
        yield sockets


def status_of(sock: socket.socket) -> int:
    """Return the status that a connection received."""
    sock.settimeout(20)
    return int(sock.recv(2**16).split()[1])


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight places for requests, and as many for bodies, whose grace is short."""
    monkeypatch.setattr(shares, "MAX_REQUESTS", 8)
    monkeypatch.setattr(shares, "MAX_BODIES", 8)
    monkeypatch.setattr(request_limits, "BODY_GRACE_SECONDS", 0.1)


def test_the_speed_of_a_body_is_its_average() -> None:
    """The slowest body is the one with the fewest bytes per second since its request began."""

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    began = time.monotonic()
    body = request_limits._Body(receive, "tenant", None, lambda _: asyncio.sleep(0))
    asyncio.run(body.receive())
    speed = body.speed
    assert 100 / (time.monotonic() - began) <= speed <= 100 / 0.015


@pytest.mark.usefixtures("few_places")
def test_slow_bodies_take_no_place_of_quick_requests(stores: Stores) -> None:
    """A new body takes the place of the slowest one, and requests without a body pass, also without keys."""
    connected = Stores.connect(stores.settings)
    with serving(connected_app(connected)) as client, held(str(client.base_url), 8) as sockets:
        until(lambda: connected.shares.bodies.used == 8)
        time.sleep(0.1)
        assert client.get("/v1/jobs").status_code == 200
        sockets[3].sendall(b"3,4\n" * 100)
        time.sleep(0.2)  # until the API has read it
        assert client.post("/v1/datasets", content=b"1,2\n3,4\n", headers=CSV).status_code == 201
        until(lambda: connected.shares.bodies.used == 7)
        ended, _, _ = select.select(sockets[:3] + sockets[4:], [], [], 10)
        assert [status_of(each) for each in ended] == [408]
        assert not select.select([sockets[3]], [], [], 0)[0], "it was not the slowest"
    until(lambda: connected.shares.bodies.used + connected.shares.requests.used == 0)
    connected.close()


@pytest.mark.usefixtures("few_places")
def test_the_bodies_and_requests_of_a_tenant_leave_places_to_others(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its share a tenant gets 429 with Retry-After, or its own slowest body is ended; others are served."""
    greedy, other = bearer(stores, "greedy"), bearer(stores, "other")
    connected = Stores.connect(replace(stores.settings, auth="required"))
    line = f"Authorization: {greedy['Authorization']}\r\n".encode()
    job, _ = connected.for_tenant("greedy").jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    with serving(connected_app(connected)) as client, ThreadPoolExecutor(6) as pool:
        with held(str(client.base_url), 20, line) as sockets:
            until(lambda: connected.shares.bodies.held["greedy"] == 6)
            assert client.post("/v1/datasets", content=b"1,2\n3,4\n", headers={**CSV, **other}).status_code == 201
            statuses = [status_of(each) for each in sockets if select.select([each], [], [], 0)[0]]
            assert set(statuses) <= {429, 408, 503}  # 503 while bodies that are ended still hold all places
        until(lambda: connected.shares.bodies.used == 0)
        path = f"/v1/jobs/{job.id}?wait=30"
        monkeypatch.setattr(request_limits, "BODY_GRACE_SECONDS", 60.0)  # none of these is ended
        with held(str(client.base_url), 4, line, sent=b"1,2\n" * 24_999) as sockets:  # a line less than announced
            until(lambda: connected.shares.bodies.held["greedy"] == 4)
            waits = [pool.submit(client.get, path, headers=greedy) for _ in range(6)]
            until(lambda: connected.shares.requests.held["greedy"] == 6)
            for each in sockets:
                each.sendall(b"3,4\n")
            time.sleep(0.2)
            assert connected.shares.requests.held["greedy"] == 6, "bodies that have arrived wait for a place"
            refused = check_problem(client.get("/v1/jobs", headers=greedy), 429, "quota-exceeded")
            assert (refused["details"]["quota"], refused["details"]["allowed"]) == ("requests", 6)
            assert "share" in refused["detail"]
            assert client.get("/v1/jobs", headers=other).status_code == 200
            stores.jobs.cancel(job.id)
            assert {each.result().status_code for each in waits} == {200}
            assert {status_of(each) for each in sockets} <= {200, 201}
        assert client.get("/v1/jobs", headers=greedy).status_code == 200
    connected.close()


def test_bytes_that_arrive_count_against_their_tenant(stores: Stores) -> None:
    """Bytes of arriving bodies count in usage and quota; a single body may exceed it, as its data may be known."""
    connected = Stores.connect(replace(stores.settings, quotas="*=bytes:5000,incoming:90KB"))
    with serving(connected_app(connected)) as client:
        known = client.post("/v1/datasets", content=b"1,2\n" * 100 + b"3,4\n", headers=CSV)
        assert known.status_code == 201
        stored = client.get("/v1/usage").json()["quotas"]["bytes"]["used"]
        with held(str(client.base_url), 2, sent=b"1,2\n" * 500, is_chunked=True):
            until(lambda: client.get("/v1/usage").json()["quotas"]["bytes"]["used"] == stored + 4000)
            again = client.post("/v1/datasets", content=b"1,2\n" * 100 + b"3,4\n", headers=CSV)
            assert check_problem(again, 429, "quota-exceeded")["details"]["quota"] == "bytes"
        until(lambda: client.get("/v1/usage").json()["quotas"]["bytes"]["used"] == stored)
        again = client.post("/v1/datasets", content=b"1,2\n" * 100 + b"3,4\n", headers=CSV)
        assert again.status_code == 200
        large = client.post("/v1/datasets", content=b"1,2\n" * 30_000, headers=CSV)
        assert check_problem(large, 429, "quota-exceeded")["details"]["quota"] == "incoming"
    connected.close()


def test_bodies_of_a_tenant_leave_free_bytes_of_the_disk_to_others(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads that are held open do not fill the disk: beyond its share the tenant is refused, and others are not."""
    greedy, other = bearer(stores, "greedy"), bearer(stores, "other")
    connected = Stores.connect(replace(stores.settings, auth="required"))
    line = f"Authorization: {greedy['Authorization']}\r\n".encode()
    share = connected.shares.incoming
    monkeypatch.setattr(reading, "disk_reserve", lambda _: 0)
    monkeypatch.setattr(reading, "free_bytes", lambda _: 2 * (400_000 - share.used))  # half of it for each process
    with serving(connected_app(connected)) as client:
        with held(str(client.base_url), 3, line, sent=b"1,2\n" * 22_000):
            until(lambda: share.held["greedy"] == 264_000)
            body = b"1,2\n" * 24_000
            refused = client.post("/v1/datasets", content=body, headers={**CSV, **greedy})
            assert check_problem(refused, 429, "quota-exceeded")["details"]["quota"] == "incoming"
            assert client.post("/v1/datasets", content=body, headers={**CSV, **other}).status_code in {201, 422}
        until(lambda: share.used == 0)
        assert client.post("/v1/datasets", content=body, headers={**CSV, **greedy}).status_code in {201, 422}
    connected.close()
