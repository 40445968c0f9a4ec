"""Synchronous clients on an event loop: every form of command, cancellations, outages, sentinels, TLS and sockets."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
import redis
from redis.sentinel import Sentinel

from tests.worker.connections.leaks import connections, greenlets, require_all_returned
from worker.base.settings import Settings, SettingsError
from worker.connections import circuit_breaker, loop_pool
from worker.connections.circuit_breaker import AWAY_SECONDS, CircuitBreaker, CircuitOpenError
from worker.connections.clients import connect_cache, connect_queue
from worker.connections.cluster import Cluster
from worker.connections.event_loop import on_loop, pause
from worker.connections.loop_pool import LoopConnection
from worker.connections.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from redis.client import Pipeline
    from redis.cluster import RedisCluster

    from worker.stores import Stores

SECONDS = 30.0  # no wait of these tests ends by its time


async def cancelled(function: Callable[[], object], is_waiting: Callable[[], bool]) -> None:
    """Run a function, and cancel it once it waits."""
    task = asyncio.create_task(on_loop(function))
    async with asyncio.timeout(SECONDS):
        while not is_waiting():  # noqa: ASYNC110 # the server's state
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_every_form_of_command_is_that_of_a_thread(stores: Stores) -> None:
    """Replies on a loop equal those in a thread: commands, pipelines, scripts, scans, transactions, large values."""
    client, large = stores.client, b"x" * (3 * 2**20 + 1)

    def work() -> list[Any]:
        client.flushdb()
        replies: list[Any] = [client.set("a", "1"), client.get("a"), client.hset("h", mapping={"x": 1, "y": 2})]
        replies.append(client.hgetall("h"))
        for transaction in (False, True):
            with client.pipeline(transaction=transaction) as pipeline:
                pipeline.incr("n")
                pipeline.hget("h", "x")
                pipeline.get("nothing")
                replies.append(pipeline.execute())
        replies += [client.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v"), client.register_script("return 5")()]
        replies += [sorted(client.scan_iter(match="*", count=1)), client.set("large", large), client.get("large")]
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.incr("h")
        with client.pipeline() as pipeline:
            pipeline.incr("h")
            pipeline.get("a")
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                pipeline.execute()
        replies.append(client.get("a"))
        return replies

    async def run() -> list[Any]:
        replies = await on_loop(work)
        require_all_returned(client)
        return replies

    assert asyncio.run(run()) == work()


def test_a_cancelled_command_leaves_no_reply(stores: Stores) -> None:
    """Its connection is closed, although the server answers later; no connection and no greenlet is lost."""
    client = stores.client

    async def run() -> None:
        await on_loop(client.ping)
        for _ in range(3):
            waiting = lambda: client.info("clients")["blocked_clients"] == 1  # noqa: E731
            await cancelled(lambda: client.blpop(["a"], timeout=4), waiting)
        client.rpush("a", "late")
        assert await on_loop(client.echo, "mine") == b"mine"
        require_all_returned(client)

    asyncio.run(run())
    assert greenlets() == 0


def test_a_cancelled_transaction_leaves_no_watch(stores: Stores) -> None:
    """A transaction that is cancelled between its commands gives back a connection that watches nothing."""
    client = stores.client
    client.set("watched", 1)

    def work() -> None:
        def wait(pipeline: Pipeline) -> None:
            pipeline.get("watched")
            client.blpop(["a"], timeout=4)

        client.transaction(wait, "watched")

    async def run() -> None:
        await cancelled(work, lambda: client.info("clients")["blocked_clients"] == 1)
        require_all_returned(client)
        client.set("watched", 2)
        with client.pipeline() as pipeline:
            pipeline.get("watched")
            assert await on_loop(pipeline.execute) == [b"2"]

    asyncio.run(run())
    assert greenlets() == 0


def test_functions_share_few_connections(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """More functions than connections take turns; one that holds a connection gets a second one."""
    monkeypatch.setattr(loop_pool, "MAX_CONNECTIONS", 3)
    client = stores.client
    before = len(client.client_list())

    def increment(pipeline: Pipeline) -> None:
        value = int(client.get("n") or 0)
        pipeline.multi()
        pipeline.set("n", value + 1)

    async def run() -> int:
        await asyncio.gather(*(on_loop(client.transaction, increment, "n") for _ in range(40)))
        require_all_returned(client)
        return len(client.client_list())

    assert asyncio.run(run()) - before <= 2 * 3
    assert client.get("n") == b"40"


def test_a_broken_connection_is_replaced(stores: Stores) -> None:
    """Connections that the server closed while they were idle are not used."""

    async def run() -> None:
        await asyncio.gather(*(on_loop(stores.client.ping) for _ in range(5)))
        for entry in stores.client.client_list():
            stores.client.client_kill_filter(_id=entry["id"], skipme=True)
        assert await asyncio.gather(*(on_loop(stores.client.ping) for _ in range(5))) == [True] * 5
        require_all_returned(stores.client)

    asyncio.run(run())


def test_connections_end_with_their_loop(stores: Stores) -> None:
    """Nothing of a loop is left at its end, and a client that was closed meanwhile can be used again."""
    client = stores.client
    before = len(client.client_list())

    async def run() -> None:
        await asyncio.gather(*(on_loop(client.ping) for _ in range(5)))
        own = connections(client)
        client.connection_pool.disconnect()
        async with asyncio.timeout(SECONDS):
            while own._idle:  # noqa: ASYNC110 # another task closes them
                await asyncio.sleep(0.001)
        assert await on_loop(client.ping)

    asyncio.run(run())
    assert vars(client.connection_pool)["_loops"] == {}
    assert len(client.client_list()) <= before + 1


def test_a_thread_and_a_loop_have_separate_connections(stores: Stores) -> None:
    """Both use one client at once."""

    async def run() -> None:
        waiting = asyncio.create_task(on_loop(stores.client.blpop, ["a"], timeout=4))
        await asyncio.to_thread(stores.client.rpush, "a", "element")
        assert await waiting == (b"a", b"element")

    asyncio.run(run())
    held = stores.client.connection_pool.get_connection()
    assert not isinstance(held, LoopConnection)
    stores.client.connection_pool.release(held)


PATIENCE = 0.3  # seconds until an answer is late


@pytest.fixture
def silent() -> Iterator[redis.Redis]:
    """Return a client of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        url = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        client = connect_queue(Settings(redis_url=url), PATIENCE, CircuitBreaker(60.0))  # however late a trial ends
        yield client
        client.close()


def test_a_silent_server_opens_the_breaker(silent: redis.Redis) -> None:
    """The first call waits for its time; later calls fail at once; then one of many tries."""

    async def ask() -> str:
        try:
            await on_loop(silent.ping)
        except redis.RedisError as error:
            return type(error).__name__
        return "answer"

    async def run() -> None:
        assert await ask() == "TimeoutError"
        assert [await ask() for _ in range(20)] == ["CircuitOpenError"] * 20
        await asyncio.sleep(AWAY_SECONDS)
        names = sorted(await asyncio.gather(*(ask() for _ in range(20))))
        assert names == ["CircuitOpenError"] * 19 + ["TimeoutError"]
        require_all_returned(silent)

    asyncio.run(run())


def test_a_cancelled_trial_lets_the_next_call_try(silent: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes away during the trial does not keep the breaker open."""
    monkeypatch.setattr(circuit_breaker, "AWAY_SECONDS", 0.01)

    async def run() -> None:
        with pytest.raises(redis.TimeoutError):
            await on_loop(silent.ping)
        await asyncio.sleep(0.05)
        trial = asyncio.create_task(on_loop(silent.ping))
        await asyncio.sleep(0.05)
        with pytest.raises(CircuitOpenError):
            await on_loop(silent.ping)
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
        with pytest.raises(redis.TimeoutError):
            await on_loop(silent.ping)

    asyncio.run(run())


def test_the_master_is_looked_up_on_the_loop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections go to the current master; those to a former one are not used again."""
    parts = urlsplit(settings.redis_url)
    where = [("127.0.0.1", parts.port)]
    monkeypatch.setattr(Sentinel, "discover_master", lambda *_: where[0])
    client = connect_queue(Settings(redis_url=f"sentinel://:{parts.password}@nowhere/main"))

    async def run() -> None:
        assert await on_loop(client.ping)
        (idle,) = connections(client)._idle
        assert (idle.host, idle.port) == where[0]
        where[0] = ("localhost", parts.port)
        client.connection_pool.get_master_address()  # type: ignore[attr-defined] # of a sentinel's pool
        assert await on_loop(client.ping)
        (idle,) = connections(client)._idle
        assert (idle.host, idle.port) == where[0]

    asyncio.run(run())
    client.close()


def test_concurrent_lookups_keep_every_sentinel(settings: Settings) -> None:
    """The order of the sentinels changes, and none is lost; silent ones are asked, too."""
    parts = urlsplit(settings.redis_url)
    client = connect_queue(Settings(redis_url=f"sentinel://:{parts.password}@a,b,c/main"))
    sentinels = client.connection_pool.sentinel_manager  # type: ignore[attr-defined] # of a sentinel's pool
    state = {"is_master": True, "is_sdown": False, "is_odown": False, "ip": "127.0.0.1", "port": parts.port}

    def replace(sentinel: redis.Redis, *, is_silent: bool) -> None:
        def masters() -> dict[str, dict[str, Any]]:
            pause(0.01)
            if is_silent:
                raise redis.TimeoutError
            return {"main": {**state, "num-other-sentinels": 2}}

        sentinel.sentinel_masters = masters  # type: ignore[method-assign] # a real one needs a process

    for sentinel in sentinels.sentinels:
        host = sentinel.connection_pool.connection_kwargs["host"]
        replace(sentinel, is_silent=host != "c")

    async def run() -> list[bool]:
        return list(await asyncio.gather(*(on_loop(client.ping) for _ in range(8))))

    assert asyncio.run(run()) == [True] * 8
    hosts = [sentinel.connection_pool.connection_kwargs["host"] for sentinel in sentinels.sentinels]
    assert (hosts[0], sorted(hosts)) == ("c", ["a", "b", "c"])
    client.close()


@asynccontextmanager
async def forwarding(port: int, listen: Callable[..., Any], *where: Any, **options: Any) -> AsyncIterator[Any]:
    """Forward connections of a listener to a port of this machine."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await listen(forward, *where, **options)
    yield server
    server.close()


def test_unix_sockets(settings: Settings, tmp_path: Path) -> None:
    """A path takes the place of host and port."""
    parts = urlsplit(settings.redis_url)
    path = str(tmp_path / "redis.sock")

    async def run() -> None:
        async with forwarding(int(parts.port or 0), asyncio.start_unix_server, path):
            client = connect_cache(Settings(cache_url=f"unix://:{parts.password}@{path}?db=1"))
            assert await on_loop(client.echo, "through") == b"through"
            assert (await on_loop(client.client_info))["db"] == 1
            connections(client).close()
            await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_tls(settings: Settings, tmp_path: Path) -> None:
    """The server's certificate is verified by the given authority, and refused by another."""
    parts = urlsplit(settings.redis_url)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def run() -> None:
        async with forwarding(int(parts.port or 0), asyncio.start_server, "localhost", 0, ssl=context) as server:
            url = f"rediss://:{parts.password}@localhost:{server.sockets[0].getsockname()[1]}/0"
            client = connect_cache(Settings(cache_url=f"{url}?ssl_ca_certs={certificate}"))
            assert await on_loop(client.echo, "through") == b"through"
            connections(client).close()
            with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
                await on_loop(connect_cache(Settings(cache_url=url)).ping)
            await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_thread_asks_a_cluster() -> None:
    """redis-py's client of a cluster would block the loop while it looks for the nodes."""
    threads = []

    class OneNode:
        """A cluster that answers at once."""

        def get(self, name: str) -> str:
            """Return the name."""
            threads.append(threading.get_ident())
            return name

    cluster = Cluster(lambda: cast("RedisCluster", OneNode()), RetryPolicy(0.0))
    assert (asyncio.run(on_loop(cluster.get, "a")), cluster.get("b")) == ("a", "b")
    assert threads[0] != threads[1] == threading.get_ident()


def test_options_without_support_are_refused() -> None:
    """redis.asyncio cannot staple, and a request must not skip a check that a worker makes."""
    with pytest.raises(SettingsError, match="ssl_validate_ocsp is not supported"):
        connect_cache(Settings(cache_url="rediss://a?ssl_validate_ocsp=true"))
