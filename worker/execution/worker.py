"""A worker: RQ's forking worker for long tasks, an executor for short ones, and the parent that watches both.

`main` is the command `glle worker`. The parent loads the engine once and forks its two children, so that a child that
was killed is replaced within milliseconds:

    parent -> forking worker -> one work-horse for each long task
          `-> executor

The children die with the parent. The parent kills an executor whose job is not wanted or that exceeds its time, and
returns the tasks of a dead executor to their queue. On a first signal the children finish their work, on a second one
they return it.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from glle_engine.posterior.fingerprint import numerics_kind
from worker.base.numerics import adopt, kind_of
from worker.base.problems import timed_out
from worker.base.settings import Settings, SettingsError
from worker.base.versions import queue_name
from worker.connections.clients import connect_queue
from worker.execution import forking_worker, process_guard
from worker.execution.executor import Executor
from worker.execution.supervisor import GRACE_SECONDS, LOOK_SECONDS
from worker.jobs.executor_queue import ExecutorQueue
from worker.observability import logging as logs
from worker.observability import tracing
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

AGAIN_SECONDS = 1.0  # between two attempts to reach a server
IDLE_SECONDS = 1.0  # between two looks at children without work
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # before the replacement of a child that ended soon after its start
STEADY_SECONDS = 5.0

_OTHER_KIND = (
    "Numerics kind: {}; reference results differ in bits from the pinned ones. This worker takes work of its kind "
    "only, and its results have separate ids. Install numba: pip install 'glle[fast]'."
)

log = logging.getLogger(__name__)


@dataclass
class Child:
    """A forked process, replaced when it ends."""

    name: str  # as the kernel shows it
    run: Callable[[], int]
    pid: int = 0
    started: float = 0.0
    due: float = 0.0
    pause: float = 0.0

    def start(self) -> None:
        """Fork the process."""
        self.started, parent = time.monotonic(), os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            process_guard.die_with_parent(signal.SIGKILL, parent)
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
            signal.set_wakeup_fd(-1)
            with suppress(OSError):  # Linux
                Path("/proc/self/comm").write_text(self.name)
            code = self.run()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            log.exception("%s ended", self.name)
        finally:
            logging.shutdown()
            os._exit(code)

    def reap(self) -> bool:
        """Return whether the process has ended just now."""
        if not self.pid:
            return False
        try:
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                return False
        except ChildProcessError:
            pass
        is_steady = time.monotonic() - self.started > STEADY_SECONDS
        self.pause = 0.0 if is_steady else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.pid, self.due = 0, time.monotonic() + self.pause
        return True

    def send(self, signum: int) -> None:
        """Send a signal, if the process runs."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)


@dataclass
class Watch:
    """What the executor does, as its reports say."""

    task: str | None = None  # empty for requests
    job: str = ""
    since: float = 0.0
    looked: float = 0.0
    renewed: float = 0.0
    unwanted_since: float | None = None
    _partial: bytes = field(default=b"", repr=False)

    def read(self, raw: bytes) -> None:
        """Read reports; the last one counts."""
        *lines, self._partial = (self._partial + raw).split(b"\n")
        if not lines:
            return
        report, now = json.loads(lines[-1]), time.monotonic()
        self.task, self.job = report.get("task"), report.get("job", "")
        self.since = self.looked = self.renewed = now
        self.unwanted_since = None


class Worker:
    """The parent of a worker's processes."""

    def __init__(self, name: str, numbers: str, settings: Settings) -> None:
        self._settings = settings
        self._name = name
        self._numbers = numbers
        self._stores = Stores.connect(settings)
        self._queue = ExecutorQueue(
            self._stores.client, queue=queue_name(numbers), executor=name, heartbeat=settings.heartbeat
        )
        self._forked = 0
        self._forking = Child("glle-forking", self._run_forking)
        self._executor = Child("glle-executor", self._run_executor)
        self._reports, self._reports_of_executor = -1, -1
        self._watch = Watch()
        self._signals = 0
        self._reminded = 0.0  # monotonic time of the latest signal to the forking worker
        self._is_held = False  # whether a dead executor may hold tasks

    def run(self) -> int:
        """Run the children until a signal; return the exit code."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes `select`
        while True:
            self._replace_ended()
            if self._signals and not (self._executor.pid or self._forking.pid):
                self._return_tasks()
                return 0
            self._remind()
            self._look()
            busy = self._watch.task is not None
            descriptors = [wake] if self._reports < 0 else [wake, self._reports]
            ready, _, _ = select.select(descriptors, [], [], self._seconds_to_next(busy=busy))
            if wake in ready:
                os.read(wake, 4096)
            if self._reports in ready:
                self._watch.read(os.read(self._reports, 65536))

    def _seconds_to_next(self, *, busy: bool) -> float:
        """Return the seconds until a look or a start is due."""
        now = time.monotonic()
        children = (self._forking,) if self._is_held else (self._forking, self._executor)
        due = [child.due - now for child in children if not child.pid and not self._signals]
        return max(0.0, min([LOOK_SECONDS if busy or self._is_held else IDLE_SECONDS, *due]))

    def _replace_ended(self) -> None:
        """Start the children that are due, and return the tasks of those that ended."""
        if self._forking.reap() and not self._signals:
            log.warning("The forking worker ended and is replaced")
            with suppress(redis.RedisError):  # its heartbeat expires
                self._stores.recovery.requeue_tasks_of(self._forking_name(), of_executor=False)
        if self._executor.reap():
            if not self._signals:
                log.warning("The executor ended and is replaced")
            os.close(self._reports)
            self._reports, self._watch, self._is_held = -1, Watch(), True
        self._return_tasks()
        for child in (self._forking, self._executor):
            is_free = child is self._forking or not self._is_held  # its successor would lose its tasks to the dead one
            if not child.pid and is_free and time.monotonic() >= child.due:
                self._start(child)

    def _start(self, child: Child) -> None:
        """Fork a child unless the worker stops; a signal is handled before it or after it."""
        signals = {signal.SIGTERM, signal.SIGINT}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            if not self._signals:
                self._fork(child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _fork(self, child: Child) -> None:
        if child is self._forking:
            self._forked += 1
        else:
            self._reports, self._reports_of_executor = os.pipe()
        child.start()
        if child is self._executor:
            os.close(self._reports_of_executor)

    def _return_tasks(self) -> None:
        """Return the tasks of a dead executor to their queue."""
        if self._is_held:
            with suppress(redis.RedisError):  # tried again
                self._queue.give_back()
                self._is_held = False

    def _look(self) -> None:
        """Renew the lease of the executor's task; kill the executor if the task is not wanted or late."""
        watch, now = self._watch, time.monotonic()
        if watch.task is None or not self._executor.pid or now - watch.looked < LOOK_SECONDS:
            return
        watch.looked = now
        is_late = now - watch.since > self._settings.job_timeout + GRACE_SECONDS
        with suppress(redis.RedisError):  # without an answer the job counts as wanted
            if watch.task and now - watch.renewed > self._settings.heartbeat:
                self._queue.renew(watch.task)
                watch.renewed = now
            if is_late and watch.job:
                self._stores.jobs.fail(watch.job, timed_out(self._settings.job_timeout))
            if not is_late:
                if not watch.job or self._stores.jobs.is_wanted(watch.job):
                    watch.unwanted_since = None
                    return
                watch.unwanted_since = watch.unwanted_since or now
                if now - watch.unwanted_since < GRACE_SECONDS:
                    return
            log.warning("Job %s is not wanted and did not stop: killing executor %d", watch.job, self._executor.pid)
            if watch.job:
                self._stores.jobs.finish_cancel(watch.job)
            self._executor.send(signal.SIGKILL)

    def _remind(self) -> None:
        """Repeat that the forking worker should end, which does not change the end of its task."""
        if self._signals and time.monotonic() - self._reminded > IDLE_SECONDS:
            self._reminded = time.monotonic()
            self._forking.send(forking_worker.REMINDER)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Stop warm at the first signal, cold at the second."""
        del signum, frame
        self._signals += 1
        self._reminded = time.monotonic()
        self._forking.send(signal.SIGTERM)
        self._executor.send(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _forking_name(self) -> str:
        return self._name if self._forked <= 1 else f"{self._name}.{self._forked}"

    def _run_forking(self) -> int:
        process_stores.cache_clear()
        if self._reports >= 0:  # the executor's pipe ends with the parent
            os.close(self._reports)
        return forking_worker.work(self._forking_name(), self._numbers, self._settings)

    def _run_executor(self) -> int:
        process_stores.cache_clear()
        os.close(self._reports)
        Executor(process_stores(), self._name, self._reports_of_executor).run()
        return 0


def main(name: str | None = None) -> int:
    """Work until a signal; return the exit code. `name` in the registry is by default that of host and process."""
    settings = Settings.from_env()
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise SettingsError(f"A worker's name has letters, digits, _ and - only, not {name!r}.")
    logs.configure(settings)
    load(settings)
    gc.freeze()  # keep the pages shared with the children
    numbers = adopt(numerics_kind())
    if kind_of(numbers):
        log.warning("%s", _OTHER_KIND.format(numbers))
    _wait_for_server(connect_queue(settings))
    name = name or f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
    log.info("Worker %s started. Numerics kind: %s", name, numbers)
    code = Worker(name, numbers, settings).run()
    log.info("Worker %s stopped", name)
    return code


def load(settings: Settings) -> None:
    """Load what all processes of workers share, before a fork: compiled code, and the reference results."""
    if tracing.wanted(settings):
        tracing.load()
    if find_spec("numba") is not None:
        from glle_engine.eigen.eigenproblem import warm  # noqa: PLC0415 -- numba takes a while to load

        warm()
    numerics_kind()


def _wait_for_server(connection: redis.Redis) -> None:
    """Wait until a server answers; an exit would be restarted with ever longer pauses."""
    while True:
        try:
            connection.ping()
        except redis.RedisError as error:
            log.warning("The queue's Redis does not answer: %s", error)
            time.sleep(AGAIN_SECONDS)
        else:
            connection.close()
            return


def _pipe() -> tuple[int, int]:
    """Return a pipe that does not block, on systems without `os.pipe2`."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


if __name__ == "__main__":
    sys.exit(main())
