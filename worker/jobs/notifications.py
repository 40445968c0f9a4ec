"""News of jobs, passed from Redis to the requests that wait for them.

Whoever changes a job publishes its id with the very script that changes it (`worker.jobs.lua_scripts`): on one channel
that it changed, on another that it ended, so that who waits for ends hears of nothing else. One thread a channel
listens, from the first wait on, and wakes the requests by their event loops. News gets lost while a connection is made
anew, so every waiting request is woken when the channel is listened to again.
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
AGAIN_SECONDS = 0.5

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Notifications:
    """Wakes who waits for news of a job.

    Parameters
    ----------
    client
        The queue's Redis; closed with the news.
    channel
        Of the news.

    Attributes
    ----------
    is_over : bool
        Whether waiting has no sense any more: see `end`.

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
        """Give an event of the running loop that is set by news of the job; who waits on clears it."""
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
        """Have nobody wait any more: the process is about to stop."""
        self.is_over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake everyone who waits, as if there were news of every job."""
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
                        elif not is_first:  # subscribed again, by redis-py or below: news was lost with a connection
                            self.wake_all()
                        is_first = False
            except redis.RedisError:
                self._closed.wait(AGAIN_SECONDS)

    def _wake(self, job: str) -> None:
        with self._lock:
            waiters = list(self._waiters.get(job, ()))
        for loop, event in waiters:
            with suppress(RuntimeError):  # its loop is closed: nobody waits
                loop.call_soon_threadsafe(event.set)
