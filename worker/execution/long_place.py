"""The long place of a worker, by which its two RQ workers take turns with tasks of any length."""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref
from pathlib import Path


class LongPlace:
    """A lock between the RQ workers of one parent, which the end of a process releases.

    A batch task needs the place to start. A task that began as interactive needs it once its first seconds are over.
    """

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp()  # inherited by a fork; its locks are of the process
        Path(path).unlink()
        weakref.finalize(self, os.close, self._file)

    def try_acquire(self) -> bool:
        """Acquire the place unless the other RQ worker has it; return whether this one has it now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Release the place, if this RQ worker has it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
