"""The cache's Redis: single draws, and preliminary results of analyses that are still running.

A draw is determined by its address (seed, index, scale, source and alignment), so a lost draw can be drawn again. Up to
`LANES` draws with consecutive indices, which are computed together (a lane group), share one Redis hash, in which the
draw with index i is the field i.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.base.problems import refuse
from worker.base.versions import versioned_key
from worker.records.cache_entry import entry_parts, parse_entry

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
        raw = await self.commands.call("HGET", key.group_key(posterior), str(key.index))
        entry = None if raw is None else parse_entry(memoryview(raw))
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
            hashes[key.group_key(posterior)][str(key.index)] = b"".join(entry_parts(entry))
        with self.client.pipeline(transaction=False) as pipeline:
            for name, values in hashes.items():
                pipeline.hset(name, mapping=values)  # type: ignore[arg-type] # bytes
                pipeline.expire(name, TTL_SECONDS)
            pipeline.execute()

    def find_partial(self, key: str) -> Entry | None:
        """Return the latest preliminary result of an analysis, or None; `key` is the key of the final result."""
        raw = self.client.get(_partial(key))
        return None if raw is None else parse_entry(memoryview(raw))  # type: ignore[arg-type] # bytes

    def put_partial(self, key: str, entry: Entry) -> None:
        """Store a preliminary result of an analysis, and replace the previous one; `key` is the final result's key.

        A result that takes more than half of the server's memory is not stored.
        """
        if entry.nbytes <= self.budget // 2:
            self.client.set(_partial(key), b"".join(entry_parts(entry)), ex=TTL_SECONDS)


def _partial(key: str) -> str:
    return versioned_key(f"partial:{key}")
