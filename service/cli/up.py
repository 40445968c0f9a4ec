"""`glle up`: servers, API and workers as one tree that starts, stops and dies together.

SIGHUP replaces API and workers one after the other while the service goes on: see `service.cli.supervisor.replaced`.
"""

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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from service.cli.data_folder import held, told
from service.cli.main import BLAS_VARIABLES
from service.cli.start_error import StartError
from service.cli.supervisor import READY_SECONDS, Child, Started, pipe_is_up, replaced
from worker.execution import process_guard
from worker.observability import logging
from worker.operations.embedded_redis import Server, ServerError, cache_server, queue_server
from worker.storage.free_space import DiskReserve
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.base.settings import Settings
    from worker.jobs.queue import TaskQueue

TICK = 0.1


class Tree:
    """The head of the tree.

    Parameters
    ----------
    settings
        Without URLs the servers are embedded.
    sock
        Listens already: the port is ours before anything starts, and stays ours when the API restarts.

    """

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self._settings = settings
        self._sock = sock
        self._servers: list[Server] = []
        self._children: list[Child] = []
        self._reserve = DiskReserve.of(settings)
        self._watcher = None if process_guard.LINUX else process_guard.ProcessGuard()
        self._stopping = False
        self._leaving: list[Started] = []
        self._renewal: Iterator[None] = iter(())
        self._renew = False
        self._had_terminal = _has_terminal()
        self._numbers = itertools.count(1)

    def run(self) -> int:
        """Start everything, watch over it until a signal, stop it in order; return the exit code."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        data = Path(self._settings.data_dir).resolve()
        with held(data), contextlib.ExitStack() as stack:
            try:
                settings = self._start(data)
                if self._servers:
                    stack.enter_context(told(data, settings))
                self._announce(data)
                self._watch(settings)
            except ServerError as error:
                raise StartError(str(error)) from error
            finally:
                self._stop()
        return 0

    def _say(self, text: str) -> None:
        logging.announce(text, self._settings)

    def _on_signal(self, signum: int, frame: object) -> None:
        del frame
        if signum == signal.SIGHUP and _has_terminal() == self._had_terminal:
            self._renew = True
        else:  # a terminal that is closed ends what it began
            self._stopping = True

    def _start(self, data: Path) -> Settings:
        """Start the servers, then the rest; return the settings with the servers' URLs."""
        settings = self._settings
        if not settings.redis_url:
            queue, cache = queue_server(settings), cache_server(settings)
            self._servers = [queue, cache]
            self._reserve.release()  # or the queue server could not write on a disk that is full
            self._reserve.hold()
            for server in self._servers:
                self._children.append(Child(server.folder.name + " server", self._server(server), self._say))
                self._children[-1].start()
            for server in self._servers:
                server.wait()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        environment = {
            "MALLOC_ARENA_MAX": "2",  # or each thread keeps what it once needed for itself
            **os.environ,
            **settings.to_env(),
            "GLLE_DATA_DIR": str(data),
            **dict.fromkeys(BLAS_VARIABLES, "1"),
        }
        self._children.append(Child("API", partial(self._api, environment), self._say))
        registry = Stores.connect(settings).queue
        for number in range(1, settings.workers + 1):
            spawn = partial(self._worker, environment, registry)
            self._children.append(Child(f"worker {number}", spawn, self._say))
        for child in self._children:
            if child.running is None:
                child.start()
        return settings

    def _server(self, server: Server) -> Callable[[], Started]:
        return lambda: Started(self._told(server.spawn()))

    def _api(self, environment: dict[str, str]) -> Started:
        """Start an API process on the socket that is held here."""
        sock = self._sock.fileno()
        ready, told = os.pipe()
        process = self._command(["serve", "--fd", str(sock), "--ready-fd", str(told)], environment, (sock, told))
        os.close(told)
        return Started(process, pipe_is_up(ready))

    def _worker(self, environment: dict[str, str], registry: TaskQueue) -> Started:
        """Start a worker, by a name that none had before: the registry knows those that were killed for a while."""
        name = f"{socket.gethostname()}-{os.getpid()}-{next(self._numbers)}".replace(".", "-")
        process = self._command(["worker", "--name", name], environment)
        return Started(process, partial(registry.is_registered, name), name)

    def _command(
        self, arguments: list[str], environment: dict[str, str], descriptors: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        return self._told(
            subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service.cli", *arguments],
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the head alone, which stops the others in order
                preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # one thread: what dies with us is tied here
            )
        )

    def _told(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Let the watcher, where there is one, know of a process."""
        if self._watcher is not None:
            self._watcher.add(process.pid)
        return process

    def _announce(self, data: Path) -> None:
        """Say where it listens, once it is ready."""
        host, port = self._sock.getsockname()[:2]
        deadline = time.monotonic() + READY_SECONDS
        while not self._stopping and not _ready(host, port):
            self._look_after()
            if time.monotonic() > deadline:
                raise StartError("The service did not become ready in a minute; see the messages above.")
            time.sleep(TICK / 2)
        if not self._stopping:
            shown = f"[{host}]" if ":" in host else host
            self._say(
                f"glle is ready at http://{shown}:{port} (documentation: /docs). Data in {data}. Ctrl-C stops it."
            )

    def _watch(self, settings: Settings) -> None:
        lost: list[Started] = []
        while not self._stopping:
            lost += self._look_after()
            lost[:] = [gone for gone in lost if not _recovered(settings, gone)]  # the queue's server may be away, too
            if self._servers:
                self._reserve.hold()  # again, once there is room
            if next(self._renewal, self) is self and self._renew:  # one after the other, too
                self._renew = False
                children = self._children[len(self._servers) :]
                patience = settings.job_timeout + READY_SECONDS
                self._renewal = replaced(children, self._leaving, patience, self._say, lost.append)
            time.sleep(TICK)

    def _look_after(self) -> list[Started]:
        """Restart what ended and is due; return what ended just now."""
        gone = []
        for child in self._children:
            if (ended := child.ended()) is not None:
                gone.append(ended)
                if self._servers and self._reserve.release():
                    self._say("The disk of the data folder is full: the reserve is given up, new work is refused.")
            if child.running is None and time.monotonic() >= child.due:
                child.start()
        return gone

    def _stop(self) -> None:
        """Stop API and workers, warm, then cold; then the servers, which keep what was asked."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        servers = len(self._servers)
        running = [c.running.process for c in self._children[servers:] if c.running is not None]
        running += [started.process for started in self._leaving]
        warm, cold, hard = (signal.SIGTERM, self._settings.stop_grace), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)
        for attempt, grace in (warm, cold, hard):
            for process in running:
                process.send_signal(attempt)
            running = _still_running(running, grace)
        for server in self._servers:
            server.stop()
        if self._watcher is not None:
            self._watcher.close()


def _recovered(settings: Settings, gone: Started) -> bool:
    """Have what a worker was doing done again: its heartbeat would tell after some 20 s, but it was seen to end.

    Return False when the queue's server did not answer.
    """
    if gone.name:
        try:
            with contextlib.closing(Stores.connect(settings)) as here:
                here.recovery.requeue_tasks_of(gone.name)
        except redis.RedisError:
            return False
    return True


def _has_terminal() -> bool:
    """Say whether this process has a terminal; one that is closed is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _still_running(processes: list[subprocess.Popen[bytes]], grace: float) -> list[subprocess.Popen[bytes]]:
    deadline = time.monotonic() + grace
    while (left := [p for p in processes if p.poll() is None]) and time.monotonic() < deadline:
        time.sleep(TICK / 2)
    return left


def _ready(host: str, port: int) -> bool:
    """Say whether the service says it is ready."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    connection = http.client.HTTPConnection(target, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
