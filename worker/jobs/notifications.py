"""Notifications of job changes and of draws, from Redis to the requests that wait for them.

Each script that changes a job publishes its id (`worker.jobs.lua_scripts`): changes on one channel, ends on
another, so that a request that waits for an end is not woken by progress. A sampler publishes the draws that it has
made (`worker.jobs.draw_stream`). One thread per channel listens, from the first subscription on, and wakes the
requests through their event loops. Notifications get lost while a connection is restored, so every waiting request is
woken when the channel is subscribed again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import redis

from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LISTEN_SECONDS = 0.5
RECONNECT_SECONDS = 0.5
SUBSCRIBE_SECONDS = 1.0
_TICK = 0.001


class Waiter(asyncio.Event):
    """Event of a waiting request, in its event loop.

    Attributes
    ----------
    outcome : Mapping or None
        What the last notification said about that for which the request waits.

    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.outcome: Mapping[str, Any] | None = None

    def wake(self, outcome: Mapping[str, Any] | None) -> None:
        """Set the event, from another thread."""

        def wake() -> None:
            self.outcome = outcome or self.outcome
            self.set()

        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(wake)


Outcomes = Callable[[str], "Mapping[str, Mapping[str, Any] | None]"]


def _job_outcomes(message: str) -> Mapping[str, None]:
    """Return the job that a message names."""
    return {message: None}


class Notifications:
    """Notifications of one channel; `close` also closes the client.

    Parameters
    ----------
    outcomes
        Returns what a message says, by the names for which requests wait; nothing wakes them all.

    Attributes
    ----------
    is_over : bool
        Whether waiting is pointless, because the process is about to stop.

    """

    def __init__(self, client: redis.Redis, channel: str, outcomes: Outcomes = _job_outcomes) -> None:
        self._client = client
        self._channel = channel
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._waiters: defaultdict[str, set[Waiter]] = defaultdict(set)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_subscribed = False
        self.is_over = False

    @contextmanager
    def of(self, name: str) -> Iterator[Waiter]:
        """Provide an event of the running loop that each notification of a job or draw sets; the caller clears it."""
        waiter = Waiter()
        with self._lock:
            self._waiters[name].add(waiter)
            self._listen()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters[name].discard(waiter)
                if not self._waiters[name]:
                    del self._waiters[name]

    def waiting(self, name: str) -> int:
        """Return how many requests of this process wait for a name."""
        with self._lock:
            return len(self._waiters.get(name, ()))

    async def subscribed(self) -> None:
        """Return once the channel is subscribed, or after `SUBSCRIBE_SECONDS`."""
        until = time.monotonic() + SUBSCRIBE_SECONDS
        while not self._is_subscribed and time.monotonic() < until:  # noqa: ASYNC110 # set by a thread, once
            await asyncio.sleep(_TICK)

    def end(self) -> None:
        """Wake all waiting requests for the last time."""
        self.is_over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all waiting requests."""
        with self._lock:
            names = list(self._waiters)
        for name in names:
            self._wake(name)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._client.close()

    def _listen(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name=self._channel, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        is_first = True
        while not self._closed.is_set():
            try:
                with self._client.pubsub() as channel:  # type: ignore[no-untyped-call] # redis-py's
                    channel.subscribe(self._channel)
                    while not self._closed.is_set():
                        message = channel.get_message(timeout=LISTEN_SECONDS)
                        if message is None:
                            continue
                        if message["type"] == "message":
                            self._receive(text(message["data"]))
                            continue
                        self._is_subscribed = True
                        if not is_first:  # a new subscription, by redis-py or by this loop: notifications were lost
                            self.wake_all()
                        is_first = False
            except redis.RedisError:
                self._closed.wait(RECONNECT_SECONDS)

    def _receive(self, message: str) -> None:
        try:
            outcomes = self._outcomes(message)
        except (ValueError, KeyError, TypeError):  # of another program
            outcomes = {}
        if not outcomes:
            self.wake_all()
        for name, outcome in outcomes.items():
            self._wake(name, outcome)

    def _wake(self, name: str, outcome: Mapping[str, Any] | None = None) -> None:
        with self._lock:
            waiters = list(self._waiters.get(name, ()))
        for waiter in waiters:
            waiter.wake(outcome)
