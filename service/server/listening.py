"""The listening socket that several API processes share, the URL of the socket, and a probe whether the API answers."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket

STOP_SECONDS = 8.0  # an API or `glle up` that stops waits this long for requests and tasks in progress
MAX_OPEN_FILES = 2**14  # open files that a process may have
BACKLOG = 2048  # connections that may wait for an API process to accept them
# Connections that a process accepts in one iteration of its event loop. asyncio would accept the whole backlog,
# so that the process that wakes first would take a whole burst of connections, and the other processes would idle.
ACCEPTED = 1


class SharedSocket(socket.socket):
    """Listening TCP socket on which at least `BACKLOG` connections may wait to be accepted.

    asyncio calls `listen` with the number of connections to accept per event loop iteration, which is too small a
    backlog.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen with a backlog of `backlog`, but of `BACKLOG` at least."""
        super().listen(max(backlog, BACKLOG))


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to `MAX_OPEN_FILES`, but not above the hard limit.

    A request opens up to two files.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def url_of(sock: socket.socket) -> str:
    """Return the URL of the API that listens on a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def answers(host: str, port: int, path: str, seconds: float) -> bool:
    """Return whether a GET of `path` is answered with status 200 within `seconds`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
