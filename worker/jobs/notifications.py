"""Notifications of job changes, from Redis to the requests that wait for them.

Each script that changes a job publishes its id (`worker.jobs.lua_scripts`): changes on one channel, ends on another, so
that a request that waits for an end is not woken by progress. One thread per channel listens, from the first
subscription on, and wakes the requests through their event loops. Notifications get lost while a connection is
restored, so every waiting request is woken when the channel is subscribed again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import redis

from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTEN_SECONDS = 0.5
RECONNECT_SECONDS = 0.5

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Notifications:
    """Notifications of one channel; `close` also closes the client.

    Attributes
    ----------
    is_over : bool
        Whether waiting is pointless, because the process is about to stop.

    """

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._lock = threading.Lock()
        self._waiters: defaultdict[str, set[Waiter]] = defaultdict(set)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self.is_over = False

    @contextmanager
    def of(self, job: str) -> Iterator[asyncio.Event]:
        """Provide an event of the running loop that each notification of a job sets; the caller clears it."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters[job].add(waiter)
            self._listen()
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiters[job].discard(waiter)
                if not self._waiters[job]:
                    del self._waiters[job]

    def end(self) -> None:
        """Wake all waiting requests for the last time."""
        self.is_over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all waiting requests."""
        with self._lock:
            jobs = list(self._waiters)
        for job in jobs:
            self._wake(job)

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
                            self._wake(text(message["data"]))
                        elif not is_first:  # a new subscription, by redis-py or by this loop: notifications were lost
                            self.wake_all()
                        is_first = False
            except redis.RedisError:
                self._closed.wait(RECONNECT_SECONDS)

    def _wake(self, job: str) -> None:
        with self._lock:
            waiters = list(self._waiters.get(job, ()))
        for loop, event in waiters:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)
