"""Fixtures: a deployment of servers, APIs and workers of one or two versions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
BEFORE = "1990f51"  # the last commit before versioned records


@dataclass(frozen=True)
class Version:
    """A version of the program: its folder, module and environment."""

    name: str
    root: Path = ROOT
    module: str = "service.cli"
    environment: dict[str, str] = field(default_factory=dict)


NOW = Version("now")


def later(differs: str) -> Version:
    """Return a later version that differs in formats, numbers, or both."""
    return Version("later", module="qa.faults.drills.next_version", environment={"DRILL": differs})


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Return the version before versioned records, from the repository's history."""
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", BEFORE], check=False, capture_output=True)  # noqa: S607 # git from PATH
    if known.returncode:
        pytest.skip("The repository has no history; fetch it with git fetch --unshallow.")
    root = tmp_path_factory.mktemp("earlier")
    tar = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE], check=True, capture_output=True)  # noqa: S607
    subprocess.run(["tar", "x", "-C", str(root)], input=tar.stdout, check=True)  # noqa: S607 # tar from PATH
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-m", "glle_engine.lanes"], cwd=root, env=environment, check=True)  # compiled once
    return Version("earlier", root=root, module="service")


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
        """Stop the process as an upgrade does."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) in {0, -signal.SIGTERM}, self.log.read_text()


@dataclass
class Deployment:
    """Servers, a data folder, and the processes started on them."""

    settings: Settings
    stack: ExitStack
    started: int = 0

    def start(self, version: Version, *arguments: str, announces: str = "") -> Process:
        """Start a command of a version and wait for its ready message."""
        self.started += 1
        log = Path(self.settings.data_dir).parent / f"{self.started}-{version.name}-{arguments[0]}.log"
        environment = {
            **os.environ, **self.settings.to_env(), **version.environment, "PYTHONPATH": str(version.root),
            "GLLE_API_PROCESSES": "1",  # the head of several would start the current version
            "GLLE_HEARTBEAT": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", version.module, *arguments]
        output = self.stack.enter_context(log.open("wb"))
        process = self.stack.enter_context(
            subprocess.Popen(command, cwd=version.root, env=environment, stdout=output, stderr=output)
        )
        self.stack.callback(lambda: process.kill() if process.poll() is None else None)
        match = Process(process, log)
        if announces:
            until(lambda: re.search(announces, log.read_text()) or process.poll() is not None, START_SECONDS)
            matches = re.search(announces, log.read_text())
            assert matches, log.read_text()
            match.url = matches[1]
        return match

    def api(self, version: Version) -> Process:
        """Start an API."""
        return self.start(version, "serve", "--port", "0", announces=r"glle API at (http://\S+)")

    def worker(self, version: Version) -> Process:
        """Start a worker."""
        return self.start(version, "worker")


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
def tree(version: Version, folder: Path) -> Iterator[httpx.Client]:
    """Run `glle up` of a version on a data folder and yield a client; stop in order."""
    folder.mkdir(exist_ok=True)
    settings = Settings(data_dir=str(folder / "data"), heartbeat=1)
    with ExitStack() as stack:
        up = Deployment(settings, stack).start(version, "up", "--port", "0", announces=r"is ready at (http://\S+)")
        with up.client() as client:
            yield client
        up.stop()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment without an API or a worker."""
    with deployed(tmp_path) as started_process:
        yield started_process
