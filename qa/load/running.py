"""Run a load: each client is a thread; operations begin at a fixed rate, or as fast as possible."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from qa.load.client import Requester
from qa.load.content import Content
from qa.load.ledger import Ledger
from qa.load.user import User

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHARED = [Content(1000 + i, is_synthetic=i % 2 == 0) for i in range(4)]  # data sets of all clients
OWN = 8  # number of data sets of each client in a long run
FRESH = 500  # number of data sets of each client in a short run
LARGE_ONES = 3  # number of large data sets of each client in a short run


@dataclass(frozen=True, kw_only=True)
class Load:
    """Parameters of a load.

    Parameters
    ----------
    requests, seconds
        Limits after which the load ends; None: no limit.
    rate
        Operations per second of all clients together; None: as fast as possible.
    patience
        Time limit of the retries after a missing answer or 503, in seconds; 0: one attempt.
    keeps
        Number of attempts and ended jobs in the ledger (`Ledger`); if set, clients use the same few data sets again.
    only
        Names of operations (`qa.load.user.MIX`) to perform; all if empty.
    headers
        Headers of each request, such as the token of an API key.

    """

    requests: int | None = None
    seconds: float | None = None
    clients: int = 6
    seed: int = 0
    rate: float | None = None
    patience: float = 120.0
    keeps: int | None = None
    only: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


class Pace:
    """Spaces the operations of all clients evenly in time."""

    def __init__(self, rate: float | None) -> None:
        self._between = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Wait until the next operation may begin, or until `stop` is set; times that were missed are skipped."""
        if not self._between:
            return
        with self._lock:
            mine = max(self._next, time.monotonic())
            self._next = mine + self._between
        stop.wait(max(0.0, mine - time.monotonic()))


def run(load: Load, urls: list[str], *, ledger: Ledger | None = None, stop: threading.Event | None = None) -> Ledger:
    """Run a load to its end, and return the ledger.

    Parameters
    ----------
    urls
        URLs of the service; each client starts with one of them.
    ledger
        Ledger to fill, which others may read meanwhile; by default a new one.
    stop
        Event that ends the load.

    If a client fails, its error is raised after all clients have ended.

    """
    ledger = Ledger(load.keeps) if ledger is None else ledger
    stop = stop or threading.Event()
    pace = Pace(load.rate)
    max_requests = float("inf") if load.requests is None else load.requests
    until = float("inf") if load.seconds is None else time.monotonic() + load.seconds

    def act(number: int) -> None:
        user = user_of(load, urls, ledger, number, stop)
        try:
            while not stop.is_set() and time.monotonic() < until and ledger.requests < max_requests:
                pace.wait(stop)
                user.act()
        except BaseException:
            stop.set()
            raise
        finally:
            user.requester.close()

    with ThreadPoolExecutor(load.clients) as pool:
        list(pool.map(act, range(load.clients)))  # raises the failure of a client
    return ledger


@contextmanager
def run_beside(load: Load, urls: list[str]) -> Iterator[Ledger]:
    """Run a load in a thread until the context ends; yield its ledger. At the end, the error of a client is raised."""
    ledger, stop = Ledger(load.keeps), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, load, urls, ledger=ledger, stop=stop)
        try:
            yield ledger
        finally:
            stop.set()
        running.result()


def user_of(load: Load, urls: list[str], ledger: Ledger, number: int = -1, stop: threading.Event | None = None) -> User:
    """Return a client of a load by its number, which determines its data sets; number -1 has only the shared ones."""
    rng = random.Random(f"{load.seed} {number}")  # noqa: S311 # not for secrets
    turn = FRESH if load.keeps is None else OWN
    contents = [Content(10_000 * (number + 1) + i, is_synthetic=i % 4 == 0) for i in range(turn if number >= 0 else 0)]
    large = range(turn, turn + LARGE_ONES) if number >= 0 and load.keeps is None else ()
    contents += [Content(10_000 * (number + 1) + i, is_synthetic=True, is_large=True) for i in large]
    client = httpx.Client(timeout=60, headers=dict(load.headers))
    requester = Requester(urls, ledger, rng, load.patience, stop or threading.Event(), client)
    return User(requester, ledger, rng, contents, SHARED, only=load.only)
