"""Fixtures: a deployment of servers, APIs and workers."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.system.conftest import running, started
from worker.base.settings import Settings
from worker.operations.embedded_redis import cache_server, queue_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass
class Deployment:
    """Servers, a data folder, and the processes started on them."""

    settings: Settings
    stack: ExitStack
    count: int = 0

    def start(self, *arguments: str, **environment: str) -> Up:
        """Start a command with some environment."""
        self.count += 1
        log = Path(self.settings.data_dir).parent / f"{self.count}-{arguments[0]}.log"
        environment = {**self.settings.to_env(), **ONE_THREAD, "GLLE_API_PROCESSES": "1", **environment}
        return self.stack.enter_context(started(log, *arguments, **environment))

    def api(self) -> httpx.Client:
        """Start an API; return a client of it."""
        return self.stack.enter_context(httpx.Client(base_url=self.start("serve", "--port", "0").url, timeout=60))


@contextmanager
def deployed(folder: Path) -> Iterator[Deployment]:
    """Run servers on a folder, and stop all processes at the end."""
    settings = Settings(data_dir=str(folder / "data"), heartbeat=1)
    with ExitStack() as stack:
        queue, cache = queue_server(settings), cache_server(settings)
        for server in (queue, cache):
            stack.callback(server.stop)
            server.spawn()
        for server in (queue, cache):
            server.wait()
        environment = settings.to_env() | {"GLLE_REDIS_URL": queue.url, "GLLE_CACHE_URL": cache.url}
        yield Deployment(Settings.from_env(environment), stack)


@contextmanager
def tree(folder: Path) -> Iterator[httpx.Client]:
    """Run `glle up` on a data folder and yield a client; stop in order."""
    folder.mkdir(exist_ok=True)
    with running(folder, **ONE_THREAD, GLLE_API_PROCESSES="1") as up:
        with httpx.Client(base_url=up.url, timeout=60) as client:
            yield client
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(60) == 0, up.log.read_text()
