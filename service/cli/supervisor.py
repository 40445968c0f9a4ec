"""`glle up`: start the servers, the API and the workers, restart each that ends, and stop all of them in order."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.data_folder import locked, published
from service.cli.options import CANNOT_START, StartError
from service.cli.process_tree import TICK, Process, ProcessTree, answers
from service.server.listening import STOP_SECONDS
from worker.observability import logging
from worker.operations.embedded_redis import Server, ServerError, cache_server, queue_server
from worker.storage.free_space import DiskReserve

if TYPE_CHECKING:
    from worker.base.settings import Settings

READY_SECONDS = 300.0  # the first start in an environment compiles for a minute or two
COMPILING_SECONDS = 10.0  # after which a start probably compiles
READY_PROBE_SECONDS = 5.0


class StartLine:
    """Line about a start in progress, updated in place; only on a terminal, and not among JSON lines.

    It ends with a carriage return, so that the next line of any process covers it.
    """

    def __init__(self, settings: Settings) -> None:
        self._is_shown = settings.log_format == "text" and sys.stderr.isatty()
        self._started = time.monotonic()

    def show(self) -> None:
        """Write the line."""
        self._write(f"glle starts: {time.monotonic() - self._started:.0f} s\r")

    def clear(self) -> None:
        """Erase the line."""
        self._write("\x1b[K")

    def _write(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(text)
            sys.stderr.flush()


def ready_text(url: str, data: Path, settings: Settings) -> str:
    """Return the status of a ready service: one line for JSON, else one screen; log lines follow it."""
    redis_ = "external Redis" if settings.redis_url else "embedded Redis"
    processes = f"{_counted(settings.api_processes, 'API process')}, {_counted(settings.workers, 'worker')}, {redis_}"
    if settings.log_format == "json":
        return f"glle is ready at {url} (documentation: /docs). {processes}. Data in {data}."
    rows = {
        "explorer": f"{url}/",
        "documentation": f"{url}/docs",
        "processes": processes,
        "data": data,
        "stop": "Ctrl-C",
    }
    return "\n".join([f"glle is ready at {url}", *(f"  {name:<13}  {value}" for name, value in rows.items())])


def _counted(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


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
        self._start_line = StartLine(settings)
        self._tree = ProcessTree(self._log)
        self._reserve = DiskReserve.of(settings)
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
                self._supervise()
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
                self._tree.add(server.folder.name + " server", partial(self._server, server)).start()
            for server in self._servers:
                server.wait()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        environment = {
            "MALLOC_ARENA_MAX": "2",  # more arenas keep the freed memory of each thread
            **os.environ,
            **replace(settings, drain=0.0).to_env(),  # `glle up` stops as a whole, so that no other process takes over
            "GLLE_DATA_DIR": str(data),
        }
        self._tree.add_api(self._sock, settings.api_processes, environment)
        for number in range(1, settings.workers + 1):
            self._tree.add(f"worker {number}", partial(self._worker, environment))
        self._tree.start_due()
        return settings

    def _server(self, server: Server) -> Process:
        return self._tree.guarded(server.spawn())

    def _worker(self, environment: dict[str, str]) -> Process:
        # A new name for each start, because the registry remembers a killed worker for a while.
        name = f"{socket.gethostname()}-{os.getpid()}-{next(self._numbers)}".replace(".", "-")
        return self._tree.command(["worker", "--name", name], environment)

    def _wait_until_ready(self, data: Path) -> None:
        """Wait for the API, then log its address."""
        host, port = self._sock.getsockname()[:2]
        start, is_named = time.monotonic(), False
        while not self._is_stopping and not answers(host, port, "/readyz", READY_PROBE_SECONDS):
            self._start_line.show()
            if any(process.popen.returncode == CANNOT_START for process in self._restart_ended()):
                raise StartError("A process cannot start. See the message above.")
            waited = time.monotonic() - start
            if waited > COMPILING_SECONDS and not is_named:
                is_named = True
                self._start_line.clear()
                self._log("The first start in an environment compiles its loops, which takes a minute or two.")
            if waited > READY_SECONDS:
                raise StartError(f"The service is not ready after {READY_SECONDS:g} s. See the messages above.")
            time.sleep(TICK / 2)
        self._start_line.clear()
        if not self._is_stopping:
            shown = f"[{host}]" if ":" in host else host
            self._log(ready_text(f"http://{shown}:{port}", data, self._settings))

    def _supervise(self) -> None:
        while not self._is_stopping:
            self._restart_ended()
            if self._servers:
                self._reserve.hold()  # again, once the disk has room
            time.sleep(TICK)

    def _restart_ended(self) -> list[Process]:
        """Start the children that are due; return the processes that ended since the last call."""
        ended = self._tree.reap()
        if ended and self._servers and self._reserve.release():
            self._log("The disk of the data folder is full: the reserve is released, new work is refused.")
        self._tree.start_due()
        return ended

    def _stop(self) -> None:
        """Stop the API and the workers (warm, cold, then by SIGKILL), then the servers, which keep the queue."""
        self._start_line.clear()
        if self._is_stopping:
            self._log(f"glle stops. Work in progress has {STOP_SECONDS:g} s to end.")
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        self._tree.stop(self._tree.children[len(self._servers) :], STOP_SECONDS)
        for server in self._servers:
            server.stop()
        self._tree.close()
