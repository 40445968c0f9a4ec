"""Fixtures: a deployment of servers, APIs and workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.conftest import until
from worker.base.settings import Settings
from worker.operations.embedded_redis import cache_server, queue_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 180.0  # time limit on a busy machine, s


@dataclass
class Process:
    """A running API or worker."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    def client(self) -> httpx.Client:
        """Return a client of the process."""
        return httpx.Client(base_url=self.url, timeout=60)

    def stop(self) -> None:
        """Stop the process in order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) in {0, -signal.SIGTERM}, self.log.read_text()


@dataclass
class Deployment:
    """Servers, a data folder, and the processes started on them."""

    settings: Settings
    stack: ExitStack
    started: int = 0

    def start(self, *arguments: str, announces: str = "", **environment: str) -> Process:
        """Start a command with some environment, and wait for its ready message."""
        self.started += 1
        log = Path(self.settings.data_dir).parent / f"{self.started}-{arguments[0]}.log"
        environment = {
            **os.environ, **self.settings.to_env(), "GLLE_API_PROCESSES": "1", "GLLE_HEARTBEAT": "1",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment,
        }  # fmt: skip
        command = [sys.executable, "-m", "service.cli", *arguments]
        output = self.stack.enter_context(log.open("wb"))
        process = self.stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        )
        self.stack.callback(lambda: process.kill() if process.poll() is None else None)
        match = Process(process, log)
        if announces:
            until(lambda: re.search(announces, log.read_text()) or process.poll() is not None, START_SECONDS)
            matches = re.search(announces, log.read_text())
            assert matches, log.read_text()
            match.url = matches[1]
        return match

    def api(self) -> Process:
        """Start an API."""
        return self.start("serve", "--port", "0", announces=r"glle API at (http://\S+)")

    def worker(self, **environment: str) -> Process:
        """Start a worker with some environment."""
        return self.start("worker", **environment)


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
    settings = Settings(data_dir=str(folder / "data"), heartbeat=1)
    with ExitStack() as stack:
        up = Deployment(settings, stack).start("up", "--port", "0", announces=r"is ready at (http://\S+)")
        with up.client() as client:
            yield client
        up.stop()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment without an API or a worker."""
    with deployed(tmp_path) as started_process:
        yield started_process
