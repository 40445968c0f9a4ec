"""Load of many HTTP clients on raw sockets in a process of its own, so that the clients cost little.

`python -m bench.service.load JSON` runs one load, and prints what it measured.
"""

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
    """The requests of several clients, each of which sends a request when the last one is answered.

    Attributes
    ----------
    url : str
        Scheme, host and port.
    paths : list of str
        Paths, which are requested in turn; {} in a path stands for a number.
    first, different
        The numbers are first, first + 1, ..., and begin again after `different` numbers; 0: they never do.
    clients
        Number of clients.
    seconds
        Time until the last requests are sent; their answers count, too.

    """

    url: str
    paths: list[str]
    clients: int
    seconds: float
    first: int = 0
    different: int = DIFFERENT

    def requests(self) -> Iterator[bytes]:
        """Yield the bytes of the HTTP requests without end."""
        host = urlsplit(self.url).netloc
        tail = f" HTTP/1.1\r\nHost: {host}\r\nAccept: application/x-npy\r\n\r\n"
        turns = len(self.paths)
        numbers = itertools.cycle(range(self.different)) if self.different else itertools.count()
        for turn in numbers:
            path = self.paths[turn % turns]
            yield f"GET {path.replace('{}', str(self.first + turn))}{tail}".encode()


@dataclass(frozen=True)
class Measured:
    """What was measured under a load.

    Attributes
    ----------
    rate : float
        Answers per second; each answer is complete and has the status 200.
    p50, p99
        Median and 99 % quantile of the time from request to answer, in seconds.
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
    """Run a load in a process of its own, and return what was measured."""
    return Measured(**run_apart("bench.service.load", json.dumps(asdict(what))))


def load_in_turn(ours: Load, theirs: Load, rounds: int) -> tuple[list[Measured], list[Measured]]:
    """Run two loads in turn for some rounds; the first round warms up, and is left out."""
    pairs = [(load(ours), load(theirs)) for _ in range(rounds + 1)]
    return [measured for measured, _ in pairs[1:]], [other for _, other in pairs[1:]]


def ratio(ours: list[Measured], theirs: list[Measured]) -> float:
    """Return the median over rounds of ours / theirs in answers per second."""
    return statistics.median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))


def median(values: list[Measured], figure: str) -> float:
    """Return the median over rounds of the attribute `figure`, such as "p50"."""
    return float(statistics.median(getattr(one, figure) for one in values))


class _Client:
    """A connection on which one request at a time waits for its answer."""

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
        """Read the bytes that have arrived, and return whether the answer is complete.

        Raises RuntimeError for a status other than 200, and ConnectionError if the server closes the connection.
        """
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
    """Send the requests of a load until its time is over, wait for the last answers, and return the measurement."""
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
