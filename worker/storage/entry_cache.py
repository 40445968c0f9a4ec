"""The cache's Redis: single draws, and preliminary results of analyses that are still running.

A draw is determined by its address (seed, index, scale, source and alignment), so a lost draw can be drawn again. Up to
`LANES` draws with consecutive indices, which are computed together (a lane group), share one Redis hash, in which the
draw with index i has two fields. Field ``head:i`` is JSON: the metadata, and the names, dtypes and shapes of the
arrays. Field ``data:i`` has the bytes of the arrays, one after another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.base.problems import refuse
from worker.base.versions import versioned_key
from worker.records.cache_entry import pack_entry, parse_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    import redis

    from worker.connections.loop_commands import LoopCommands
    from worker.observability.counters import Counters
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress

TTL_SECONDS = 86_400  # lifetime of an entry, unless the server evicts it earlier


@dataclass(eq=False)
class EntryCache:
    """Reads and writes single draws and preliminary results in the cache's Redis.

    Parameters
    ----------
    client
        Client of the cache's Redis that returns bytes.
    commands
        Sends commands to the same server from the event loop.
    budget
        Bytes of memory of the server. An entry that takes more than half of them is not cached, because it would evict
        the other entries.
    counts
        Counters of hits and misses.

    """

    client: redis.Redis
    commands: LoopCommands
    budget: int
    counts: Counters

    async def read_draw(self, posterior: str, key: DrawAddress) -> Entry | None:
        """Return a draw of a posterior, or None if it is not cached; count a hit or a miss for the metrics."""
        head, data = await self.commands.call("HMGET", *_fields(posterior, key))
        entry = parse_entry(head, data)
        self.counts.add("cache_reads", "server", "miss" if entry is None else "hit")
        return entry

    def put_draws(self, posterior: str, draws: Mapping[DrawAddress, Entry]) -> None:
        """Cache draws of a posterior.

        Raises `ProblemError` (``cache-too-small``) if a draw takes more than half of the server's memory.
        """
        hashes: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        for key, entry in draws.items():
            if entry.nbytes > self.budget // 2:
                raise refuse(
                    "cache-too-small",
                    422,
                    f"A draw takes {entry.nbytes:,} bytes, more than half of the {self.budget:,} bytes of the cache.",
                    "Request several draws at once, which become a job; or ask the administrator to raise "
                    "GLLE_CACHE_BYTES and the cache server's memory.",
                    bytes=entry.nbytes,
                    allowed=self.budget // 2,
                )
            group, *fields = _fields(posterior, key)
            hashes[group] |= zip(fields, pack_entry(entry), strict=True)
        with self.client.pipeline(transaction=False) as pipeline:
            for name, values in hashes.items():
                pipeline.hset(name, mapping=values)  # type: ignore[arg-type] # bytes
                pipeline.expire(name, TTL_SECONDS)
            pipeline.execute()

    def find_partial(self, key: str) -> Entry | None:
        """Return the latest preliminary result of an analysis, or None; `key` is the key of the final result."""
        head, data = self.client.hmget(_partial(key), "head", "data")
        return parse_entry(head, data)  # type: ignore[arg-type] # bytes

    def put_partial(self, key: str, entry: Entry) -> None:
        """Store a preliminary result of an analysis, and replace the previous one; `key` is the final result's key.

        A result that takes more than half of the server's memory is not stored.
        """
        if entry.nbytes > self.budget // 2:
            return
        head, data = pack_entry(entry)
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.hset(_partial(key), mapping={"head": head, "data": data})
            pipeline.expire(_partial(key), TTL_SECONDS)
            pipeline.execute()


def _fields(posterior: str, key: DrawAddress) -> tuple[str, str, str]:
    """Return the key of the Redis hash that has a draw, and its fields with the draw's metadata and with its arrays."""
    return key.group_key(posterior), f"head:{key.index}", f"data:{key.index}"


def _partial(key: str) -> str:
    return versioned_key(f"partial:{key}")
