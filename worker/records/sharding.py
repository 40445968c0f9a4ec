"""Shards of a job: consecutive parts, each stored under a key of its content, so that any worker can make it.

The parts of a draws job are draws (`worker.records.draws`); the parts of an analysis are resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

# Maximum work in one shard, so that jobs interleave; a shard of four resamples may take longer.
SHARD_SECONDS = 2.0
MAX_SHARDS = 500  # shards of a job; each is a task of RQ, and enqueuing it takes a millisecond


class Sharding(Protocol):
    """Division of a job into shards."""

    @property
    def shards(self) -> int:
        """Number of shards."""

    def shard_size(self, shard: int) -> int:
        """Return the number of steps of progress in a shard."""


@dataclass(frozen=True)
class PartsSharding:
    """Division of an analysis into parts, which are made before the last task of the job combines them.

    Parameters
    ----------
    stage
        Stage of the job while its parts are made.
    sizes
        Number of resamples in each part. They are recorded, because they depend on the settings.
    per_shard
        Number of parts in a shard.

    """

    stage: str
    sizes: tuple[int, ...]
    per_shard: int

    @classmethod
    def from_sizes(cls, stage: str, sizes: Sequence[int], seconds: float, max_seconds: float) -> Self | None:
        """Return the shards of parts that take `seconds` each; None if together they take at most `max_seconds`."""
        total = seconds * len(sizes)
        if total <= max_seconds or len(sizes) < 2:
            return None
        per_shard = max(1, int(max_seconds / seconds), math.ceil(len(sizes) / MAX_SHARDS))
        return cls(stage, tuple(sizes), per_shard)

    @property
    def total(self) -> int:
        """Number of resamples."""
        return sum(self.sizes)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return math.ceil(len(self.sizes) / self.per_shard)

    def parts(self, shard: int) -> range:
        """Return the indices of the parts in a shard; the last shard has the rest."""
        first = shard * self.per_shard
        return range(first, min(first + self.per_shard, len(self.sizes)))

    def shard_size(self, shard: int) -> int:
        """Return the number of resamples in a shard."""
        return sum(self.sizes[part] for part in self.parts(shard))
