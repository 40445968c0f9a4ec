"""Many clients at the lowest cost in Python: raw sockets, one separate process, keep-alive."""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.report import run_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

DIFFERENT = 64
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Load:
    """Requests of several clients, each with one request in flight.

    Attributes
    ----------
    url : str
        Scheme, host and port.
    paths : list of str
        Requested in turn; {} in a path is a number.
    first, different
        The numbers are first, first + 1, ..., and begin again after `different`; 0: never.
    clients
        Number of clients.
    seconds
        Time until the last requests, whose answers count too.

    """

    url: str
    paths: list[str]
    clients: int
    seconds: float
    first: int = 0
    different: int = DIFFERENT

    def requests(self) -> Iterator[bytes]:
        """Yield the requests."""
        host = urlsplit(self.url).netloc
        tail = f" HTTP/1.1\r\nHost: {host}\r\nAccept: application/x-npy\r\n\r\n"
        turns = len(self.paths)
        numbers = itertools.cycle(range(self.different)) if self.different else itertools.count()
        for turn in numbers:
            path = self.paths[turn % turns]
            yield f"GET {path.replace('{}', str(self.first + turn))}{tail}".encode()


@dataclass(frozen=True)
class Measured:
    """Result of a load.

    Attributes
    ----------
    rate : float
        Answers per second, until the last one, all complete and with status 200.
    p50, p99
        Seconds.
    nbytes
        Bytes of the last body.
    cpu
        Processor time of the clients' process, as a share of one core.

    """

    rate: float
    p50: float
    p99: float
    nbytes: int
    cpu: float


def load(what: Load) -> Measured:
    """Run a load in a separate process."""
    return Measured(**run_apart("bench.service.load", json.dumps(asdict(what))))


def load_in_turn(ours: Load, theirs: Load, rounds: int) -> tuple[list[Measured], list[Measured]]:
    """Run two loads in turn, after a round as a warm-up."""
    pairs = [(load(ours), load(theirs)) for _ in range(rounds + 1)]
    return [measured for measured, _ in pairs[1:]], [other for _, other in pairs[1:]]


def ratio(ours: list[Measured], theirs: list[Measured]) -> float:
    """Return the median ratio of the rates."""
    return statistics.median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))


def median(values: list[Measured], figure: str) -> float:
    """Return the median of a figure."""
    return float(statistics.median(getattr(one, figure) for one in values))


class _Client:
    """A connection with one request in flight."""

    def __init__(self, host: str, port: int, requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests, self.buffer = requests, bytearray(1 << 20)
        self.view = memoryview(self.buffer)
        self.ask()

    def ask(self) -> None:
        self.started, self.got, self.whole, self.head = time.perf_counter(), 0, 0, 0
        self.socket.sendall(next(self.requests))

    def receive(self) -> bool:
        """Read available bytes; return whether the answer is complete."""
        count = self.socket.recv_into(self.view[self.got :])
        if not count:
            raise ConnectionError("the server hung up")
        self.got += count
        if not self.whole and (end := self.buffer.find(HEAD_END, 0, self.got)) >= 0:
            head = bytes(self.buffer[:end]).lower()
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise RuntimeError(bytes(self.buffer[: self.got]).decode(errors="replace"))
            length = head.partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0]
            self.head, self.whole = end + len(HEAD_END), end + len(HEAD_END) + int(length)
        return self.whole > 0 and self.got >= self.whole


def main(what: Load) -> Measured:
    """Send requests until the time is over, and wait for the last answers."""
    parts = urlsplit(what.url)
    assert parts.hostname
    assert parts.port
    requests = what.requests()
    selector = selectors.DefaultSelector()
    for _ in range(what.clients):
        client = _Client(parts.hostname, parts.port, requests)
        selector.register(client.socket, selectors.EVENT_READ, client)
    times: list[float] = []
    started, used = time.perf_counter(), time.process_time()
    size = 0
    while selector.get_map():
        for key, _ in selector.select():
            client = key.data
            if not client.receive():
                continue
            now = time.perf_counter()
            times.append(now - client.started)
            size = client.whole - client.head
            if now - started < what.seconds:
                client.ask()
            else:
                selector.unregister(client.socket)
                client.socket.close()
    duration, cpu = time.perf_counter() - started, time.process_time() - used
    times.sort()
    return Measured(
        rate=len(times) / duration,
        p50=times[len(times) // 2],
        p99=times[int(len(times) * 0.99)],
        nbytes=size,
        cpu=cpu / duration,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(main(Load(**json.loads(sys.argv[1]))))))
