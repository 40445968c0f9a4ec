"""A worker: two of RQ's workers, a sampler, and the parent that watches them.

`main` is the command `glle worker`. The parent loads the engine once and forks its children, so that a child that was
killed is replaced within milliseconds:

    parent -> RQ worker of interactive tasks         -> one work-horse for each
          |-> RQ worker of batches, then interactive -> one work-horse for each
          `-> sampler, which answers requests for single draws

The children die with the parent. On a first signal they finish their work, on a second one they are killed, and other
workers repeat it.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from rq import Worker as RqWorker
from rq.worker import WorkerStatus

import glle_engine
from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError
from worker.connections.clients import connect_queue
from worker.execution import process_guard, rq_worker
from worker.execution.sampler import BUSY, Sampler
from worker.jobs.rq_types import BATCH, INTERACTIVE
from worker.observability import logging as logs
from worker.observability import tracing
from worker.observability.live_workers import WorkerState, announce, prolong, withdraw
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

AGAIN_SECONDS = 1.0  # between two attempts to reach a server
LOOK_SECONDS = 1.0  # between two looks at the children
HUNG_SECONDS = 15.0  # of one lane group; a draw of more than a second is a job
REMIND_SECONDS = 1.5  # between two signals; RQ ignores a second one within a second
QUEUES_OF_ROLE = {"quick": (INTERACTIVE,), "batch": (BATCH, INTERACTIVE)}  # none starves
SWEPT = "glle:swept"  # exists for a heartbeat after a worker has looked for lost tasks
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # before the replacement of a child that ended soon after its start
STEADY_SECONDS = 5.0

log = logging.getLogger(__name__)


@dataclass
class Child:
    """A forked process, replaced when it ends."""

    name: str  # as the kernel shows it, at most 15 characters
    run: Callable[[], int]
    pid: int = 0
    started: float = 0.0
    due: float = 0.0
    pause: float = 0.0
    starts: int = 0

    def start(self) -> None:
        """Fork the process."""
        self.started, parent = time.monotonic(), os.getpid()
        self.starts += 1
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


class Worker:
    """The parent of a worker's processes."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._settings = settings
        self._name = name
        self._stores = Stores.connect(settings)
        self._rq = {role: Child(f"glle-{role}", partial(self._run_rq, role)) for role in QUEUES_OF_ROLE}
        self._sampler = Child("glle-sampler", self._run_sampler)
        self._reports, self._reports_of_sampler = -1, -1
        self._busy_since: float | None = None  # monotonic time of the sampler's latest report of work
        self._signals = 0
        self._next_heartbeat = 0.0
        self._reminded = 0.0  # monotonic time of the latest signal to the RQ workers

    def run(self) -> int:
        """Run the children until a signal; return the exit code."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes `select`
        while True:
            self._replace_ended()
            if self._signals and not any(child.pid for child in self._children):
                with suppress(redis.RedisError):
                    withdraw(self._stores.client, self._name)
                return 0
            self._heartbeat()
            self._remind()
            self._kill_if_hung()
            descriptors = [wake] if self._reports < 0 else [wake, self._reports]
            ready, _, _ = select.select(descriptors, [], [], self._seconds_to_next())
            if wake in ready:
                os.read(wake, 4096)
            if self._reports in ready:
                last = os.read(self._reports, 65536)[-1:]
                self._busy_since = time.monotonic() if last == BUSY else None

    @property
    def _children(self) -> list[Child]:
        return [*self._rq.values(), self._sampler]

    def _seconds_to_next(self) -> float:
        """Return the seconds until a look or a start is due."""
        now = time.monotonic()
        due = [child.due - now for child in self._children if not child.pid and not self._signals]
        return max(0.0, min([LOOK_SECONDS, *due]))

    def _replace_ended(self) -> None:
        """Start the children that are due in place of those that ended."""
        for child in self._children:
            if not child.reap():
                continue
            if not self._signals:
                log.warning("The process %s ended and is replaced", child.name)
            if child is self._sampler:
                os.close(self._reports)
                self._reports, self._busy_since = -1, None
        for child in self._children:
            if not child.pid and time.monotonic() >= child.due:
                self._start(child)

    def _start(self, child: Child) -> None:
        """Fork a child unless the worker stops; a signal is handled before it or after it."""
        signals = {signal.SIGTERM, signal.SIGINT}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            if self._signals:
                return
            if child is self._sampler:
                self._reports, self._reports_of_sampler = os.pipe()
            child.start()
            if child is self._sampler:
                os.close(self._reports_of_sampler)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _heartbeat(self) -> None:
        """Renew the worker's record and its alive file; let one worker look for lost tasks."""
        if time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + self._settings.heartbeat
        client = self._stores.client
        with suppress(OSError):  # a full disk; the worker works on
            prolong(self._settings)
        with suppress(redis.RedisError, ProblemError):
            announce(client, self._settings, self._state())
            if client.set(SWEPT, 1, nx=True, ex=self._settings.heartbeat):  # one worker is enough
                self._stores.recovery.sweep()

    def _state(self) -> WorkerState:
        busy = sum(map(self._is_busy, self._rq)) + (self._busy_since is not None)
        return WorkerState(
            name=self._name,
            host=socket.gethostname(),
            busy=busy,
            engine=glle_engine.__version__,
            numbers=self._stores.numbers,
            threads=os.environ.get("OPENBLAS_NUM_THREADS", ""),
        )

    def _is_busy(self, role: str) -> bool:
        """Return whether RQ says that a child runs a task; raises `redis.RedisError`."""
        key = f"{RqWorker.redis_worker_namespace_prefix}{self._rq_name(role)}"
        found = RqWorker.find_by_key(key, connection=self._stores.client)
        return found is not None and found.get_state() == WorkerStatus.BUSY

    def _kill_if_hung(self) -> None:
        """Kill a sampler that has drawn one lane group for too long; its requests are drawn again, each by itself."""
        if self._busy_since is not None and time.monotonic() - self._busy_since > HUNG_SECONDS:
            log.warning("The sampler hangs: killing process %d", self._sampler.pid)
            self._busy_since = None
            self._sampler.send(signal.SIGKILL)

    def _remind(self) -> None:
        """Repeat the signal to an idle RQ worker, because a library may have lost the exception of its handler."""
        if not self._signals or time.monotonic() - self._reminded < REMIND_SECONDS:
            return
        self._reminded = time.monotonic()
        for role, child in self._rq.items():
            with suppress(redis.RedisError):
                if child.pid and not self._is_busy(role):
                    child.send(signal.SIGTERM)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Stop warm at the first signal, cold at the second."""
        del signum, frame
        self._signals += 1
        self._reminded = time.monotonic()
        for child in self._rq.values():
            child.send(signal.SIGTERM)
        self._sampler.send(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _rq_name(self, role: str) -> str:
        """Return the name of an RQ worker, which differs from that of its predecessor."""
        return f"{self._name}.{role}.{self._rq[role].starts}"

    def _run_rq(self, role: str) -> int:
        process_stores.cache_clear()
        if self._reports >= 0:  # the sampler's pipe ends with the parent
            os.close(self._reports)
        return rq_worker.work(self._rq_name(role), QUEUES_OF_ROLE[role], self._settings)

    def _run_sampler(self) -> int:
        process_stores.cache_clear()
        os.close(self._reports)
        Sampler(process_stores(), self._name, self._reports_of_sampler).run()
        return 0


def main(name: str | None = None) -> int:
    """Work until a signal; return the exit code. `name` in the registry is by default that of host and process.

    Raises `SettingsError` for a name or a setting that is not valid, and if this machine computes other bits than the
    deployment (`require_bits`).
    """
    settings = Settings.from_env()
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise SettingsError(f"A worker's name has letters, digits, _ and - only, not {name!r}.")
    logs.configure(settings)
    load()
    gc.freeze()  # keep the pages shared with the children
    require_bits(settings)
    _wait_for_server(connect_queue(settings))
    name = name or f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
    log.info("Worker %s started", name)
    code = Worker(name, settings).run()
    log.info("Worker %s stopped", name)
    return code


def load() -> None:
    """Load what all processes of workers share, before a fork: compiled code, and the reference results."""
    if tracing.has_collector():
        tracing.load()
    warm()
    fingerprint()


def require_bits(settings: Settings) -> None:
    """Raise `SettingsError` unless reference results of this machine have the bits of the deployment."""
    own, expected = fingerprint(), settings.allow_other_bits or PINNED
    if own == expected:
        return
    remedy = (
        "Start all processes without GLLE_ALLOW_OTHER_BITS."
        if own == PINNED
        else "Install the versions of requirements/server.lock. If all workers are such machines, start "
        f"all processes of the deployment with GLLE_ALLOW_OTHER_BITS={own}."
    )
    raise SettingsError(
        "The worker does not start, because its results would differ in bits: the reference results of this machine "
        f"have the fingerprint {own}, those of the deployment {expected}. {remedy} See "
        "docs/explanation/reproducibility.md."
    )


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
