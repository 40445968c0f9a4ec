"""Children that die with their parent, however it dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1


def die_with_parent(signum: int, parent: int) -> None:
    """Ask the kernel to send this process `signum` when its parent is gone (Linux; elsewhere nothing).

    The signal follows the parent's *thread*: start children from the main thread. A parent that died
    before the call is noticed by its pid.
    """
    if not LINUX:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def preexec(signum: int) -> Callable[[], None]:
    """Return a `preexec_fn` for `subprocess.Popen` that ties the child to the calling process."""
    parent = os.getpid()
    return lambda: die_with_parent(signum, parent)


class Watcher:
    """A process that kills what it was told of when its pipe closes: the lifeline where Linux's is missing.

    `tell` names a child that leads its own process group; `close` ends the watcher without a kill.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.execution.process_guard"], stdin=subprocess.PIPE, start_new_session=True
        )

    def tell(self, pid: int) -> None:
        """Kill the process group `pid` when this process is gone."""
        self._write(f"{pid}\n")

    def close(self) -> None:
        """Let the watcher go: everything it knows of has ended."""
        self._write("done\n")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def watch() -> None:
    """Read pids until the pipe ends; unless it ended with ``done``, kill their process groups."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = [line.strip() for line in sys.stdin]
    if lines[-1:] == ["done"]:
        return
    for line in lines:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(line), signal.SIGKILL)


if __name__ == "__main__":
    watch()
