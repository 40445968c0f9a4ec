"""A supervisor of child processes: it replaces a child that ends, and stops all children together.

`glle up`, `glle serve` and `glle worker` each have one supervisor. The supervisor loads the modules that its children
share before it forks them, so that a killed child is replaced within milliseconds. On Linux, the children end if the
supervisor is killed.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

CHILD_CHECK_SECONDS = 1.0  # longest pause between two checks of the children; the end of a child is noticed at once
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # pauses in seconds before a child that ended soon after its start is replaced
STEADY_SECONDS = 5.0  # a child that ran longer than this is replaced without a pause
REPEAT_SECONDS = 1.2  # pause between signals to a child that must stop at once; RQ ignores signals within a second
KILL_SECONDS = 4.0  # a child that must stop at once is killed after this time
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_M_ARENA_MAX = -8  # number of the option of glibc's mallopt that limits how many memory arenas a process has

log = logging.getLogger(__name__)


def fork(name: str, run: Callable[[], int]) -> int:
    """Fork a child process that runs a function, and ends if this process ends; return the child's pid.

    The kernel shows at most 15 characters of the child's name. The child has its own session, so that Ctrl-C in the
    terminal does not reach it.
    """
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child has reset the parent's handlers
    if pid := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    code = 1
    try:
        process_guard.die_with_parent(signal.SIGKILL, parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for signum in (*SIGNALS, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        with suppress(OSError):  # only Linux has this file
            Path("/proc/self/comm").write_text(name)
        code = run()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        log.exception("%s ended", name)
    finally:
        logging.shutdown()
        os._exit(code)


@dataclass
class Child:
    """A child of a supervisor: one process at a time, which is replaced when it ends.

    Attributes
    ----------
    spawn : callable
        Starts a process and returns its pid.
    pid : int
        Pid of the present process; 0 while no process runs.
    code : int or None
        Exit code of the last process that ended; minus the signal's number if a signal ended the process.
    starts : int
        Number of processes that were started so far.
    due : float
        Monotonic time at which the next process may start.
    pause : float
        Seconds between the end of the last process and the start of the next one.
    is_disposable : bool
        Whether the process is killed if it must stop at once. Other processes get a second SIGTERM, so that they can
        stop their own children.

    """

    name: str
    spawn: Callable[[], int]
    is_disposable: bool = False
    pid: int = 0
    code: int | None = None
    starts: int = 0
    started: float = 0.0
    due: float = 0.0
    pause: float = 0.0

    def start(self) -> None:
        """Start a process for this child."""
        self.started = time.monotonic()
        self.starts += 1
        self.pid = self.spawn()

    def reap(self) -> bool:
        """Return whether the process has ended since the last call; if so, set `code` and the next start (`due`)."""
        if not self.pid:
            return False
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # other code has reaped the process, so its status is lost: assume exit code 1
            pid, status = self.pid, 1 << 8
        if not pid:
            return False
        is_steady = time.monotonic() - self.started > STEADY_SECONDS
        self.pause = 0.0 if is_steady else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.pid, self.code, self.due = 0, os.waitstatus_to_exitcode(status), time.monotonic() + self.pause
        return True

    def send(self, signum: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)


class Supervisor:
    """Starts child processes, replaces those that end, and stops all of them after a signal.

    Parameters
    ----------
    report
        Called with a message whenever a child has ended.

    Attributes
    ----------
    signals : int
        Number of signals to stop so far. After the first, children may finish their work; after a second, they must
        stop at once.

    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self.children: list[Child] = []
        self.signals = 0
        self._report = report
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        self._is_loading = False

    def add(self, name: str, spawn: Callable[[], int], *, is_disposable: bool = False) -> Child:
        """Register a child and return it. `spawn` is called at each start: it starts a process and returns its pid.

        `is_disposable` says whether the child's process may be killed if it must stop at once (see `Child`).
        """
        self.children.append(Child(name, spawn, is_disposable))
        return self.children[-1]

    def add_forked(self, name: str, run: Callable[[], int], *, is_disposable: bool = False) -> Child:
        """Add a child whose processes are forked from this process and run a function; return the child.

        `run` returns the exit code. `is_disposable` says whether the process may be killed if it must stop at once.
        """
        return self.add(name, lambda: fork(name, run), is_disposable=is_disposable)

    def listen(self) -> None:
        """Install the signal handlers by which this process notices signals to stop, and the end of a child."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for signum in SIGNALS:
            signal.signal(signum, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # no action: the signal only has to wake `pause`

    def load(self, *loaders: Callable[[], object]) -> None:
        """Call functions that load modules and data which forked children will share.

        A signal to stop that arrives meanwhile ends this process.
        """
        with suppress(AttributeError, OSError):  # only glibc has it; more arenas would keep freed memory
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        self._is_loading = True
        try:
            for load in loaders:
                load()
        finally:
            self._is_loading = False
        gc.collect()
        gc.freeze()  # so that garbage collection in children does not copy shared pages

    def start_due(self) -> None:
        """Start the children that do not run and whose pause is over, unless a signal to stop has arrived."""
        for child in self.children:
            if self.signals or child.pid or time.monotonic() < child.due:
                continue
            child.start()

    def reap(self) -> list[Child]:
        """Return the children whose processes have ended since the last call."""
        ended = [child for child in self.children if child.reap()]
        for child in ended if not self.signals else ():
            self._report(f"{child.name} ended with {child.code}; restart in {child.pause:g} s")
        return ended

    def pause(self, seconds: float) -> None:
        """Wait at most `seconds` for a signal or the end of a child."""
        select.select([self._wake], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def run(self, tick: Callable[[list[Child]], object] = lambda _: None) -> None:
        """Start and replace children until a signal to stop; after each check, call `tick` with the ended children."""
        while not self.signals:
            tick(self.reap())
            self.start_due()
            now = time.monotonic()
            self.pause(min([CHILD_CHECK_SECONDS, *(child.due - now for child in self.children if not child.pid)]))

    def stop(
        self, children: Iterable[Child], grace: float = math.inf, tick: Callable[[], object] = lambda: None
    ) -> None:
        """Stop children, and wait until all of their processes have ended.

        SIGTERM lets a child finish its work. After `grace` seconds, or if this process gets a second signal to stop,
        children must stop at once. Children that were added with `is_disposable`, because no harm is done if they are
        killed, are then killed. All others get SIGTERM again, so that they can stop their own children, and are killed
        `KILL_SECONDS` later. `tick` is called repeatedly in the meantime.
        """
        children = list(children)
        stages = self._stages(children, grace)
        next(stages)
        while any(child.pid for child in children):
            next(stages)
            tick()
            self.pause(REPEAT_SECONDS / 4)
            for child in children:
                child.reap()

    def close(self) -> None:
        """Close the supervisor's pipe, after its children have ended."""
        signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._wake_write)

    def _stages(self, children: list[Child], grace: float) -> Iterator[None]:
        """Send SIGTERM to children, later repeat the signal, and at last kill the children, as `stop` describes.

        The caller resumes this generator again and again; each step sends the signals that are due.
        """
        for child in children:
            child.send(signal.SIGTERM)
        until = time.monotonic() + grace
        while self.signals < 2 and time.monotonic() < until:
            yield
        until = time.monotonic() + KILL_SECONDS
        repeat = 0.0
        while time.monotonic() < until:
            if time.monotonic() >= repeat:
                repeat = time.monotonic() + REPEAT_SECONDS
                for child in children:
                    child.send(signal.SIGKILL if child.is_disposable else signal.SIGTERM)
            yield
        for child in children:
            child.send(signal.SIGKILL)
        while True:
            yield

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self.signals += 1
        if self._is_loading:
            raise SystemExit(0)
