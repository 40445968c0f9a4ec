"""`glle up`: start the servers, the API and the workers, restart each that ends, and stop all of them in order."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from service.cli.data_folder import locked, published
from service.cli.options import StartError
from worker.execution import process_guard
from worker.observability import logging
from worker.operations.embedded_redis import Server, ServerError, cache_server, queue_server
from worker.storage.free_space import DiskReserve
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings

TICK = 0.1  # seconds between two looks at the processes
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds before a restart
STEADY_SECONDS = 5.0  # a process that ran longer is restarted without a pause
READY_SECONDS = 60.0


@dataclass
class Process:
    """A running process, with its name in the registry if it is a worker."""

    popen: subprocess.Popen[bytes]
    worker: str = ""


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


class Supervisor:
    """Head of the process tree of `glle up`.

    Parameters
    ----------
    settings
        Without URLs the servers are embedded.
    sock
        A listening socket. The supervisor holds it, so that a restarted API has the same port.

    """

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self._settings = settings
        self._sock = sock
        self._servers: list[Server] = []
        self._children: list[Child] = []
        self._reserve = DiskReserve.of(settings)
        self._watcher = None if process_guard.LINUX else process_guard.ProcessGuard()
        self._is_stopping = False
        self._numbers = itertools.count(1)

    def run(self) -> int:
        """Run until a signal; return the exit code."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        data = Path(self._settings.data_dir).resolve()
        with locked(data), contextlib.ExitStack() as stack:
            try:
                settings = self._start(data)
                if self._servers:
                    stack.enter_context(published(data, settings))
                self._wait_until_ready(data)
                self._supervise(settings)
            except ServerError as error:
                raise StartError(str(error)) from error
            finally:
                self._stop()
        return 0

    def _log(self, text: str) -> None:
        logging.announce(text, self._settings)

    def _on_signal(self, signum: int, frame: object) -> None:
        del signum, frame
        self._is_stopping = True

    def _start(self, data: Path) -> Settings:
        """Start the servers, then the API and the workers; return the settings with the servers' URLs."""
        settings = self._settings
        if not settings.redis_url:
            queue, cache = queue_server(settings), cache_server(settings)
            self._servers = [queue, cache]
            self._reserve.release()  # the queue server needs some bytes to start on a full disk
            self._reserve.hold()
            for server in self._servers:
                self._children.append(Child(server.folder.name + " server", partial(self._server, server), self._log))
                self._children[-1].start()
            for server in self._servers:
                server.wait()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        environment = {
            "MALLOC_ARENA_MAX": "2",  # more arenas keep the freed memory of each thread
            **os.environ,
            **settings.to_env(),
            "GLLE_DATA_DIR": str(data),
        }
        self._children.append(Child("API", partial(self._api, environment), self._log))
        for number in range(1, settings.workers + 1):
            self._children.append(Child(f"worker {number}", partial(self._worker, environment), self._log))
        for child in self._children:
            if child.running is None:
                child.start()
        return settings

    def _server(self, server: Server) -> Process:
        return self._guarded(server.spawn())

    def _api(self, environment: dict[str, str]) -> Process:
        sock = self._sock.fileno()
        return self._command(["serve", "--fd", str(sock)], environment, descriptors=(sock,))

    def _worker(self, environment: dict[str, str]) -> Process:
        # A new name for each start, because the registry remembers a killed worker for a while.
        name = f"{socket.gethostname()}-{os.getpid()}-{next(self._numbers)}".replace(".", "-")
        return replace(self._command(["worker", "--name", name], environment), worker=name)

    def _command(self, arguments: list[str], environment: dict[str, str], descriptors: tuple[int, ...] = ()) -> Process:
        """Start a command of this program."""
        return self._guarded(
            subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service.cli", *arguments],
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the others in order
                preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # this process has one thread
            )
        )

    def _guarded(self, popen: subprocess.Popen[bytes]) -> Process:
        """Register a process with the watcher, which ends it if this process is killed."""
        if self._watcher is not None:
            self._watcher.add(popen.pid)
        return Process(popen)

    def _wait_until_ready(self, data: Path) -> None:
        """Wait for the API, then log its address."""
        host, port = self._sock.getsockname()[:2]
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_stopping and not _is_ready(host, port):
            self._restart_ended()
            if time.monotonic() > deadline:
                raise StartError(f"The service is not ready after {READY_SECONDS:g} s. See the messages above.")
            time.sleep(TICK / 2)
        if not self._is_stopping:
            shown = f"[{host}]" if ":" in host else host
            self._log(
                f"glle is ready at http://{shown}:{port} (documentation: /docs). Data in {data}. Ctrl-C stops it."
            )

    def _supervise(self, settings: Settings) -> None:
        lost: list[Process] = []
        while not self._is_stopping:
            lost += self._restart_ended()
            lost[:] = [process for process in lost if not _recover(settings, process)]
            if self._servers:
                self._reserve.hold()  # again, once the disk has room
            time.sleep(TICK)

    def _restart_ended(self) -> list[Process]:
        """Start the children that are due; return the processes that ended since the last call."""
        ended = []
        for child in self._children:
            if (process := child.reap()) is not None:
                ended.append(process)
                if self._servers and self._reserve.release():
                    self._log("The disk of the data folder is full: the reserve is released, new work is refused.")
            if child.running is None and time.monotonic() >= child.due:
                child.start()
        return ended

    def _stop(self) -> None:
        """Stop the API and the workers (warm, cold, then by SIGKILL), then the servers, which keep the queue."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        running = [c.running.popen for c in self._children[len(self._servers) :] if c.running is not None]
        warm, cold, hard = (signal.SIGTERM, self._settings.stop_grace), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)
        for signum, grace in (warm, cold, hard):
            for process in running:
                process.send_signal(signum)
            deadline = time.monotonic() + grace
            while (running := [p for p in running if p.poll() is None]) and time.monotonic() < deadline:
                time.sleep(TICK / 2)
        for server in self._servers:
            server.stop()
        if self._watcher is not None:
            self._watcher.close()


def _recover(settings: Settings, process: Process) -> bool:
    """Enqueue the task of a dead worker at once, because its heartbeat would expire only after some 20 s.

    Return False if the queue server did not answer.
    """
    if process.worker:
        try:
            with contextlib.closing(Stores.connect(settings)) as stores:
                stores.recovery.requeue_tasks_of(process.worker)
        except redis.RedisError:
            return False
    return True


def _is_ready(host: str, port: int) -> bool:
    """Return whether `/readyz` answers 200."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    connection = http.client.HTTPConnection(target, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
