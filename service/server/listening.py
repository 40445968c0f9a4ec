"""Listening socket that several API processes share, its URL, and a probe of the API behind it."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket

STOP_SECONDS = 8.0  # when they stop, an API and `glle up` wait this long for requests and tasks in progress
DESCRIPTORS = 2**14
BACKLOG = 2048  # connections that may wait for an API process to accept them
# Connections that a process accepts at each turn of its event loop. The default is its backlog: the process that wakes
# first would accept a whole burst of connections, and the others would idle while the clients keep them open.
ACCEPTED = 1


class SharedSocket(socket.socket):
    """TCP socket that lets at least `BACKLOG` connections wait to be accepted.

    asyncio calls `listen` with the number of connections that it accepts at each turn, which is smaller.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen, with room for at least `BACKLOG` connections that wait to be accepted."""
        super().listen(max(backlog, BACKLOG))


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to `DESCRIPTORS`, but not above the hard limit; a request opens up to two files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def url_of(sock: socket.socket) -> str:
    """Return the URL of the API that listens on a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def answers(host: str, port: int, path: str, seconds: float) -> bool:
    """Return whether a path of the API answers 200 within `seconds`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
