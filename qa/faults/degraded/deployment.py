"""A deployment in parts: two Redis servers, each behind a proxy, an API and workers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qa.faults.degraded.proxy import Proxy
from service.cli import BLAS_VARIABLES
from tests.system.conftest import started
from worker.base.settings import Settings
from worker.operations.embedded_redis import EmbeddedRedis, cache_server, queue_server

if TYPE_CHECKING:
    import subprocess
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

    """

    folder: Path
    settings: Settings = field(default_factory=lambda: Settings(cache_bytes=48 * 2**20, queue_bytes=16 * 2**20))
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
        return ("127.0.0.1", port)

    def _through(self, server: EmbeddedRedis, proxy: Proxy) -> str:
        return f"redis://:{urlsplit(server.url).password}@127.0.0.1:{proxy.port}/0"


def _end_server(server: EmbeddedRedis) -> None:
    """Kill a server, also a stopped one."""
    if server.process is not None:
        server.process.kill()
        server.process.wait()
