"""Checks that functions on an event loop leave no connection, no reply and no greenlet behind."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

from worker.connections import loop_pool
from worker.connections.event_loop import LoopGreenlet
from worker.connections.loop_pool import LoopPool

if TYPE_CHECKING:
    import redis


def greenlets() -> int:
    """Return the number of greenlets of functions that have not ended."""
    gc.collect()
    # by type, because a weak proxy to a lost object has no class to ask
    return sum(issubclass(type(item), LoopGreenlet) and not item.dead for item in gc.get_objects())


def connections(client: redis.Redis) -> Any:
    """Return the connections of the running event loop."""
    pool: Any = client.connection_pool
    assert isinstance(pool, LoopPool)
    return pool._loops[asyncio.get_running_loop()]


def require_all_returned(client: redis.Redis) -> None:
    """Check that no function holds a connection, and that the idle ones have no unread reply."""
    own = connections(client)
    assert own._free._value == loop_pool.MAX_CONNECTIONS
    assert all(connection.holder is None for connection in own._idle)
    assert not any(connection._connection._reader._buffer for connection in own._idle)
