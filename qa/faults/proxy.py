"""TCP proxy in front of a server, with faults on request."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from types import TracebackType

Mode = Literal["pass", "refuse", "cut", "errors"]
_PIECE = 2**16
_ACCEPT_SECONDS = 0.1


class Proxy:
    """Proxy that listens on a free port and passes bytes to `target`.

    Parameters
    ----------
    target
        Host and port of the server.
    host
        Address to listen on.

    Attributes
    ----------
    delay
        Shortest and longest delay of each chunk in seconds, in both directions.
    mode
        ``pass``; ``refuse`` connections; ``cut`` with a reset after `after` bytes of answers;
        answer ``errors`` to every command.

    """

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._target = target
        self._host = host
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.mode: Mode = "pass"
        self.after = 0
        self.delay = (0.0, 0.0)
        self._listening: socket.socket | None = socket.create_server((host, 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def become(self, mode: Mode, after: int = 0) -> None:
        """Change the mode and reset all connections."""
        self.mode, self.after = mode, after
        if mode == "refuse" and self._listening is not None:
            listening, self._listening = self._listening, None
            listening.close()
        if mode != "refuse" and self._listening is None:
            self._listening = socket.create_server((self._host, self.port), backlog=128)
        with self._lock:
            known, self._open = self._open, set()
        for sock in known:
            _reset(sock)

    def move(self, target: tuple[str, int]) -> None:
        """Pass the bytes to another server, and reset all connections."""
        self._target = target
        self.become("pass")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        self.become("refuse")
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed:
            listening = self._listening
            if listening is None:
                time.sleep(_ACCEPT_SECONDS)
                continue
            try:
                listening.settimeout(_ACCEPT_SECONDS)
                client, _ = listening.accept()
            except OSError:
                continue
            client.settimeout(None)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        if self.mode == "refuse":  # accepted just before the change
            _reset(client)
            return
        if self.mode == "errors":
            with contextlib.suppress(OSError):
                while client.recv(_PIECE):
                    client.sendall(b"-ERR internal trouble of the server\r\n")
            _reset(client)
            return
        try:
            server = self._connect()
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open.add(server)
        requests = threading.Thread(target=self._pump, args=(client, server, False), daemon=True)
        requests.start()
        self._pump(server, client, True)  # noqa: FBT003 # only answers are cut
        requests.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _connect(self) -> socket.socket:
        """Return a connection to the server."""
        return socket.create_connection(self._target, timeout=5)

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:  # noqa: FBT001 # one of the two directions
        """Pass bytes on until their end, which is passed on, too; after a fault both ends see a reset."""
        sent = 0
        try:
            while piece := source.recv(_PIECE):
                if self.delay[1]:
                    time.sleep(random.uniform(*self.delay))  # noqa: S311 # address of a socket in another network
                if answers and self.mode == "cut" and sent + len(piece) > self.after:
                    sink.sendall(piece[: max(0, self.after - sent)])
                    raise ConnectionResetError
                sink.sendall(piece)
                sent += len(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(sink)


def _reset(sock: socket.socket) -> None:
    """Close a socket so that its peer sees a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
