"""Process trees: children that are restarted when they end, and the head of the API processes of `glle serve`."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from service.server.listening import STOP_SECONDS
from worker.execution import process_guard
from worker.observability import logging
from worker.operations.preloader import Forked, Preloader

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from worker.base.settings import Settings

TICK = 0.1  # seconds between two looks at the processes
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds before a restart
STEADY_SECONDS = 5.0  # a process that ran longer is restarted without a pause
COLD_SECONDS = 3.0  # after a second SIGTERM, and after SIGKILL
PROBE_SECONDS = 1.0
PROGRAM = ("-m", "service.cli", "preload")


@dataclass
class Process:
    """A running process."""

    popen: subprocess.Popen[bytes] | Forked


@dataclass
class Child:
    """One place in the process tree, restarted with growing pauses."""

    name: str
    spawn: Callable[[], Process]
    log: Callable[[str], None]
    running: Process | None = None
    pause: float = 0.0
    due: float = 0.0
    started: float = 0.0

    def start(self) -> None:
        """Start a process."""
        self.running = self.spawn()
        self.started = time.monotonic()

    def reap(self) -> Process | None:
        """Return the process if it has ended, and schedule the next start."""
        ended = self.running
        if ended is None or ended.popen.poll() is None:
            return None
        is_steady = time.monotonic() - self.started > STEADY_SECONDS
        self.pause = 0.0 if is_steady else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.due = time.monotonic() + self.pause
        self.log(f"{self.name} ended with {ended.popen.returncode}; restart in {self.pause:g} s")
        self.running = None
        return ended


class ProcessTree:
    """Children of this process, which end with it even if it is killed.

    On Linux they are forked from a preloader. Elsewhere a fork is unsafe or no parent adopts a process, and each
    child is started by itself.

    Parameters
    ----------
    log
        Called with each message.

    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._watcher = None if process_guard.LINUX else process_guard.ProcessGuard()
        self._preloader: Preloader | None = None
        self.children: list[Child] = []

    def add(self, name: str, spawn: Callable[[], Process]) -> Child:
        """Add a child without starting it."""
        self.children.append(Child(name, spawn, self._log))
        return self.children[-1]

    def add_api(self, sock: socket.socket, processes: int, environment: Mapping[str, str]) -> None:
        """Add API processes that accept connections on one listening socket."""
        for number in range(1, processes + 1):
            self.add(f"API {number}", partial(self.command, ["serve"], environment, sock))

    def command(
        self, arguments: list[str], environment: Mapping[str, str], sock: socket.socket | None = None
    ) -> Process:
        """Start a command of this program; with a socket, it has the option ``--fd``."""
        descriptors = () if sock is None else (sock.fileno(),)
        if self._preloader is not None or process_guard.adopt_orphans():
            self._preloader = self._preloader or Preloader(PROGRAM, environment)
            return Process(self._preloader.fork(arguments, descriptors))
        return self.guarded(
            subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service.cli", *with_descriptors(arguments, descriptors)],
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the head alone, which stops the others in order
                preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # this process has one thread
            )
        )

    def guarded(self, popen: subprocess.Popen[bytes]) -> Process:
        """Register a process with the watcher, which ends it if this process is killed."""
        if self._watcher is not None:
            self._watcher.add(popen.pid)
        return Process(popen)

    def start_due(self) -> None:
        """Start the children that do not run and are due."""
        for child in self.children:
            if child.running is None and time.monotonic() >= child.due:
                child.start()

    def reap(self) -> list[Process]:
        """Return the processes that ended since the last call."""
        ended = [process for child in self.children if (process := child.reap()) is not None]
        pids = {child.running.popen.pid for child in self.children if child.running is not None}
        if self._preloader is not None and 0 not in pids:  # a child without a pid would be taken for an orphan
            self._preloader.reap(pids)
        return ended

    def stop(self, children: Iterable[Child], grace: float, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """End children: SIGTERM and `grace` seconds, SIGTERM again, then SIGKILL.

        The first wait ends early once `is_urgent` returns true.
        """
        running = [child.running.popen for child in children if child.running is not None]
        stages = (signal.SIGTERM, grace), (signal.SIGTERM, COLD_SECONDS), (signal.SIGKILL, COLD_SECONDS)
        for stage, (signum, seconds) in enumerate(stages):
            for process in running:
                process.send_signal(signum)
            deadline = time.monotonic() + seconds
            while (running := [p for p in running if p.poll() is None]) and time.monotonic() < deadline:
                if stage == 0 and is_urgent():
                    break
                time.sleep(TICK / 2)

    def close(self) -> None:
        """End the preloader, and the watcher without a kill."""
        if self._preloader is not None:
            self._preloader.close()
        if self._watcher is not None:
            self._watcher.close()


class ApiSupervisor:
    """Head of the API processes of `glle serve`: it restarts each that ends, and stops all of them together.

    Parameters
    ----------
    settings
        `api_processes` is the number of processes.
    sock
        A listening socket, which the head holds and all processes share.

    """

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self._settings = settings
        self._sock = sock
        self._signals = 0

    def run(self) -> int:
        """Run until a signal; return the exit code, that of the first process if it ends before the API answers."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        tree = ProcessTree(self._log)
        # More arenas keep the freed memory of each thread.
        environment = {"MALLOC_ARENA_MAX": "2", **os.environ, **self._settings.to_env()}
        tree.add_api(self._sock, self._settings.api_processes, environment)
        host, port = self._sock.getsockname()[:2]
        is_serving = False
        try:
            while not self._signals:
                tree.start_due()
                if not is_serving and (is_serving := answers(host, port, "/livez")):
                    shown = f"[{host}]" if ":" in host else host
                    self._log(f"glle API at http://{shown}:{port}")
                if (ended := tree.reap()) and not is_serving:
                    return max(1, ended[0].popen.returncode or 0)
                time.sleep(TICK)
        finally:
            settings = self._settings
            tree.stop(tree.children, settings.drain + STOP_SECONDS + COLD_SECONDS, lambda: self._signals > 1)
            tree.close()
        return 0

    def _on_signal(self, signum: int, frame: object) -> None:
        del signum, frame
        self._signals += 1

    def _log(self, text: str) -> None:
        logging.announce(text, self._settings)


def with_descriptors(arguments: Sequence[str], descriptors: Sequence[int]) -> list[str]:
    """Return the arguments of a command that inherits these descriptors."""
    return [*arguments, *(f"--fd={number}" for number in descriptors)]


def answers(host: str, port: int, path: str, seconds: float = PROBE_SECONDS) -> bool:
    """Return whether a path of the API answers 200 within some seconds."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    with contextlib.closing(http.client.HTTPConnection(target, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
