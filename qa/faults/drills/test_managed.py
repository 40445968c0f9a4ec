"""The service on Redis as a provider manages it: mutual TLS, users with few rights, idle connections are cut."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
import redis

from qa.faults.deployment import end_server
from qa.load.running import Load, run
from service.cli.main import main
from tests.conftest import until
from tests.system.conftest import ROOT, fit_posterior, running, synthetic, wait_for_end
from worker.operations.embedded_redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.system.conftest import Up

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]

IDLE_SECONDS = 3.0
PASSWORD = "servers"
QUEUE = ("appendonly yes", "appendfsync always", "maxmemory 256mb", "maxmemory-policy noeviction")
CACHE = ("appendonly no", "maxmemory 128mb", "maxmemory-policy allkeys-lru")
PAGE = (ROOT / "docs" / "how-to" / "storage.md").read_text()
RULES = dict(re.findall(r"^    user (glle-\w+) on >PASSWORD (.+)$", PAGE, re.MULTILINE))
Managed = tuple[dict[str, str], dict[str, "Server"], list[list[int]]]


class Server(EmbeddedRedis):
    """An embedded Redis server with a known password."""

    def __init__(self, folder: Path, *lines: str) -> None:
        super().__init__(folder, lines)
        self._password = PASSWORD
        self.port = self._port
        self.client = redis.Redis.from_url(self.url, socket_timeout=5)


def everything(up: Up, client: httpx.Client) -> None:
    """Send the mixed load, and once each request that is not part of it; assert that no answer is an error."""
    large = fit_posterior(client, synthetic(client, 30_000, seed=3), n_neighbors=10)  # of many pieces
    posterior = fit_posterior(client, synthetic(client, 300, seed=21))
    for path in (
        "/readyz", "/metrics", "/v1/info", "/v1/methods", f"{large}/arrays?name=embedding",
        f"{posterior}/draws/3?scale=auto&wait=60",
    ):  # fmt: skip
        assert client.get(path).status_code == 200, path
    assert client.patch(posterior, json={"name": "mine", "tags": ["a"]}).status_code == 200
    job = client.post(posterior + "/draws", json={"n_draws": 100, "seed": 3}).json()
    assert wait_for_end(client, job["id"])["status"] == "succeeded"
    ledger = run(Load(requests=600, clients=4, keeps=10**6), [up.url])
    assert [*ledger.faults, *ledger.errors()] == []


def worker_killed(up: Up, client: httpx.Client) -> None:
    """Kill a worker in the middle of a job; other workers finish the job."""
    posterior = fit_posterior(client, synthetic(client, 1000, seed=22))
    job = client.post(posterior + "/draws", json={"n_draws": 400, "seed": 1}).json()["id"]
    until(lambda: client.get(f"/v1/jobs/{job}").json()["progress"]["done"] > 0)
    os.kill(up.workers()[0], signal.SIGKILL)
    assert wait_for_end(client, job)["status"] == "succeeded"


def commands(folder: Path) -> None:
    """Run the commands of an operator on the configured servers; assert that each succeeds."""
    data = ("--data-dir", str(folder / "data"))
    for command in ("scrub", "doctor"):
        assert main((command, *data)) == 0, command


def denied_commands(servers: dict[str, Server]) -> list[str]:
    """Return the commands that servers have denied, except for CONFIG GET, which the doctor can do without."""
    denied = [str(entry["object"]) for server in servers.values() for entry in server.client.acl_log()]
    return [command for command in denied if command != "config|get"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate authority, with certificates of a server on 127.0.0.1 and of a client; return the folder."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)  # noqa: S607 # the path depends on the machine

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem")
    return folder


@contextmanager
def run_balancer(port: int, certificates: Path) -> Iterator[tuple[int, list[int]]]:
    """Run a load balancer before the server on a port: with mutual TLS, and idle connections are cut.

    Yield the balancer's port, and a list whose one number counts the connections that were cut.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    started, cut = Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]](), [0]

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, active: list[float]) -> None:
        with suppress(OSError):
            while data := await source.read(2**18):
                active[0] = time.monotonic()
                target.write(data)
                await target.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        active = [time.monotonic()]
        requests, answers = pass_on(reader, downstream, active), pass_on(upstream, writer, active)
        ways = {asyncio.create_task(requests), asyncio.create_task(answers)}
        try:
            while not any(way.done() for way in ways):
                await asyncio.wait(ways, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() - active[0] > IDLE_SECONDS:
                    cut[0] += 1
                    break
        finally:
            for way in ways:
                way.cancel()
            downstream.transport.abort()
            writer.transport.abort()

    async def listen() -> None:
        server, ended = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context), asyncio.Event()
        started.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), ended))
        await ended.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    listening, loop, ended = started.result()
    try:
        yield listening, cut
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


@pytest.fixture(scope="module")
def managed_servers(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Managed]:
    """Run two Redis servers behind balancers, with the users of docs/how-to/storage.md.

    Yield the settings with their URLs, the servers by name, and the counts of cut connections.
    """
    folder = tmp_path_factory.mktemp("managed")
    servers, urls = {}, {}
    for name, lines in (("queue", QUEUE), ("cache", CACHE)):
        users = (f"user default on >{PASSWORD} ~* &* +@all", f"user glle-{name} on >{PASSWORD} {RULES[f'glle-{name}']}")
        servers[name] = Server(folder / name, *lines, *users)
    files = f"ssl_ca_certs={certificates}/ca.pem"
    files += f"&ssl_certfile={certificates}/client.pem&ssl_keyfile={certificates}/client.key"
    with ExitStack() as stack:
        for server in servers.values():
            stack.callback(server.client.close)
            stack.callback(end_server, server)
            server.spawn()
            server.wait()
        queue, cut = stack.enter_context(run_balancer(servers["queue"].port, certificates))
        cache, cut_too = stack.enter_context(run_balancer(servers["cache"].port, certificates))
        urls["GLLE_REDIS_URL"] = f"rediss://glle-queue:{PASSWORD}@127.0.0.1:{queue}/0?{files}"
        urls["GLLE_CACHE_URL"] = f"rediss://glle-cache:{PASSWORD}@127.0.0.1:{cache}/0?{files}"
        yield urls, servers, [cut, cut_too]


def test_every_operation_works_with_the_documented_rights(
    managed_servers: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All work succeeds with TLS and the documented rights, although idle connections are cut; no command is denied."""
    urls, servers, cuts = managed_servers
    fields = {**urls, "GLLE_STORE_URL": f"file://{tmp_path}/objects"}
    with (
        running(tmp_path, **fields, GLLE_QUOTAS="default=jobs:1000") as up,
        httpx.Client(base_url=up.url, timeout=60) as client,
    ):
        everything(up, client)
        worker_killed(up, client)
        for name, value in fields.items():
            monkeypatch.setenv(name, value)
        commands(tmp_path)
        refused = denied_commands(servers)
    assert refused == []
    assert sum(count for (count,) in cuts) > 0
