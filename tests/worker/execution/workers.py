"""Jobs, and workers of this machine, for tests."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import FitSpec, manifolds
from glle_engine.tables.table import Table
from tests.conftest import until
from tests.processes import children, command_line
from worker.records.draws import DrawsSpec
from worker.records.ids import digest
from worker.storage.posteriors import posterior_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings
    from worker.jobs.store import Job, JobStore
    from worker.records.job import Kind
    from worker.stores import Stores

N = 120  # of which the embedding is trusted: an untrusted one makes a fit search for a better n_neighbors
SHEET = manifolds.make("s_curve", N, seed=1)


def store_dataset(stores: Stores, values: Any = SHEET.X) -> str:
    """Store a data set, and return its id."""
    return stores.datasets.add(Table(values=np.asarray(values), source={"kind": "test"}))[0].id


def fit_job(stores: Stores, values: Any = SHEET.X, *, short: bool = False, **parameters: Any) -> Job:
    """Create the job that fits a posterior to values."""
    dataset = store_dataset(stores, values)
    spec = FitSpec(**{"n_neighbors": 10, **parameters}).to_dict()
    id_ = posterior_id(dataset, spec)
    request = {"dataset": dataset, "spec": spec}
    return stores.jobs.create(kind="fit", claim=id_, posterior=id_, spec=request, total=1, short=short)[0]


def bare_fit(jobs: JobStore, claim: str = "claim", kind: Kind = "fit", **fields: Any) -> Job:
    """Create the record of a fit, or of another kind of job, whose posterior does not exist."""
    return jobs.create(**{"kind": kind, "claim": claim, "posterior": "post_1", "spec": {}, "total": 1, **fields})[0]


def enqueued_fit(stores: Stores, n: int, *, short: bool = False) -> Job:
    """Create and enqueue a fit of n points."""
    job = fit_job(stores, manifolds.make("swiss_roll", n, seed=0).X, short=short, landmarks="all")
    stores.queue.enqueue(job)
    return job


def draws_job(stores: Stores, posterior: str, **changes: Any) -> tuple[Job, DrawsSpec]:
    """Create a job of draws in shards of one lane group."""
    fields: dict[str, Any] = {
        "n": N, "p": 2, "n_draws": 9, "first": 0, "seed": 0, "scales": (1.0,), "grid": False,
        "source": "posterior", "align": "procrustes",
        "draw_seconds": 1e-6 * changes.get("n", N), "shard_seconds": 4e-6 * N, **changes,
    }  # fmt: skip
    spec = DrawsSpec(**fields)
    job, _ = stores.jobs.create(
        kind="draws",
        claim=digest(spec.to_dict()),
        posterior=posterior,
        spec=spec.to_dict(),
        total=spec.total,
    )
    return job, spec


def raiser(error: BaseException) -> Callable[..., None]:
    """Return a function that raises an error, whatever its arguments are."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


class ForkServer:
    """Starts worker processes by the program `tests.worker.execution.fork_server`, which has loaded the engine."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.worker.execution.fork_server"]
        root = Path(__file__).resolve().parents[3]
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.close)

    def ask(self, **request: Any) -> Any:
        """Return the response to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


fork_server = cache(ForkServer)


class WorkerProcess:
    """A worker process, with some of the methods of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self._code is None:
            self._code = fork_server().ask(ended=self.pid)
        return self._code

    def wait(self, seconds: float) -> int:
        """Wait for the end; return the exit code."""
        until(lambda: self.poll() is not None, seconds)
        assert self._code is not None
        return self._code

    def send_signal(self, signum: int) -> None:
        """Send a signal."""
        os.kill(self.pid, signum)


@contextmanager
def worker(settings: Settings, name: str, before: str = "") -> Iterator[WorkerProcess]:
    """Run a worker on the servers of the test; `before` is Python code that the worker's process runs first."""
    environment = {**os.environ, **replace(settings, heartbeat=1, cache_bytes=2**30).to_env()}
    process = WorkerProcess(fork_server().ask(name=name, environment=environment, before=before))
    try:
        yield process
    finally:
        if process.poll() is None:
            below = [*children(process.pid), *horses(process.pid)]
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            # A dying process would take the next test's task.
            until(lambda: not any(command_line(pid) for pid in below))


def horses(pid: int) -> list[int]:
    """Return the pids of a worker's work-horses."""
    roles = ("glle-quick", "glle-batch")
    return [horse for role in roles for forking in children(pid, role) for horse in children(forking)]
