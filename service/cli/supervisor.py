"""Parent processes of `glle serve` and `glle up`: each imports the program once and forks API processes and workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.data_folder import lock_data_folder, publish_addresses
from service.cli.options import CANNOT_START, StartError
from service.server.listening import STOP_SECONDS, answers, url_of
from worker.execution.supervisor import KILL_SECONDS, Supervisor
from worker.observability import logging
from worker.operations.embedded_redis import EmbeddedRedis, ServerError, cache_server, queue_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.base.settings import Settings

READY_SECONDS = 300.0  # the start fails after this time; the first start in an environment compiles for a minute or two
COMPILING_SECONDS = 10.0  # a start that takes longer is probably compiling
PROBE_SECONDS = 5.0
PROBE_PAUSE_SECONDS = 0.05

Main = Callable[[Sequence[str]], int]  # runs a command of the program, and returns its exit code


class ServeHead:
    """Parent of the API processes of `glle serve`: replaces each process that ends, and stops all of them together.

    Parameters
    ----------
    settings
        `api_processes` is the number of processes.
    sock
        A listening socket that this process holds open and all API processes share, so that a process that replaces
        another one has the same port.
    main
        Called in each forked process with the arguments of a `glle` command; returns the exit code.

    """

    ready_path = "/livez"  # answers as soon as one process has started

    def __init__(self, settings: Settings, sock: socket.socket, main: Main) -> None:
        self._main = main
        self._settings = settings
        self._sock = sock
        self._supervisor = Supervisor(self._report)

    def run(self) -> int:
        """Start the processes and keep them running until a signal; return the exit code."""
        self._supervisor.listen()
        try:
            self._start()
            self._wait_until_ready()
            self._supervisor.run()
        finally:
            self._stop()
            self._supervisor.close()
        return 0

    def _start(self) -> None:
        """Import the modules of the API, and add the API processes to the supervisor."""
        self._load(load_api)
        self._add_api_processes(self._settings.to_env())

    def _load(self, *loaders: Callable[[], object]) -> None:
        """Run `loaders`, which import the modules that the forked processes share.

        If this takes longer than `COMPILING_SECONDS`, report that the first start compiles.
        """
        text = "The first start in an environment compiles its loops, which takes a minute or two."
        signal.signal(signal.SIGALRM, lambda *_: self._report(text))
        signal.setitimer(signal.ITIMER_REAL, COMPILING_SECONDS)
        try:
            self._supervisor.load(*loaders)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _add_api_processes(self, environment: Mapping[str, str]) -> None:
        run = partial(self._run, ["serve", f"--fd={self._sock.fileno()}"], environment)
        for number in range(1, self._settings.api_processes + 1):
            self._supervisor.add_forked(f"glle-api-{number}", run)

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a `glle` command in this forked process, with these environment variables; return its exit code."""
        os.environ.update(environment)
        return self._main(arguments)

    def _wait_until_ready(self) -> None:
        """Wait until the API answers, then report its URL; raise `StartError` if a process fails, or takes too long."""
        supervisor = self._supervisor
        host, port = self._sock.getsockname()[:2]
        until = time.monotonic() + READY_SECONDS
        while not supervisor.signals:
            ended = supervisor.reap()
            if any(child.code == CANNOT_START for child in ended):
                raise StartError("A process of the service ended while it started. The message above says why.")
            if time.monotonic() > until:
                raise StartError(
                    f"The service is not ready after {READY_SECONDS:g} s. The messages above say what it waits for."
                )
            supervisor.start_due()
            if answers(host, port, self.ready_path, PROBE_SECONDS):
                self._report(self._ready_text(url_of(self._sock)))
                return
            supervisor.pause(PROBE_PAUSE_SECONDS)

    def _ready_text(self, url: str) -> str:
        return f"glle API at {url}"

    def _stop(self) -> None:
        self._sock.close()  # late connections are refused, instead of waiting for a process that accepts them
        drain = self._settings.drain
        if self._supervisor.signals:
            self._report(f"glle API drains for {drain:g} s; requests in progress have {STOP_SECONDS:g} s more")
        self._supervisor.stop(self._supervisor.children, drain + STOP_SECONDS + KILL_SECONDS)
        self._report("glle API stopped")

    def _report(self, text: str) -> None:
        logging.announce(text, self._settings)


class UpHead(ServeHead):
    """Parent of the processes of `glle up`: API processes, workers and, if the settings name none, Redis servers."""

    ready_path = "/readyz"

    def __init__(self, settings: Settings, sock: socket.socket, main: Main) -> None:
        super().__init__(settings, sock, main)
        self._data = Path(settings.data_dir).resolve()
        self._servers: list[EmbeddedRedis] = []
        self._stack = contextlib.ExitStack()

    def run(self) -> int:
        """Lock the data folder, and keep the processes running until a signal; return the exit code."""
        with lock_data_folder(self._data), self._stack:
            try:
                return super().run()
            except ServerError as error:
                raise StartError(str(error)) from error

    def _start(self) -> None:
        """Start the Redis servers, then the API processes and the workers."""
        settings, supervisor = self._settings, self._supervisor
        if not settings.redis_url:
            queue, cache = self._servers = [queue_server(settings), cache_server(settings)]
            for server in self._servers:
                supervisor.add(f"{server.folder.name} server", lambda server=server: server.spawn().pid)  # type: ignore[misc] # mypy infers no default
            supervisor.start_due()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        self._load(load_api, load_worker)
        for server in self._servers:
            server.wait()
        # `drain` is how long a stopping API process serves on, until a load balancer sends its requests elsewhere.
        # `glle up` stops all its processes at once, so there is nothing to wait for.
        environment = {**replace(settings, drain=0.0).to_env(), "GLLE_DATA_DIR": str(self._data)}
        self._add_api_processes(environment)
        for number in range(1, settings.workers + 1):
            supervisor.add_forked(f"glle-worker-{number}", partial(self._run_worker, environment))
        supervisor.start_due()
        if self._servers:
            self._stack.enter_context(publish_addresses(self._data, settings))

    def _run_worker(self, environment: Mapping[str, str]) -> int:
        # A new name, because the registry remembers the name of a killed worker for a while.
        name = f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
        return self._run(["worker", "--name", name], environment)

    def _ready_text(self, url: str) -> str:
        """Return what `glle up` prints when the service is ready: one line if logs are JSON, else a table."""
        settings = self._settings
        servers = "external Redis" if settings.redis_url else "embedded Redis"
        processes = f"API processes: {settings.api_processes}, workers: {settings.workers}, {servers}"
        if settings.log_format == "json":
            return f"glle is ready at {url} (documentation: /docs). {processes}. Data in {self._data}."
        rows = {
            "explorer": f"{url}/",
            "documentation": f"{url}/docs",
            "processes": processes,
            "data": self._data,
            "stop": "Ctrl-C",
        }
        return "\n".join([f"glle is ready at {url}", *(f"  {name:<13}  {value}" for name, value in rows.items())])

    def _stop(self) -> None:
        """Stop the API processes and workers, and then the Redis servers, which workers need until they have ended."""
        supervisor = self._supervisor
        if supervisor.signals:
            self._report(f"glle stops. Work in progress has {STOP_SECONDS:g} s to end.")
        servers, others = supervisor.children[: len(self._servers)], supervisor.children[len(self._servers) :]
        supervisor.stop(others, STOP_SECONDS)
        supervisor.stop(servers, STOP_SECONDS)


def load_api() -> None:
    """Import the modules that all API processes use, so that forked processes share their memory."""
    import service.app  # noqa: PLC0415 # each command loads what it needs
    import service.server.uvicorn_server  # noqa: F401, PLC0415 # each command loads what it needs


def load_worker() -> None:
    """Import the modules that all workers use, so that forked processes share their memory."""
    from worker.execution import parent  # noqa: PLC0415 # each command loads what it needs

    parent.load()
