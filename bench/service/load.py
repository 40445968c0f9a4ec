"""Many clients of one URL at the lowest cost in Python: raw sockets, one process, keep-alive."""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

DIFFERENT = 64
HEAD_END = b"\r\n\r\n"


def load(url: str, clients: int, seconds: float) -> dict[str, float]:
    """Request a URL repeatedly from a separate process; {} in it cycles through 0, 1, ..., 63.

    Returns
    -------
    dict
        "rate", requests per second; "p50" and "p99", seconds; "bytes" of a body.

    """
    command = [sys.executable, "-m", "bench.service.load", url, str(clients), str(seconds)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)  # noqa: S603 # this module
    body: dict[str, float] = json.loads(done.stdout)
    return body


class _Client:
    """A connection with one request in flight."""

    def __init__(self, host: str, port: int, requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests, self.buffer = requests, bytearray(1 << 20)
        self.ask()

    def ask(self) -> None:
        self.started, self.got, self.whole, self.head = time.perf_counter(), 0, 0, 0
        self.socket.sendall(next(self.requests))

    def receive(self) -> bool:
        """Read available bytes; return whether the answer is complete."""
        count = self.socket.recv_into(memoryview(self.buffer)[self.got :])
        if not count:
            raise ConnectionError("the server hung up")
        self.got += count
        if not self.whole and (end := self.buffer.find(HEAD_END, 0, self.got)) >= 0:
            head = bytes(self.buffer[:end]).lower()
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise RuntimeError(head.decode())
            (length,) = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            self.head, self.whole = end + len(HEAD_END), end + len(HEAD_END) + int(length)
        return self.whole > 0 and self.got >= self.whole


def main(url: str, clients: int, seconds: float) -> dict[str, Any]:
    """Send requests until the time is over."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = f" HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: application/x-npy\r\n\r\n"
    requests = itertools.cycle([("GET " + path.replace("{}", str(i)) + headers).encode() for i in range(DIFFERENT)])
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        client = _Client(parts.hostname, parts.port, requests)
        selector.register(client.socket, selectors.EVENT_READ, client)
    times: list[float] = []
    started = time.perf_counter()
    size = 0
    while time.perf_counter() - started < seconds:
        for key, _ in selector.select():
            client = key.data
            if client.receive():
                times.append(time.perf_counter() - client.started)
                size = client.whole - client.head
                client.ask()
    duration = time.perf_counter() - started
    times.sort()
    return {
        "rate": len(times) / duration,
        "p50": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
        "bytes": size,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
