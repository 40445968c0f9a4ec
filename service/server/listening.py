"""Listening socket that several API processes share."""

from __future__ import annotations

import socket

STOP_SECONDS = 8.0  # that a stopping API, and `glle up`, wait for requests and tasks in progress
BACKLOG = 2048  # connections that wait for an API process to accept them
# Connections that a process accepts at each turn of its event loop. The default, its backlog, gives a burst of
# connections to the process that wakes first; then the others idle while their clients keep the connections open.
ACCEPTED = 1


class SharedSocket(socket.socket):
    """TCP socket whose queue has `BACKLOG` places.

    asyncio passes the number of connections to accept at each turn to `listen`, too.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen with at least `BACKLOG` places."""
        super().listen(max(backlog, BACKLOG))
