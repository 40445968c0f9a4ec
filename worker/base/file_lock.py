"""One at a time, over all processes that see a folder."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from worker.base.files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this file, made with its folder when absent; wait while another process holds it.

    The file is its owner's alone, because any user who can open it could hold its lock for ever.
    """
    with private_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
