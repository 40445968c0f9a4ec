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

PARENT = """
import signal, subprocess, sys, time
from worker.execution import process_guard
child = subprocess.Popen(["sleep", "60"], preexec_fn=process_guard.preexec(signal.SIGKILL), start_new_session=True)
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
def test_child_dies_with_a_killed_parent() -> None:
    """A kill -9 of the parent leaves no child."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not alive(child))
