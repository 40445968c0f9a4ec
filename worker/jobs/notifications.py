"""Notifications that a job has ended or a draw is made, from Redis to the HTTP requests that wait for this.

The script that ends a job publishes the job's id (`worker.jobs.lua_scripts`). A sampler publishes the draws that it has
made (`worker.jobs.draw_stream`). Each event loop subscribes to a channel once, when its first request waits.
Notifications are lost while a connection is down, so all waiting requests are woken after the loop has subscribed
again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import redis

from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redis import asyncio as redis_asyncio

    Connect = Callable[[], redis_asyncio.Redis]
    Outcomes = Callable[[bytes], Mapping[str, Any]]

RECONNECT_SECONDS = 0.5
SUBSCRIBE_SECONDS = 1.0


class Waiter(asyncio.Event):
    """Event that is set when a notification about the awaited job or draw arrives.

    Attributes
    ----------
    outcome : Any
        What the last notification says about the job or draw, such as a `DrawAnswer`; None if it says nothing.

    """

    outcome: Any = None


class Notifications:
    """Subscribes to one channel of Redis, and wakes the HTTP requests that wait for a notification on this channel.

    Parameters
    ----------
    connect
        Returns a client of redis.asyncio for a subscription.
    channel
        Name of the channel.
    outcomes
        Parses a message into a mapping from the name of a job or draw to its outcome. An empty mapping wakes all
        requests. By default, a message is the id of a job.

    Attributes
    ----------
    channel : str
        Name of the channel.
    is_over : bool
        Whether the process is about to stop, so that requests should wait no longer.

    """

    def __init__(self, connect: Connect, channel: str, outcomes: Outcomes | None = None) -> None:
        self.channel = channel
        self.is_over = False
        self._connect = connect
        self._outcomes = outcomes or _job_outcomes
        self._subscriptions: dict[asyncio.AbstractEventLoop, _Subscription] = {}

    @contextmanager
    def listen(self, name: str) -> Iterator[Waiter]:
        """Yield an event that each notification about a job or draw sets; the caller clears the event to wait again.

        `name` is the id of the job, or the name of the draw (`waited_name`).
        """
        waiters, waiter = self._subscription().waiters, Waiter()
        waiters[name].add(waiter)
        try:
            yield waiter
        finally:
            waiters[name].discard(waiter)
            if not waiters[name]:
                del waiters[name]

    async def wait_until_subscribed(self) -> None:
        """Return once the channel is subscribed, or after `SUBSCRIBE_SECONDS`."""
        is_subscribed = self._subscription().is_subscribed
        if not is_subscribed.is_set():
            with suppress(TimeoutError):  # `asyncio.wait_for` of Python 3.11 may lose a cancellation
                async with asyncio.timeout(SUBSCRIBE_SECONDS):
                    await is_subscribed.wait()

    def end(self) -> None:
        """Set `is_over`, and wake all waiting requests, so that they answer before the process ends."""
        self.is_over = True
        self._call(_Subscription.wake_all)

    def close(self) -> None:
        """Cancel the subscriptions of all event loops."""
        self._call(lambda subscription: subscription.task.cancel())

    def _call(self, method: Callable[[_Subscription], object]) -> None:
        for loop, subscription in list(self._subscriptions.items()):
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(method, subscription)

    def _subscription(self) -> _Subscription:
        """Return the subscription of the running event loop; start it if there is none."""
        loop = asyncio.get_running_loop()
        if (subscription := self._subscriptions.get(loop)) is None:
            subscription = self._subscriptions[loop] = _Subscription(self._connect, self.channel, self._outcomes)
            subscription.task.add_done_callback(lambda _: self._subscriptions.pop(loop, None))
        return subscription


class _Subscription:
    """Subscription of one event loop to a channel, with the requests that wait in this loop."""

    def __init__(self, connect: Connect, channel: str, outcomes: Outcomes) -> None:
        self.waiters: defaultdict[str, set[Waiter]] = defaultdict(set)
        self.is_subscribed = asyncio.Event()
        self._outcomes = outcomes
        self.task = asyncio.create_task(self._run(connect, channel), name=channel)

    def wake_all(self) -> None:
        """Set the events of all requests that wait in this event loop."""
        for name in list(self.waiters):
            self._wake(name)

    async def _run(self, connect: Connect, channel: str) -> None:
        while True:
            with suppress(redis.RedisError, OSError):
                async with connect() as client, client.pubsub() as subscription:
                    await subscription.subscribe(channel)
                    # None means that the connection is closed; redis-py's own `listen` would then loop for ever.
                    while (message := await subscription.get_message(timeout=None)) is not None:
                        if message["type"] == "message":
                            self._receive(message["data"])
                            continue
                        if self.is_subscribed.is_set():  # subscribed again; messages may be lost
                            self.wake_all()
                        self.is_subscribed.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    def _receive(self, message: bytes) -> None:
        try:
            outcomes = self._outcomes(message)
        except (ValueError, KeyError, TypeError):  # another program published the message
            outcomes = {}
        if not outcomes:
            self.wake_all()
        for name, outcome in outcomes.items():
            self._wake(name, outcome)

    def _wake(self, name: str, outcome: Any = None) -> None:
        for waiter in self.waiters.get(name, ()):
            waiter.outcome = outcome or waiter.outcome
            waiter.set()


def _job_outcomes(message: bytes) -> Mapping[str, None]:
    """Return {job id: None} for a message that a job has ended: None, because the message does not say how it ended."""
    return {text(message): None}
