"""Connection pool of a synchronous client that also serves functions on an event loop.

redis-py's client sends and reads through the connections of its pool. On an event loop (`on_loop`) `LoopPool` hands out
connections of redis.asyncio behind the synchronous interface. Commands, pipelines, transactions, scripts and retries
are therefore redis-py's own in both cases. Threads get the connections of the original pool.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import redis
from greenlet import getcurrent
from redis.asyncio import connection as asyncio_connection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from worker.connections.event_loop import LoopGreenlet, is_on_loop, suspend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

MAX_CONNECTIONS = 40  # of one event loop to one server; further functions wait for a free one
_OWN_OPTIONS = frozenset({"connection_pool", "retry", "command_packer"})  # of synchronous connections
_UNSUPPORTED = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled", "ssl_ocsp_context", "ssl_ocsp_expected_cert")


def serve_event_loops(client: redis.Redis) -> None:
    """Let functions on an event loop use a client, as threads do.

    Raises
    ------
    ValueError
        For options that redis.asyncio lacks.

    """
    pool = client.connection_pool
    for name in _UNSUPPORTED:
        if pool.connection_kwargs.get(name):
            raise ValueError(f"{name} is not supported. Remove it.")
    client.connection_pool = cast("ConnectionPool", LoopPool(pool))
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.sentinel_manager.sentinels:
            serve_event_loops(sentinel)


class LoopPool:
    """Pool of a synchronous client; each event loop has separate connections."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._loops: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original pool."""
        return getattr(self._pool, name)

    def get_connection(self, *_: Any, **__: Any) -> Any:
        """Return a connected connection, of the running event loop or for a thread."""
        if not is_on_loop():
            return self._pool.get_connection()
        loop = asyncio.get_running_loop()
        if (connections := self._loops.get(loop)) is None:
            with self._lock:
                connections = self._loops[loop] = _Connections(self._pool, lambda: self._loops.pop(loop, None))
        return connections.take()

    def release(self, connection: Any) -> None:
        """Return a connection to where it came from."""
        if isinstance(connection, LoopConnection):
            connection.home.give(connection)
        else:
            self._pool.release(connection)

    def disconnect(self, *arguments: Any, **options: Any) -> None:
        """Close the connections; those of an event loop in its thread."""
        self._pool.disconnect(*arguments, **options)
        with self._lock:
            loops, self._loops = self._loops, {}
        for loop, connections in loops.items():
            with suppress(RuntimeError):  # the loop is closed, and its connections with it
                loop.call_soon_threadsafe(connections.close)

    def close(self) -> None:
        """Close the connections, as `disconnect`."""
        self.disconnect()


class _Connections:
    """Connections of one event loop to one server; they are closed at the end of the loop."""

    def __init__(self, pool: ConnectionPool, forget: Callable[[], object]) -> None:
        self._pool = pool
        self._idle: list[LoopConnection] = []
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._closing = asyncio.Event()
        self._closer = asyncio.create_task(self._close_at_end(forget), name="Redis connections")

    def take(self) -> LoopConnection:
        """Return a connected connection; wait if too many are in use.

        Only the first connection of a function is counted. A function that holds one and waits for another could
        otherwise wait for itself.
        """
        holder = getcurrent()
        assert isinstance(holder, LoopGreenlet)
        if not holder.connections:
            suspend(self._free.acquire())
        is_counted = not holder.connections
        holder.connections += 1
        connection = self._idle.pop() if self._idle else LoopConnection(self._pool, self)
        connection.holder, connection.is_counted = holder, is_counted
        try:
            connection.require_usable()
        except BaseException:
            self.give(connection)
            raise
        return connection

    def give(self, connection: LoopConnection) -> None:
        """Take a connection back; a closed one is dropped."""
        assert connection.holder is not None
        connection.holder.connections -= 1
        connection.holder = None
        if connection.is_counted:
            self._free.release()
        if not connection.is_connected:
            return
        if connection.should_reconnect() or self._closing.is_set():
            connection.drop()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections, and the others when they are given back."""
        self._closing.set()

    async def _close_at_end(self, forget: Callable[[], object]) -> None:
        """Close the connections once `close` is called, or when the loop ends and cancels its tasks."""
        try:
            await self._closing.wait()
        except asyncio.CancelledError:
            forget()
            raise
        finally:
            self._closing.set()
            while self._idle:
                await self._idle.pop().aclose()


class LoopConnection:
    """Connection of redis.asyncio with the interface of a synchronous one, for functions that run by `on_loop`.

    An error, a timeout or a cancellation within a reply closes it, so that no other command reads the rest.
    """

    holder: LoopGreenlet | None = None
    is_counted = False

    def __init__(self, pool: ConnectionPool, home: _Connections) -> None:
        self.home = home
        self._pool = pool
        options = pool.connection_kwargs
        self.retry: Retry = options.get("retry") or Retry(NoBackoff(), 0)
        options = {name: value for name, value in options.items() if name not in {*_OWN_OPTIONS, *_UNSUPPORTED}}
        self._seconds = options.pop("socket_timeout", None)
        kind = _asyncio_class(pool.connection_class)
        self._connection = kind(**options, socket_timeout=None, retry=AsyncRetry(NoBackoff(), 0))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the connection of redis.asyncio that needs no wait."""
        return getattr(self._connection, name)

    def connect(self) -> None:
        """Connect, with the client's retries."""
        self.retry.call_with_retry(self._connect, lambda _: self.disconnect())

    def disconnect(self, *_: Any, **__: Any) -> None:
        """Close the connection."""
        suspend(self._connection.disconnect(nowait=True))

    def drop(self) -> None:
        """Close the connection, outside of functions that could be suspended."""
        self._connection._close()  # type: ignore[no-untyped-call] # noqa: SLF001 # redis-py's public method is async

    async def aclose(self) -> None:
        """Close the connection, and wait until it is closed."""
        await self._connection.disconnect()

    def require_usable(self) -> None:
        """Connect, unless the connection is open, without unread data, and to the current master."""
        if self._connection.is_connected:
            with suppress(redis.RedisError, OSError):
                if self._is_of_master() and not suspend(self._connection.can_read()):
                    return
            self.disconnect()
        self.connect()

    def send_command(self, *command: Any, **options: Any) -> None:
        """Send a command."""
        self.send_packed_command(self._connection.pack_command(*command), options.get("check_health", True))

    def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002 # redis-py's signature
        """Send packed commands; connect first if the connection was closed."""
        if not self._connection.is_connected:
            self._connect()
        self._wait_for(self._connection.send_packed_command(command, check_health))

    def read_response(self, disable_decoding: bool = False, **options: Any) -> Any:  # noqa: FBT001, FBT002 # redis-py's signature
        """Return a reply."""
        return self._wait_for(self._connection.read_response(disable_decoding, **options))

    def _connect(self) -> None:
        if isinstance(self._pool, SentinelConnectionPool):
            self._connection.host, self._connection.port = self._pool.get_master_address()  # type: ignore[attr-defined, no-untyped-call] # redis-py's
        self._wait_for(self._connection.connect_check_health(retry_socket_connect=False))

    def _wait_for(self, answer: Awaitable[Any]) -> Any:
        """Wait within the socket timeout; redis.asyncio's makes a task of each command sent."""
        try:
            return suspend(answer, self._seconds)
        except TimeoutError:
            raise redis.TimeoutError("The Redis server did not answer in time.") from None

    def _is_of_master(self) -> bool:
        """Return whether the connection is to the master that the sentinels last named, if there are sentinels."""
        if not isinstance(self._pool, SentinelConnectionPool):
            return True
        return self._pool.master_address in {None, (self._connection.host, self._connection.port)}  # type: ignore[attr-defined] # redis-py's


def _asyncio_class(kind: type[Connection]) -> type[asyncio_connection.AbstractConnection]:
    """Return the class of redis.asyncio that corresponds to a synchronous connection."""
    if issubclass(kind, UnixDomainSocketConnection):
        return asyncio_connection.UnixDomainSocketConnection
    return asyncio_connection.SSLConnection if issubclass(kind, SSLConnection) else asyncio_connection.Connection
