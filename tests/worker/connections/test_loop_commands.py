"""Redis commands of an event loop: sent together, answered one by one, and repeated after a lost connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis

from worker.base.settings import Settings
from worker.connections import clients
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker, CircuitOpenError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def commands(settings: Settings, seconds: float = 5.0) -> LoopCommands:
    """Return an object that sends commands to the cache's server."""
    return LoopCommands(
        clients.subscriber(settings.cache_url, "GLLE_CACHE_URL"), CircuitBreaker(seconds, "GLLE_CACHE_URL"), seconds
    )


def run(loop_commands: LoopCommands, work: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of `work` on an event loop, whose end closes the connection."""

    async def main() -> Any:
        return await work()

    result = asyncio.run(main())
    assert not loop_commands._links
    return result


def test_concurrent_commands_get_their_own_replies(server_settings: Settings) -> None:
    """Each command gets its own reply; an error is only raised for the command that caused it."""
    loop_commands = commands(server_settings)

    async def work() -> list[Any]:
        await loop_commands.call("SET", "text", "x")
        calls = [loop_commands.call("ECHO", str(number)) for number in range(50)]
        calls.insert(20, loop_commands.call("HGET", "text", "field"))
        return await asyncio.gather(*calls, return_exceptions=True)

    replies = run(loop_commands, work)
    assert isinstance(replies.pop(20), redis.ResponseError)
    assert replies == [str(number).encode() for number in range(50)]


def test_a_cancelled_command_leaves_no_reply_to_another(server_settings: Settings) -> None:
    """If a request is cancelled at any moment, the reply to its command is read and dropped."""
    loop_commands = commands(server_settings)

    async def work() -> None:
        for steps in range(20):
            tasks = [asyncio.create_task(loop_commands.call("ECHO", "lost")) for _ in range(3)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            assert await loop_commands.call("ECHO", str(steps)) == str(steps).encode()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(loop_commands, work)


def test_a_lost_connection_is_replaced(server_settings: Settings) -> None:
    """If the server has closed the connection, the command is sent again over a new one."""
    loop_commands = commands(server_settings)

    async def work() -> bytes:
        identity = await loop_commands.call("CLIENT", "ID")
        clients.connect_cache(server_settings).client_kill_filter(_id=str(identity))
        reply: bytes = await loop_commands.call("ECHO", "again")
        return reply

    assert run(loop_commands, work) == b"again"


def test_a_silent_server_opens_the_circuit_breaker() -> None:
    """The waiting commands end together after the timeout; further commands fail at once."""

    async def work() -> None:
        ended = asyncio.Event()

        async def stay_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ended.wait()
            writer.close()

        async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            loop_commands = commands(Settings(cache_url=f"redis://127.0.0.1:{port}"), 0.2)
            errors = await asyncio.gather(*(loop_commands.call("PING") for _ in range(3)), return_exceptions=True)
            assert {type(error) for error in errors} == {redis.TimeoutError}
            with pytest.raises(CircuitOpenError):
                await loop_commands.call("PING")
            ended.set()

    asyncio.run(work())
