"""Supervision of a work-horse: kills the work of an unwanted job within two seconds.

A task stops by itself when it writes progress (`worker.jobs.store.Cancelled`), or when its time is over. Inside one
long call of compiled code it does neither and handles no signal, so its worker checks as well and kills it.
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

LOOK_SECONDS = 0.25  # between two reads of the job's record
GRACE_SECONDS = 1.0  # for the task to stop by itself

log = logging.getLogger(__name__)


class JobSupervisor:
    """Kills a work-horse whose job is not wanted any more.

    Parameters
    ----------
    horse
        The pid of the work-horse, which leads a separate process group.
    seconds
        The time limit of the task; beyond it the job fails.

    Attributes
    ----------
    has_killed : bool
        Whether the work-horse was killed.

    """

    def __init__(self, jobs: JobStore, job: str, horse: int, seconds: int, before_kill: Callable[[], object]) -> None:
        self.has_killed = False
        self._jobs = jobs
        self._job = job
        self._horse = horse
        self._seconds = seconds
        self._before_kill = before_kill
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()  # the next work-horse must be forked without this thread

    def _supervise(self) -> None:
        limit = time.monotonic() + self._seconds + GRACE_SECONDS
        while not self._ended.wait(LOOK_SECONDS):
            with suppress(redis.RedisError):  # without an answer the job counts as wanted
                if time.monotonic() > limit:
                    self._jobs.fail(self._job, timed_out(self._seconds))
                elif self._jobs.is_wanted(self._job) or self._ended.wait(GRACE_SECONDS):
                    continue
                self._kill()
                return

    def _kill(self) -> None:
        log.warning("Job %s is not wanted and did not stop: killing work-horse %d", self._job, self._horse)
        self.has_killed = True
        self._before_kill()
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._horse, signal.SIGKILL)
