"""Cache of draws: the entries of the array cache under the keys of draws.

`arrays_id` names a posterior's arrays (`PosteriorRecord.arrays_id`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from worker.records.cache_entry import parse_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from worker.connections.loop_commands import LoopCommands
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress
    from worker.storage.array_cache import ArrayCache, Tier


class DrawCache:
    """Draws in the cache of all entries; the methods are those of `ArrayCache`."""

    def __init__(self, cache: ArrayCache, commands: LoopCommands) -> None:
        self._cache = cache
        self._commands = commands

    async def read(self, arrays_id: str, key: DrawAddress) -> Entry | None:
        """Return a draw, or None; a thread reads a large one, and looks in the object store."""
        head, data = await self._commands.call(
            "HMGET", key.group_key(arrays_id), f"head:{key.index}", f"data:{key.index}"
        )
        if head is None and self._cache.objects is None:
            self._cache.count_reads("server", 0, 1)
            return None
        if not head or data is None:
            return await asyncio.to_thread(self.get, arrays_id, key)
        self._cache.count_reads("server", 1, 0)
        return parse_entry(head, data)

    def get(self, arrays_id: str, key: DrawAddress) -> Entry | None:
        """Return a draw, or None."""
        return self._cache.get(key.cache_key(arrays_id))

    def get_many(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[Entry | None]:
        """Return draws, each as `get` does."""
        return self._cache.get_many(_cache_keys(arrays_id, keys))

    def heads(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[dict[str, Any] | None]:
        """Return the metadata of draws, None for a missing one."""
        return self._cache.heads(_cache_keys(arrays_id, keys))

    def contains(self, arrays_id: str, keys: Sequence[DrawAddress]) -> list[bool]:
        """Return for each draw whether it is cached."""
        return self._cache.contains(_cache_keys(arrays_id, keys))

    def put(self, arrays_id: str, draws: Mapping[DrawAddress, Entry], tier: Tier = "cache") -> None:
        """Write draws to their tier; raises as `ArrayCache.put_many`."""
        self._cache.put_many({key.cache_key(arrays_id): entry for key, entry in draws.items()}, tier)

    def delete(self, arrays_id: str, key: DrawAddress) -> None:
        """Remove a draw, if it is cached."""
        self._cache.delete(key.cache_key(arrays_id))


def _cache_keys(arrays_id: str, keys: Iterable[DrawAddress]) -> list[str]:
    return [key.cache_key(arrays_id) for key in keys]
