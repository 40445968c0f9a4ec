"""Child processes that end with their parent, even if the parent is killed."""

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
    """Have the kernel send this process `signum` when its parent is gone (Linux; elsewhere a no-op).

    The signal follows the parent's *thread*, so start children from the main thread. The pid reveals a parent that died
    before the call.
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


class ProcessGuard:
    """A process that kills registered process groups when its pipe closes: the substitute outside of Linux."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.execution.process_guard"], stdin=subprocess.PIPE, start_new_session=True
        )

    def add(self, pid: int) -> None:
        """Kill the process group `pid` when this process is gone."""
        self._write(f"{pid}\n")

    def close(self) -> None:
        """End the guard without a kill."""
        self._write("done\n")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def main() -> None:
    """Read pids until the pipe ends, and kill their process groups unless the last line is ``done``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = [line.strip() for line in sys.stdin]
    if lines[-1:] == ["done"]:
        return
    for line in lines:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(line), signal.SIGKILL)


if __name__ == "__main__":
    main()
