"""The current time, in milliseconds or as ISO 8601 in UTC, and the difference to the clock of a Redis server."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import redis


def now_iso() -> str:
    """Return the current time, such as ``2025-03-01T12:00:00.000Z``."""
    return iso(now_ms())


def iso(ms: int) -> str:
    """Format a time in milliseconds since 1970 as ISO 8601, such as ``2025-03-01T12:00:00.000Z``."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def clock_skew(client: redis.Redis) -> float:
    """Return by how many seconds this machine's clock is ahead of a Redis server's; raises `redis.RedisError`."""
    before = time.time()
    seconds, micro = client.time()
    return (before + time.time()) / 2 - (seconds + micro / 1e6)
