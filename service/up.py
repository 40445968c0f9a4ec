"""`glle up`: servers, API and workers as one tree that starts, stops and dies together."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from service.cli import BLAS_VARIABLES, StartError
from worker import lifeline
from worker.servers import Server, ServerError, cache_server, queue_server
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.settings import Settings

TICK = 0.1
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
STEADY_SECONDS = 30.0  # a child that lived so long is restarted without a pause
READY_SECONDS = 60.0


@dataclass
class Child:
    """A process of the tree, restarted when it ends by itself."""

    name: str
    spawn: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes] | None = None
    pause: float = 0.0
    due: float = 0.0
    started: float = 0.0

    def start(self) -> None:
        """Start it."""
        self.process = self.spawn()
        self.started = time.monotonic()

    def ended(self) -> bool:
        """Say whether it ran and is gone; then `restart` is due after a pause that grows."""
        if self.process is None or self.process.poll() is None:
            return False
        steady = time.monotonic() - self.started > STEADY_SECONDS
        self.pause = 0.0 if steady else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.due = time.monotonic() + self.pause
        _say(f"{self.name} ended with {self.process.returncode}; again in {self.pause:g} s")
        self.process = None
        return True


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
        self._watcher = None if lifeline.LINUX else lifeline.Watcher()
        self._stopping = False

    def run(self) -> int:
        """Start everything, watch over it until a signal, stop it in order; return the exit code."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        data = Path(self._settings.data_dir).resolve()
        data.mkdir(parents=True, exist_ok=True)
        with _locked(data):
            try:
                settings = self._start(data)
                self._announce(data)
                self._watch(settings)
            except ServerError as error:
                raise StartError(str(error)) from error
            finally:
                self._stop()
        return 0

    def _on_signal(self, signum: int, frame: object) -> None:
        del signum, frame
        self._stopping = True

    def _start(self, data: Path) -> Settings:
        """Start the servers, then the rest; return the settings with the servers' URLs."""
        settings = self._settings
        if not settings.redis_url:
            queue, cache = queue_server(settings), cache_server(settings)
            self._servers = [queue, cache]
            for server in self._servers:
                self._children.append(Child(server.folder.name + " server", self._told(server.spawn)))
                self._children[-1].start()
            for server in self._servers:
                server.wait()
            settings = replace(settings, redis_url=queue.url, cache_url=cache.url)
        environment = {
            **os.environ,
            "GLLE_REDIS_URL": settings.redis_url,
            "GLLE_CACHE_URL": settings.cache_url,
            "GLLE_DATA_DIR": str(data),
            **dict.fromkeys(BLAS_VARIABLES, "1"),
        }
        descriptor = self._sock.fileno()
        self._children.append(Child("API", self._command(["api", "--fd", str(descriptor)], environment, (descriptor,))))
        for number in range(1, settings.workers + 1):
            name = f"{socket.gethostname()}-{os.getpid()}-{number}".replace(".", "-")
            self._children.append(Child(f"worker {name}", self._command(["worker", "--name", name], environment)))
        for child in self._children:
            if child.process is None:
                child.start()
        return settings

    def _command(
        self, arguments: list[str], environment: dict[str, str], descriptors: tuple[int, ...] = ()
    ) -> Callable[[], subprocess.Popen[bytes]]:
        return self._told(
            lambda: subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service", *arguments],
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the head alone, which stops the others in order
                preexec_fn=lifeline.preexec(signal.SIGKILL),  # noqa: PLW1509 # one thread: what dies with us is tied here
            )
        )

    def _told(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> Callable[[], subprocess.Popen[bytes]]:
        """Return `spawn` so that the watcher, where there is one, knows of the process."""

        def spawn_and_tell() -> subprocess.Popen[bytes]:
            process = spawn()
            if self._watcher is not None:
                self._watcher.tell(process.pid)
            return process

        return spawn_and_tell

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
            _say(f"glle is ready at http://{shown}:{port} (documentation: /docs). Data in {data}. Ctrl-C stops it.")

    def _watch(self, settings: Settings) -> None:
        while not self._stopping:
            for worker in self._look_after():
                # Its heartbeat would tell after some 20 s; we saw it die.
                with contextlib.suppress(redis.RedisError):
                    Stores.connect(settings).queue.recover(worker)
            time.sleep(TICK)

    def _look_after(self) -> list[str]:
        """Restart what ended and is due; return the names of workers that ended just now."""
        gone = []
        for child in self._children:
            if child.ended() and child.name.startswith("worker "):
                gone.append(child.name.removeprefix("worker "))
            if child.process is None and time.monotonic() >= child.due:
                child.start()
        return gone

    def _stop(self) -> None:
        """Stop API and workers, warm, then cold; then the servers, which keep what was asked."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        servers = len(self._servers)
        running = [c.process for c in self._children[servers:] if c.process is not None]
        warm, cold, hard = (signal.SIGTERM, self._settings.stop_grace), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)
        for attempt, grace in (warm, cold, hard):
            for process in running:
                process.send_signal(attempt)
            running = _still_running(running, grace)
        for server in self._servers:
            server.stop()
        if self._watcher is not None:
            self._watcher.close()


def _still_running(processes: list[subprocess.Popen[bytes]], grace: float) -> list[subprocess.Popen[bytes]]:
    deadline = time.monotonic() + grace
    while (left := [p for p in processes if p.poll() is None]) and time.monotonic() < deadline:
        time.sleep(TICK / 2)
    return left


@contextlib.contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Hold the data folder: two trees on one folder would write the same files."""
    with (data / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Stop it, or choose another folder with --data-dir."
            raise StartError(f"Another `glle up` uses {data}. {remedy}") from None
        yield


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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's output
