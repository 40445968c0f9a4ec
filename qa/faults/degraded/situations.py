"""Situations: each breaks a part of a deployment and repairs it.

Its servers are behind proxies, and its worker is supervised.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qa.faults.deployment import Deployment, end_server, run_servers
from qa.faults.proxy import Proxy
from qa.frame import repeat
from tests.conftest import until
from worker.base.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from qa.faults.proxy import Mode
    from tests.system.conftest import Up
    from worker.operations.embedded_redis import EmbeddedRedis

SETTINGS = Settings(cache_bytes=48 * 2**20, queue_bytes=16 * 2**20, log_level="warning", heartbeat=1)
LOADED, LOAD_MICROSECONDS = 10_000, 300  # log entries, and microseconds to load each: at least 3 s in all
MANY = 20  # of three kinds, more than the thread pool of the service
NOTHING = "nothing is wrong"


@dataclass
class Degraded:
    """A deployment with a proxy before each server, by the name of the server."""

    parts: Deployment
    proxies: dict[str, Proxy]
    api: Up
    worker: Up

    @property
    def url(self) -> str:
        """URL of the API."""
        return self.api.url

    def server(self, name: str) -> EmbeddedRedis:
        """Return a server."""
        return self.parts.queue if name == "queue" else self.parts.cache

    def direct(self, name: str) -> redis.Redis:
        """Return a client of a server without its proxy and without retries."""
        return redis.Redis.from_url(self.server(name).url, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def is_loading(self) -> bool:
        """Return whether the restarted queue server is still loading its persisted data."""
        try:
            with self.direct("queue") as client:
                client.ping()
        except redis.RedisError as error:  # others: not listening yet
            return isinstance(error, redis.BusyLoadingError)
        return False

    def supervise(self) -> None:
        """Restart a worker that ended, as a supervisor does."""
        assert self.api.process.poll() is None, "The API ended."
        if self.worker.process.poll() is not None:
            self.worker = self.parts.start("worker")


@contextmanager
def run_degradable(folder: Path) -> Iterator[Degraded]:
    """Run a deployment in a folder."""
    proxies: dict[str, Proxy] = {}
    with ExitStack() as stack:

        def through(server: EmbeddedRedis) -> str:
            address = urlsplit(server.url)
            assert address.port is not None
            proxy = stack.enter_context(Proxy(("127.0.0.1", address.port)))
            proxies[server.folder.name] = proxy
            return address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()

        parts = stack.enter_context(run_servers(folder, SETTINGS, through))
        found = Degraded(parts, proxies, parts.start("serve", "--port", "0"), parts.start("worker"))
        stack.enter_context(repeat(found.supervise, seconds=0.1))
        yield found


@dataclass(frozen=True)
class Situation:
    """A named fault: a context manager that breaks something and repairs it.

    The fault lasts `seconds`, beside the load under `times` probes of each kind. If `refuses`, some answers must be 503
    or 507.
    """

    name: str
    fault: Callable[..., AbstractContextManager[None]]
    arguments: tuple[object, ...] = ()
    seconds: float = 3.0
    times: int = 1
    refuses: bool = False

    def trouble(self, deployment: Degraded) -> AbstractContextManager[None]:
        """Return the fault of a deployment."""
        return self.fault(deployment, *self.arguments)


@contextmanager
def evict(deployment: Degraded) -> Iterator[None]:
    """Empty the cache repeatedly."""
    with deployment.direct("cache") as client, repeat(client.flushall, seconds=0.15):
        yield


@contextmanager
def break_by_proxy(deployment: Degraded, server_name: str, mode: Mode, after: int = 0) -> Iterator[None]:
    """Refuse the connections of a server, reset them after a number of bytes, or answer errors."""
    deployment.proxies[server_name].become(mode, after)
    try:
        yield
    finally:
        deployment.proxies[server_name].become("pass")


@contextmanager
def slow(deployment: Degraded, shortest: float, longest: float) -> Iterator[None]:
    """Delay the network to both servers by seconds, in each direction."""
    for proxy in deployment.proxies.values():
        proxy.delay = (shortest, longest)
    try:
        yield
    finally:
        for proxy in deployment.proxies.values():
            proxy.delay = (0.0, 0.0)


@contextmanager
def stop_server(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Stop a server, which then accepts connections and never answers."""
    server = deployment.server(server_name)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@contextmanager
def kill_server(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Kill a server, and restart it later with its persisted data."""
    server = deployment.server(server_name)
    end_server(server)
    try:
        yield
    finally:
        restart(server)


@contextmanager
def loading(deployment: Degraded) -> Iterator[None]:
    """Restart the queue server with a long log, so that it answers LOADING at first."""
    server = deployment.server("queue")
    with deployment.direct("queue") as client:
        client.bgrewriteaof()
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        client.eval("for _ = 1, ARGV[1] do redis.call('SET', 'filler', 0) end", 0, str(LOADED))
        client.delete("filler")
    end_server(server)
    options = server._options
    server._options = (*options, f"key-load-delay {LOAD_MICROSECONDS}")
    server.spawn()
    server._options = options
    until(deployment.is_loading)
    try:
        yield
    finally:
        server.wait()


@contextmanager
def full_of_memory(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Set a server to its memory limit, without eviction."""
    with deployment.direct(server_name) as client, configure(client, maxmemory_policy="noeviction", maxmemory="1mb"):
        yield


@contextmanager
def smaller_than_configured(deployment: Degraded) -> Iterator[None]:
    """Give the cache much less memory than GLLE_CACHE_BYTES states."""
    with deployment.direct("cache") as client:
        used = int(client.info("memory")["used_memory"])
        with configure(client, maxmemory=str(max(3 * 2**20, used // 3))):
            yield


@contextmanager
def configure(client: redis.Redis, **values: str) -> Iterator[None]:
    """Change the configuration of a server, and restore it."""
    names = {name.replace("_", "-"): value for name, value in values.items()}
    before = {name: str(client.config_get(name)[name]) for name in names}
    for name, value in names.items():
        client.config_set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            client.config_set(name, former)


@contextmanager
def full_disk(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Fill the disk of the queue's log, or of the data."""
    server = deployment.server("queue")
    folder = server.folder if server_name == "queue" else Path(deployment.parts.settings.data_dir)
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
        if server.process is not None and server.process.poll() is not None:
            restart(server)  # the server may exit on a full disk; a supervisor restarts it


def restart(server: EmbeddedRedis) -> None:
    """Start a server again, and wait until it answers."""
    server.spawn()
    server.wait()


SITUATIONS = (
    Situation(NOTHING, nullcontext, seconds=2.0),
    Situation("cache: everything evicted, again and again", evict),
    Situation("cache: refuses connections", break_by_proxy, ("cache", "refuse")),
    Situation("cache: silent (stopped)", stop_server, ("cache",), seconds=8.0, times=MANY, refuses=True),
    Situation("cache: killed, comes back empty", kill_server, ("cache",)),
    Situation("cache: answers errors", break_by_proxy, ("cache", "errors")),
    Situation("cache: reset in the middle of a value", break_by_proxy, ("cache", "cut", 3000)),
    Situation("cache: memory full, nothing may be evicted", full_of_memory, ("cache",)),
    Situation("cache: much smaller than GLLE_CACHE_BYTES", smaller_than_configured),
    Situation("queue: refuses connections", break_by_proxy, ("queue", "refuse"), refuses=True),
    Situation("queue: silent (stopped)", stop_server, ("queue",), seconds=8.0, times=MANY, refuses=True),
    Situation("queue: killed, comes back with its log", kill_server, ("queue",), refuses=True),
    Situation("queue: killed, loads a long log", loading, refuses=True),
    Situation("queue: answers errors", break_by_proxy, ("queue", "errors"), refuses=True),
    Situation("queue: reset in the middle of an answer", break_by_proxy, ("queue", "cut", 3000)),
    Situation("queue: memory full", full_of_memory, ("queue",), refuses=True),
    Situation("queue: disk full", full_disk, ("queue",), refuses=True),
    Situation("data folder: disk full", full_disk, ("data",), refuses=True),
    Situation("both: 25 ms away", slow, (0.025, 0.025), seconds=5.0),
    Situation("both: 50 to 150 ms away", slow, (0.05, 0.15), seconds=8.0),
)
