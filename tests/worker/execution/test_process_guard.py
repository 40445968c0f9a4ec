"""Child processes that end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import until
from worker.execution import process_guard
from worker.execution.process_guard import ProcessGuard

PARENT = """
import signal, subprocess, sys, time
from worker.execution import process_guard
child = subprocess.Popen(["sleep", "60"], preexec_fn=process_guard.preexec(signal.SIGKILL), start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""

WATCHED = """
import subprocess, time
from worker.execution.process_guard import ProcessGuard
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
ProcessGuard().add(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    """Return whether a process runs (a zombie does not)."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
@pytest.mark.parametrize("program", [PARENT, WATCHED], ids=["prctl", "watcher"])
def test_child_dies_with_a_killed_parent(program: str) -> None:
    """A kill -9 of the parent leaves no child, with the kernel's signal or with the guard."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not alive(child))


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_a_closed_watcher_kills_no_process() -> None:
    """A closed guard ends, and the registered child stays."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:  # noqa: S607 # the command on PATH
        guard = ProcessGuard()
        guard.add(child.pid)
        guard.close()
        assert alive(child.pid)
        child.kill()
