"""Lock by which only one of the two RQ workers of a worker runs a long task at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref
from pathlib import Path


class LongPlace:
    """Lock, shared by the RQ workers of one parent, of which only one at a time may run a long task.

    A batch task starts only with the lock. An interactive task needs the lock to go on after its first seconds. The
    system releases the lock of a process that ends.
    """

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp()  # forks inherit the file, but each process has its own locks
        Path(path).unlink()
        weakref.finalize(self, os.close, self._file)

    def try_acquire(self) -> bool:
        """Acquire the lock unless the other RQ worker has it; return whether this RQ worker has the lock now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Release the lock, if this RQ worker has it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
