"""Situations: each breaks a part of a running deployment for some seconds, and repairs it.

Faults of these kinds have found errors: a server that is away or silent, full memory, a full disk, evictions. Others
(slow networks, resets, errors, a long log, a cache smaller than configured) never did.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qa.faults.deployment import Deployment, end_server, run_servers
from qa.frame import repeat
from worker.base.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.system.conftest import Up
    from worker.operations.embedded_redis import EmbeddedRedis

SETTINGS = Settings(cache_bytes=48 * 2**20, queue_bytes=16 * 2**20, log_level="warning", heartbeat=1)
MANY = 20  # of three kinds, more than the thread pool of the service
NOTHING = "nothing is wrong"


@dataclass
class Degraded:
    """A deployment that faults can break: its Redis servers, an API and a worker."""

    parts: Deployment
    api: Up
    worker: Up

    @property
    def url(self) -> str:
        """URL of the API."""
        return self.api.url

    def server(self, name: str) -> EmbeddedRedis:
        """Return one of the Redis servers, by its name: ``queue`` or ``cache``."""
        return self.parts.queue if name == "queue" else self.parts.cache

    def direct(self, name: str) -> redis.Redis:
        """Return a client of a Redis server (``queue`` or ``cache``) that does not retry failed commands."""
        return redis.Redis.from_url(self.server(name).url, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def supervise(self) -> None:
        """Start the worker again if it has ended, as the supervisor of a real deployment does."""
        assert self.api.process.poll() is None, "The API ended."
        if self.worker.process.poll() is not None:
            self.worker = self.parts.start("worker")


@contextmanager
def run_degradable(folder: Path) -> Iterator[Degraded]:
    """Run a deployment in a folder during the context, with a worker that is started again whenever it ends."""
    with ExitStack() as stack:
        parts = stack.enter_context(run_servers(folder, SETTINGS))
        deployment = Degraded(parts, parts.start("serve", "--port", "0"), parts.start("worker"))
        stack.enter_context(repeat(deployment.supervise, seconds=0.1))
        yield deployment


@dataclass(frozen=True)
class Situation:
    """A named fault.

    Parameters
    ----------
    fault
        Returns a context that breaks something in a deployment and repairs it at the end, given further `arguments`.
    seconds
        How long the fault lasts at least.
    times
        Number of threads that send each of the constant requests (`qa.load.probes`) beside the load.
    refuses
        Whether some answers must be 503 or 507, because otherwise the fault had no effect.

    """

    name: str
    fault: Callable[..., AbstractContextManager[None]]
    arguments: tuple[object, ...] = ()
    seconds: float = 3.0
    times: int = 1
    refuses: bool = False

    def trouble(self, deployment: Degraded) -> AbstractContextManager[None]:
        """Return the context in which a deployment has this fault."""
        return self.fault(deployment, *self.arguments)


@contextmanager
def evict(deployment: Degraded) -> Iterator[None]:
    """Empty the cache again and again during the context."""
    with deployment.direct("cache") as client, repeat(client.flushall, seconds=0.15):
        yield


@contextmanager
def stop_server(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Suspend a server's process during the context: it accepts connections, but never answers."""
    server = deployment.server(server_name)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@contextmanager
def kill_server(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Kill a server; at the end of the context, start it again with what it has on disk."""
    server = deployment.server(server_name)
    end_server(server)
    try:
        yield
    finally:
        restart(server)


@contextmanager
def fill_memory(deployment: Degraded) -> Iterator[None]:
    """Limit the queue server during the context to less memory than it uses."""
    with deployment.direct("queue") as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", "1mb")
        try:
            yield
        finally:
            client.config_set("maxmemory", before)


@contextmanager
def full_disk(deployment: Degraded, server_name: str) -> Iterator[None]:
    """Fill the disk of the queue's log (``queue``) or of the data folder (``data``) during the context."""
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
    Situation("cache: silent (stopped)", stop_server, ("cache",), seconds=8.0, times=MANY, refuses=True),
    Situation("cache: killed, comes back empty", kill_server, ("cache",)),
    Situation("queue: silent (stopped)", stop_server, ("queue",), seconds=8.0, times=MANY, refuses=True),
    Situation("queue: killed, comes back with its log", kill_server, ("queue",), refuses=True),
    Situation("queue: memory full", fill_memory, refuses=True),
    Situation("queue: disk full", full_disk, ("queue",), refuses=True),
    Situation("data folder: disk full", full_disk, ("data",), refuses=True),
)
