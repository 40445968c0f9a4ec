"""A lock with which the two RQ workers of a worker take turns at long tasks."""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref
from pathlib import Path


class LongPlace:
    """A lock between the RQ workers of one parent; a process that ends releases it.

    A batch task starts only with the lock. An interactive task needs it once its first seconds are over.
    """

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp()  # forks inherit the file, but each process has its own locks
        Path(path).unlink()
        weakref.finalize(self, os.close, self._file)

    def try_acquire(self) -> bool:
        """Acquire the lock unless the other RQ worker has it; return whether this one has it now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Release the lock, if this RQ worker has it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
