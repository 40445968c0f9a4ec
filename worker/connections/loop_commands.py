"""Send Redis commands from an event loop: all commands that wait at one time are sent together, over one connection.

Routes usually call the stores in threads. A request for a single draw needs only two or three commands of a few
microseconds each, so these commands are sent from the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis import asyncio as redis_asyncio

    from worker.connections.retry import CircuitBreaker

    Command = tuple[Any, ...]
    Waiting = list[tuple[Command, asyncio.Future[Any]]]


class LoopCommands:
    """Sends commands to one server, over one connection for each event loop.

    Parameters
    ----------
    connect
        Returns a client of redis.asyncio.
    breaker
        Circuit breaker that the synchronous client of the server, used in threads, shares.
    seconds
        Time limit for the replies to commands that are sent together.

    """

    def __init__(self, connect: Callable[[], redis_asyncio.Redis], breaker: CircuitBreaker, seconds: float) -> None:
        self._connect = connect
        self._breaker = breaker
        self._seconds = seconds
        self._links: dict[asyncio.AbstractEventLoop, _Link] = {}

    async def call(self, *command: Any) -> Any:
        """Return the reply to a command; raises `redis.RedisError`."""
        loop = asyncio.get_running_loop()
        if (link := self._links.get(loop)) is None:
            link = self._links[loop] = _Link(self._connect(), self._breaker, self._seconds)
            link.task.add_done_callback(lambda _: self._links.pop(loop, None))
        reply = loop.create_future()
        link.waiting.append((command, reply))
        link.has_commands.set()
        return await reply

    def close(self) -> None:
        """Close the connections."""
        for loop, link in list(self._links.items()):
            with suppress(RuntimeError):  # the loop is closed, and so is its connection
                loop.call_soon_threadsafe(link.task.cancel)


class _Link:
    """The connection of one event loop, and the commands that are not sent yet; closed when the loop ends."""

    def __init__(self, client: redis_asyncio.Redis, breaker: CircuitBreaker, seconds: float) -> None:
        self.waiting: Waiting = []
        self.has_commands = asyncio.Event()
        self._connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call] # redis-py's
        self._breaker = breaker
        self._seconds = seconds
        self.task = asyncio.create_task(self._run(), name="Redis commands")

    async def _run(self) -> None:
        try:
            while await self.has_commands.wait():
                self.has_commands.clear()
                waiting, self.waiting = self.waiting, []
                commands = [command for command, _ in waiting]
                try:
                    replies = await self._breaker.call_on_loop(self._send, commands)
                except redis.RedisError as error:
                    replies = [error] * len(waiting)
                except OSError as error:
                    replies = [redis.ConnectionError(str(error))] * len(waiting)
                _give(replies, waiting)
        finally:
            for _, reply in self.waiting:
                reply.cancel()
            await self._connection.disconnect(nowait=True)

    async def _send(self, commands: list[Command]) -> list[Any]:
        """Send commands, and return their replies in order; an error reply is returned as an exception.

        If the connection fails, close it and raise the error.
        """
        replies: list[Any] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._connection.connect()
                await self._connection.send_packed_command(self._connection.pack_commands(commands))
                while len(replies) < len(commands):
                    try:
                        replies.append(await self._connection.read_response())
                    except redis.ReadOnlyError:  # after a failover, the connection leads to the former master
                        raise
                    except redis.ResponseError as error:
                        replies.append(error)
        except BaseException as error:
            await self._connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise redis.TimeoutError("The Redis server did not answer in time.") from None
            raise
        return replies


def _give(replies: Sequence[Any], waiting: Waiting) -> None:
    """Set the future of each waiting command to the command's reply, or to the exception that took its place."""
    for (_, future), reply in zip(waiting, replies, strict=True):
        if future.done():  # cancelled, because the client has disconnected
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
