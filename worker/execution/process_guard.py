"""Make child processes end with their parent, on Linux even if the parent is killed."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1


def die_with_parent(signum: int, parent: int) -> None:
    """Make the kernel send the signal `signum` to this process when its parent ends (Linux; elsewhere a no-op).

    The kernel sends the signal when the *thread* that started the child ends, so start children from the main thread.
    `parent` is the expected pid of the parent: if it differs, the parent has already ended, and the signal is sent at
    once.
    """
    if not LINUX:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def preexec(signum: int) -> Callable[[], None]:
    """Return a `preexec_fn` for `subprocess.Popen`: the child gets the signal `signum` when this process ends."""
    parent = os.getpid()
    return lambda: die_with_parent(signum, parent)
