"""Child processes that end with their parent, on Linux even if the parent is killed."""

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
    """Have the kernel send this process `signum` when its parent is gone (Linux; elsewhere a no-op).

    The signal follows the parent's *thread*: start children from the main one. The pid reveals that it died before.
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
