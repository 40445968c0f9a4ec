"""Situations: each breaks a part of the deployment and repairs it."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qa.background import repeated
from qa.faults.degraded.clients import USERS
from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from qa.faults.degraded.deployment import Deployment
    from qa.faults.degraded.proxy import Mode
    from worker.operations.embedded_redis import EmbeddedRedis


@dataclass(frozen=True)
class Situation:
    """A named fault: a context manager that breaks something and repairs it.

    The fault lasts `seconds` under requests from `threads` threads. If `refuses`, some answers must be 503 or 507.
    """

    name: str
    fault: Callable[..., AbstractContextManager[None]]
    arguments: tuple[object, ...] = ()
    seconds: float = 3.0
    threads: int = USERS
    refuses: bool = False

    def trouble(self, deployment: Deployment) -> AbstractContextManager[None]:
        """Return the fault of a deployment."""
        return self.fault(deployment, *self.arguments)


@contextmanager
def nothing(deployment: Deployment) -> Iterator[None]:
    """Situation without a fault."""
    yield


@contextmanager
def evicted(deployment: Deployment) -> Iterator[None]:
    """Empty the cache repeatedly."""
    with deployment.direct(deployment.cache) as client, repeated(client.flushall, seconds=0.15):
        yield


@contextmanager
def proxied(deployment: Deployment, server_name: str, mode: Mode, after: int = 0) -> Iterator[None]:
    """Refuse the connections of a server, reset them after a number of bytes, or answer errors."""
    proxy = deployment.before_queue if server_name == "queue" else deployment.before_cache
    proxy.become(mode, after)
    try:
        yield
    finally:
        proxy.become("pass")


@contextmanager
def slow(deployment: Deployment, shortest: float, longest: float) -> Iterator[None]:
    """Delay the network to both servers by seconds, in each direction."""
    proxies = (deployment.before_queue, deployment.before_cache)
    for proxy in proxies:
        proxy.delay = (shortest, longest)
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.delay = (0.0, 0.0)


@contextmanager
def stopped(deployment: Deployment, server_name: str) -> Iterator[None]:
    """Stop a server, which then accepts connections and never answers."""
    server = _server(deployment, server_name)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@contextmanager
def killed(deployment: Deployment, server_name: str) -> Iterator[None]:
    """Kill a server, and restart it later with its persisted data."""
    server = _server(deployment, server_name)
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    try:
        yield
    finally:
        deployment.start(server)


@contextmanager
def loading(deployment: Deployment) -> Iterator[None]:
    """Restart the queue server with a long log, so that it answers LOADING at first."""
    server = deployment.queue
    assert server.process is not None
    with deployment.direct(server) as client:
        client.eval("for _ = 1, ARGV[1] do redis.call('SET', 'filler', 0) end", 0, str(LOADED))
        client.delete("filler")
    server.process.kill()
    server.process.wait()
    options = server._options
    server._options = (*options, f"key-load-delay {LOAD_MICROSECONDS}")
    server.spawn()
    server._options = options
    until(lambda: deployment.is_loading(server))
    try:
        yield
    finally:
        server.wait()


@contextmanager
def full_of_memory(deployment: Deployment, server_name: str) -> Iterator[None]:
    """Set a server to its memory limit, without eviction."""
    with deployment.direct(_server(deployment, server_name)) as client:
        longest = client.config_get("maxmemory")["maxmemory"]
        policy = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1mb")
        try:
            yield
        finally:
            client.config_set("maxmemory", longest)
            client.config_set("maxmemory-policy", policy)


@contextmanager
def smaller_than_configured(deployment: Deployment) -> Iterator[None]:
    """Give the cache much less memory than GLLE_CACHE_BYTES states."""
    with deployment.direct(deployment.cache) as client:
        used = int(client.info("memory")["used_memory"])
        longest = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", str(max(3 * 2**20, used // 3)))
        try:
            yield
        finally:
            client.config_set("maxmemory", longest)


@contextmanager
def full_disk(deployment: Deployment, server_name: str) -> Iterator[None]:
    """Fill the disk of the queue's log, or of the data."""
    folder = deployment.queue.folder if server_name == "queue" else deployment.data
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 2**12)
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()
        server = deployment.queue
        if server.process is not None and server.process.poll() is not None:
            deployment.start(server)  # the server may exit on a full disk; a supervisor restarts it


def _server(deployment: Deployment, server_name: str) -> EmbeddedRedis:
    return deployment.queue if server_name == "queue" else deployment.cache


LOADED, LOAD_MICROSECONDS = 10_000, 300  # log entries, and microseconds to load each: at least 3 s in all
MANY = 60  # more than the thread pool of the service

NOTHING = "nothing is wrong"

SITUATIONS = (
    Situation(NOTHING, nothing, seconds=2.0),
    Situation("cache: everything evicted, again and again", evicted),
    Situation("cache: refuses connections", proxied, ("cache", "refuse")),
    Situation("cache: silent (stopped)", stopped, ("cache",), seconds=8.0, threads=MANY, refuses=True),
    Situation("cache: killed, comes back empty", killed, ("cache",)),
    Situation("cache: answers errors", proxied, ("cache", "errors")),
    Situation("cache: reset in the middle of a value", proxied, ("cache", "cut", 3000)),
    Situation("cache: memory full, nothing may be evicted", full_of_memory, ("cache",)),
    Situation("cache: much smaller than GLLE_CACHE_BYTES", smaller_than_configured),
    Situation("queue: refuses connections", proxied, ("queue", "refuse"), refuses=True),
    Situation("queue: silent (stopped)", stopped, ("queue",), seconds=8.0, threads=MANY, refuses=True),
    Situation("queue: killed, comes back with its log", killed, ("queue",), refuses=True),
    Situation("queue: killed, loads a long log", loading, refuses=True),
    Situation("queue: answers errors", proxied, ("queue", "errors"), refuses=True),
    Situation("queue: reset in the middle of an answer", proxied, ("queue", "cut", 3000)),
    Situation("queue: memory full", full_of_memory, ("queue",), refuses=True),
    Situation("queue: disk full", full_disk, ("queue",), refuses=True),
    Situation("data folder: disk full", full_disk, ("data",), refuses=True),
    Situation("both: 25 ms away", slow, (0.025, 0.025), seconds=5.0),
    Situation("both: 50 to 150 ms away", slow, (0.05, 0.15), seconds=8.0),
)
