"""Heads of `glle up` and `glle serve`: they load the program once, and fork API processes and workers."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.data_folder import locked, published
from service.cli.options import CANNOT_START, StartError
from service.server.listening import STOP_SECONDS
from worker.execution.supervisor import COLD_SECONDS, Supervisor
from worker.observability import logging
from worker.operations.embedded_redis import Server, ServerError, cache_server, queue_server
from worker.storage.free_space import DiskReserve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from worker.base.settings import Settings
    from worker.execution.supervisor import Child

READY_SECONDS = 300.0  # the first start in an environment compiles for a minute or two
COMPILING_SECONDS = 10  # after which a start probably compiles
READY_PROBE_SECONDS = 5.0
PROBE_SECONDS = 1.0
PROBE_PAUSE_SECONDS = 0.05


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

    @contextlib.contextmanager
    def ticking(self, report: Callable[[str], object]) -> Iterator[None]:
        """Update the line each second while the program is loaded; report a compilation."""
        seconds = 0

        def tick(signum: int, frame: FrameType | None) -> None:
            del signum, frame
            nonlocal seconds
            seconds += 1
            self.show()
            if seconds == COMPILING_SECONDS:
                self.clear()
                report("The first start in an environment compiles its loops, which takes a minute or two.")

        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

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


Main = Callable[[Sequence[str]], int]  # runs a command of the program, and returns its exit code


def run_command(main: Main, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command of the program in this forked process; return its exit code."""
    os.environ.update(environment)
    return main(arguments)


def load_api() -> None:
    """Load what API processes share."""
    import service.app  # noqa: PLC0415 # each command loads what it needs
    import service.server.uvicorn_server  # noqa: F401, PLC0415 # each command loads what it needs


def load_worker() -> None:
    """Load what workers share."""
    from worker.execution import worker  # noqa: PLC0415 # each command loads what it needs

    worker.load()


def add_api_processes(
    supervisor: Supervisor, main: Main, sock: socket.socket, settings: Settings, environment: Mapping[str, str]
) -> None:
    """Add API processes that accept connections on one listening socket."""
    run = partial(run_command, main, ["serve", f"--fd={sock.fileno()}"], environment)
    for number in range(1, settings.api_processes + 1):
        supervisor.add_forked(f"glle-api-{number}", run)


class ServeHead:
    """Head of the API processes of `glle serve`: it restarts each that ends, and stops all of them together.

    Parameters
    ----------
    settings
        `api_processes` is the number of processes.
    sock
        A listening socket, which the head holds and all processes share.
    main
        Runs a command of the program, in a forked process.

    """

    def __init__(self, settings: Settings, sock: socket.socket, main: Main) -> None:
        self._main = main
        self._settings = settings
        self._sock = sock
        self._supervisor = Supervisor(self._report)
        self._is_serving = False
        self._code = 0

    def run(self) -> int:
        """Run until a signal; return the exit code, that of the first process if it ends before the API answers."""
        supervisor, settings = self._supervisor, self._settings
        supervisor.listen()
        supervisor.load(load_api)
        add_api_processes(supervisor, self._main, self._sock, settings, settings.to_env())
        try:
            supervisor.run(self._look)
        except StartError:
            return self._code
        finally:
            supervisor.stop(supervisor.children, settings.drain + STOP_SECONDS + COLD_SECONDS)
            supervisor.close()
        return 0

    def _look(self, ended: Sequence[Child]) -> None:
        """Report the first answer of the API; raises `StartError` if a process ends before it."""
        if self._is_serving:
            return
        if ended:
            self._code = max(1, ended[0].code or 0)
            raise StartError("An API process ended before it answered.")
        host, port = self._sock.getsockname()[:2]
        self._is_serving = answers(host, port, "/livez")
        if self._is_serving:
            self._report(f"glle API at http://{f'[{host}]' if ':' in host else host}:{port}")

    def _report(self, text: str) -> None:
        logging.announce(text, self._settings)


class UpHead:
    """Head of the process tree of `glle up`.

    Parameters
    ----------
    settings
        Without URLs the servers are embedded.
    sock
        A listening socket. The head holds it, so that a restarted API has the same port.
    main
        Runs a command of the program, in a forked process.

    """

    def __init__(self, settings: Settings, sock: socket.socket, main: Main) -> None:
        self._main = main
        self._settings = settings
        self._sock = sock
        self._servers: list[Server] = []
        self._start_line = StartLine(settings)
        self._supervisor = Supervisor(self._report)
        self._reserve = DiskReserve.of(settings)

    def run(self) -> int:
        """Run until a signal; return the exit code."""
        data = Path(self._settings.data_dir).resolve()
        with locked(data), contextlib.ExitStack() as stack:
            self._supervisor.listen()
            try:
                settings = self._start(data)
                if self._servers:
                    stack.enter_context(published(data, settings))
                self._wait_until_ready(data)
                self._supervisor.run(self._look)
            except ServerError as error:
                raise StartError(str(error)) from error
            finally:
                self._stop()
        return 0

    def _report(self, text: str) -> None:
        logging.announce(text, self._settings)

    def _start(self, data: Path) -> Settings:
        """Start the servers, then the API and the workers; return the settings with the servers' URLs."""
        settings, supervisor = self._settings, self._supervisor
        if not settings.redis_url:
            queue, cache = queue_server(settings), cache_server(settings)
            self._servers = [queue, cache]
            self._reserve.release()  # the queue server needs some bytes to start on a full disk
            self._reserve.hold()
            for server in self._servers:
                supervisor.add(f"{server.folder.name} server", lambda server=server: server.spawn().pid)  # type: ignore[misc] # mypy infers no default
            supervisor.start_due()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        with self._start_line.ticking(self._report):
            supervisor.load(load_api, load_worker)
        for server in self._servers:
            server.wait()
        # `glle up` stops as a whole, so that no other process takes over.
        environment = {**replace(settings, drain=0.0).to_env(), "GLLE_DATA_DIR": str(data)}
        add_api_processes(supervisor, self._main, self._sock, settings, environment)
        for number in range(1, settings.workers + 1):
            supervisor.add_forked(f"glle-worker-{number}", partial(self._worker, environment))
        supervisor.start_due()
        return settings

    def _worker(self, environment: Mapping[str, str]) -> int:
        """Run a worker, in a forked process."""
        # A new name, because the registry remembers that of a killed worker for a while.
        name = f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
        return run_command(self._main, ["worker", "--name", name], environment)

    def _wait_until_ready(self, data: Path) -> None:
        """Wait for the API, then report its address."""
        supervisor = self._supervisor
        host, port = self._sock.getsockname()[:2]
        until = time.monotonic() + READY_SECONDS
        while not supervisor.signals and not answers(host, port, "/readyz", READY_PROBE_SECONDS):
            self._start_line.show()
            ended = supervisor.reap()
            self._look(ended)
            if any(child.code == CANNOT_START for child in ended):
                raise StartError("A process cannot start. See the message above.")
            if time.monotonic() > until:
                raise StartError(f"The service is not ready after {READY_SECONDS:g} s. See the messages above.")
            supervisor.start_due()
            supervisor.pause(PROBE_PAUSE_SECONDS)
        self._start_line.clear()
        if not supervisor.signals:
            shown = f"[{host}]" if ":" in host else host
            self._report(ready_text(f"http://{shown}:{port}", data, self._settings))

    def _look(self, ended: Sequence[Child]) -> None:
        """Release the disk's reserve if processes ended on a full disk; hold it again once the disk has room."""
        if not self._servers:
            return
        if ended and self._reserve.release():
            self._report("The disk of the data folder is full: the reserve is released, new work is refused.")
        elif not ended:
            self._reserve.hold()

    def _stop(self) -> None:
        """Stop the API and the workers (warm, at once, then by SIGKILL), then the servers, which keep the queue."""
        self._start_line.clear()
        supervisor = self._supervisor
        if supervisor.signals:
            self._report(f"glle stops. Work in progress has {STOP_SECONDS:g} s to end.")
        servers, others = supervisor.children[: len(self._servers)], supervisor.children[len(self._servers) :]
        supervisor.stop(others, STOP_SECONDS)
        supervisor.stop(servers, STOP_SECONDS)
        supervisor.close()


def answers(host: str, port: int, path: str, seconds: float = PROBE_SECONDS) -> bool:
    """Return whether a path of the API answers 200 within some seconds."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    with contextlib.closing(http.client.HTTPConnection(target, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
