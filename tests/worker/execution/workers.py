"""Workers as processes, and their descendants."""

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

from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings


class ForkServer:
    """Client of `tests.worker.execution.fork_server`."""

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
    """A worker with the methods of `subprocess.Popen`."""

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
    """Run a worker on the test's servers; `before` is a program that its process runs first."""
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
            until(lambda: not any(is_running(pid) for pid in below))


def children(pid: int, name: str = "") -> list[int]:
    """Return the pids of a process's children, or of those with a name."""
    try:
        pids = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in pids if not name or name_of(child) == name]


def name_of(pid: int) -> str:
    """Return the name of a process as the kernel shows it; empty for a missing process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait long for its parent."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def horses(pid: int) -> list[int]:
    """Return the pids of a worker's work-horses."""
    roles = ("glle-quick", "glle-batch")
    return [horse for role in roles for forking in children(pid, role) for horse in children(forking)]
