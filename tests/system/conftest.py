"""Running services, and an HTTP client of the one that the session shares (`tests.conftest.up`)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.conftest import until
from tests.processes import children, command_line, name_of
from tests.service.schemas.bodies import CheckedClient
from worker.execution import process_guard
from worker.execution.parent import QUEUES_OF_ROLE
from worker.storage.free_space import ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import httpx

ROOT = Path(__file__).resolve().parents[2]
GLLE = (sys.executable, "-m", "service.cli")
ANNOUNCEMENTS = {"up": "is ready at", "serve": "glle API at"}
START_SECONDS = 300.0  # time limit on a busy machine; includes the compilation of the loops in a new environment
ONE_EACH = {"GLLE_API_PROCESSES": "1", "GLLE_WORKERS": "1"}  # starts in half the time


@dataclass
class Up:
    """A running `glle up` (or another command) with the ids of its processes."""

    process: subprocess.Popen[str]
    log: Path
    url: str

    def children(self, name: str = "") -> list[int]:
        """Return the pids of the running child processes whose name begins with `name`."""
        pids = children(self.process.pid)
        return [child for child in pids if name_of(child).startswith(name) and command_line(child)]

    def pids_of(self, name: str, worker: int | None = None) -> list[int]:
        """Return the pids of the workers' children with a name, such as `glle-sampler`."""
        workers = self.workers() if worker is None else [worker]
        return [child for pid in workers for child in children(pid) if name_of(child) == name]

    def horses(self, worker: int | None = None) -> list[int]:
        """Return the pids of the work-horses (the child processes that run RQ's jobs), of all workers or of one."""
        forking = [pid for role in QUEUES_OF_ROLE for pid in self.pids_of(f"glle-{role}", worker)]
        return [horse for pid in forking for horse in children(pid)]

    def apis(self) -> list[int]:
        """Return the pids of the API processes."""
        return self.children("glle-api")

    def workers(self) -> list[int]:
        """Return the pids of the workers."""
        return self.children("glle-worker")

    def tree(self) -> list[int]:
        """Return the pids of `glle up` and of all its descendants."""
        pids = [self.process.pid]
        for pid in pids:
            pids += children(pid)
        return pids

    def redis(self, variable: str) -> redis.Redis:
        """Return a client of an embedded Redis server."""
        return redis.Redis.from_url(self.redis_url(variable))

    def redis_url(self, variable: str) -> str:
        """Return the URL of an embedded Redis server, which other commands on the same data folder use."""
        addresses = json.loads((self.log.parent / "data" / ADDRESSES).read_bytes())
        url: str = addresses[variable.removeprefix("GLLE_").lower()]
        return url


def glle(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a `glle` command until it exits; return its completed process."""
    return subprocess.run(
        [*GLLE, *arguments], env=_environment(settings), check=False, capture_output=True, text=True, timeout=600
    )


@contextmanager
def run_glle(log: Path, *arguments: str, program: Sequence[str] = GLLE, **settings: str) -> Iterator[Up]:
    """Run a `glle` command, wait until a server is ready, and kill the command and its descendants at the end."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*program, *arguments],
            env=_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            preexec_fn=process_guard.preexec(signal.SIGTERM),  # noqa: PLW1509 # the child ends with a killed test run
        ) as process,
    ):
        up = Up(process, log, "")
        try:
            if announcement := ANNOUNCEMENTS.get(arguments[0]):
                until(lambda: announcement in log.read_text() or process.poll() is not None, START_SECONDS)
                match = re.search(rf"{announcement} (http://\S+)", log.read_text())
                assert match, log.read_text()
                up.url = match[1]
            yield up
        finally:
            if process.poll() is None:  # every process ends with the head, in less time than in order
                pids = up.tree()
                process.kill()
                until(lambda: not any(command_line(pid) for pid in pids))


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "GLLE_HEARTBEAT": "1", "PYTHONPATH": str(ROOT), **settings}


def running(folder: Path, program: Sequence[str] = GLLE, **settings: str) -> AbstractContextManager[Up]:
    """Run `glle up` on a data folder, by default on a free port; kill it at the end."""
    options = ["--port", settings.get("GLLE_PORT", "0"), "--data-dir", str(folder / "data")]
    return run_glle(folder / "up.log", "up", *options, program=program, **settings)


@pytest.fixture(scope="session")
def client(up: Up) -> Iterator[httpx.Client]:
    """Return an HTTP client of the service, which compares each response with the contract."""
    with CheckedClient(base_url=up.url, timeout=60) as http_client:
        yield http_client


def synthetic(client: httpx.Client, n: int, seed: int = 0, name: str = "s_curve") -> str:
    """Create a synthetic data set and return its id."""
    answer = client.post("/v1/datasets/synthetic", json={"name": name, "n": n, "seed": seed})
    assert answer.status_code in {200, 201}, answer.text
    id_ = answer.json()["id"]
    assert isinstance(id_, str)
    return id_


def fit_posterior(client: httpx.Client, dataset: str, **spec: Any) -> str:
    """Fit a posterior and return its path."""
    answer = client.post("/v1/posteriors?wait=60", json={"dataset": dataset, **spec})
    assert answer.status_code in {200, 201, 202}, answer.text
    if answer.status_code == 202:  # the service waits for less time
        return f"/v1/posteriors/{wait_for_end(client, answer.json()['id'])['posterior']}"
    return f"/v1/posteriors/{answer.json()['id']}"


def wait_for_end(client: httpx.Client, job: str) -> dict[str, Any]:
    """Wait for the end of a job and return its record."""
    fields: dict[str, Any] = {}

    def is_over() -> bool:
        fields.update(client.get(f"/v1/jobs/{job}?wait=30").json())
        return fields["status"] not in {"queued", "running", "cancelling"}

    until(is_over)
    return fields
