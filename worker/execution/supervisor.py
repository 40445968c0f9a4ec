"""The worker's eye on its work-horse: work that nobody wants any more stops within two seconds, whatever it is doing.

A task stops by itself where it tells its progress (`worker.jobs.store.Cancelled`), or when its time is over. Inside one long
call of compiled code it tells nothing, and hears no signal that Python would handle; so the worker looks, too, and
kills what goes on.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import redis

from worker.base.problems import timed_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from worker.jobs.store import JobStore

LOOK_SECONDS = 0.25  # a read of one record: four a second for each worker that works
GRACE_SECONDS = 1.0  # for the task to stop by itself

log = logging.getLogger(__name__)


class Overseer:
    """Looks, while a work-horse works, whether its job is still wanted.

    Parameters
    ----------
    jobs
        The records.
    job
        The id of the job.
    horse
        The pid of the work-horse, which leads a process group of its own.
    seconds
        What the task may take; one that takes more ends its job.
    before
        Called before the work-horse is killed.

    Attributes
    ----------
    killed : bool
        Whether it had to be killed.

    """

    def __init__(self, jobs: JobStore, job: str, horse: int, seconds: int, before: Callable[[], object]) -> None:
        self.killed = False
        self._jobs = jobs
        self._job = job
        self._horse = horse
        self._seconds = seconds
        self._before = before
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="overseer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()  # no thread of it is there when the next work-horse is forked

    def _look(self) -> None:
        too_long = time.monotonic() + self._seconds + GRACE_SECONDS
        while not self._over.wait(LOOK_SECONDS):
            with suppress(redis.RedisError):  # without an answer it may be wanted
                if time.monotonic() > too_long:
                    self._jobs.fail(self._job, timed_out(self._seconds))
                elif self._jobs.wanted(self._job) or self._over.wait(GRACE_SECONDS):
                    continue
                self._kill()
                return

    def _kill(self) -> None:
        log.warning("Job %s is not wanted any more and did not stop: work-horse %d is killed", self._job, self._horse)
        self.killed = True
        self._before()
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._horse, signal.SIGKILL)
