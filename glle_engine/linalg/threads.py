"""Protect forked processes and several callers from the threads of numba and faiss, which would hang or terminate them.

A forked child does not have the threads of its parent, but GNU OpenMP in the child does not know this: numba terminates
a child that runs parallel loops again, and faiss waits forever. numba's own threads (its layer "workqueue", used where
there is no OpenMP) start again after a fork, but numba terminates a process in which two threads run parallel loops at
the same time.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import numba

from glle_engine.base.errors import ForkedProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Threads:
    """Records whether this process lost the threads of numba and faiss when it was forked.

    The lock `one_caller` lets one thread at a time run parallel loops of numba.
    """

    def __init__(self) -> None:
        self.numba_is_lost = False
        self.faiss_is_lost = False
        self.one_caller = threading.Lock()

    def note_fork(self) -> None:
        """Record, in a forked child, which libraries may have had threads in the parent process."""
        with suppress(ValueError):  # numba raises ValueError if its threads were not started
            is_gnu = numba.threading_layer() == "omp" and sys.platform == "linux"
            self.numba_is_lost |= is_gnu or self.one_caller.locked()
        self.faiss_is_lost = "faiss" in sys.modules
        self.one_caller = threading.Lock()


_THREADS = _Threads()
os.register_at_fork(after_in_child=_THREADS.note_fork)


@contextmanager
def numba_loops(title: str) -> Iterator[None]:
    """Make parallel loops of numba safe in a with-block or decorated function, or raise an error if they cannot be.

    With numba's threading layer "workqueue", callers wait for each other, so that one at a time runs its loops. `title`
    names the method in the error.

    Raises
    ------
    ForkedProcessError
        If this process was forked from one that had run loops in threads of OpenMP.

    """
    if _THREADS.numba_is_lost:
        raise ForkedProcessError(
            f"{title} cannot run in process {os.getpid()}: it was forked after numba had started threads, which the "
            "child does not have.",
            remedy="Start the processes by spawn (multiprocessing.get_context('spawn')) or by loky (joblib), or set "
            "NUMBA_THREADING_LAYER=workqueue before numba is imported.",
            details={"method": title},
        )
    numba.get_num_threads()  # starts the threads
    with _THREADS.one_caller if numba.threading_layer() == "workqueue" else nullcontext():
        yield


def faiss_has_threads() -> bool:
    """Return whether faiss may use several threads: false in a process that was forked after faiss was imported."""
    return not _THREADS.faiss_is_lost
