"""Division of a job into shards, so that several workers can make them: each shard is one task.

A shard has consecutive parts. The parts of a draws job are draws (`worker.records.draws`). A part of an analysis is a
group of resamples, or the audit of one map of a comparison. Results are stored under keys of their inputs, so that a
repeated task finds what is stored already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

# Expected seconds of work in one shard, so that jobs can take turns. A shard with a single part may take longer.
SHARD_SECONDS = 2.0
MAX_SHARDS = 500  # maximum per job; each shard is a task of RQ, and enqueuing a task takes a millisecond


@dataclass(frozen=True)
class PartsSharding:
    """How the parts of an analysis are divided among tasks: each task makes one shard, and a last task combines all.

    Parameters
    ----------
    stage
        Name of the job's stage in which its parts are made.
    sizes
        Number of steps of progress in each part: how many random halves of the data it embeds, or 1 if it audits a map.
    per_shard
        Number of parts in a shard.

    """

    stage: str
    sizes: tuple[int, ...]
    per_shard: int

    @classmethod
    def from_sizes(cls, stage: str, sizes: Sequence[int], seconds: float, max_seconds: float) -> Self | None:
        """Divide parts that are expected to take `seconds` each into shards of at most `max_seconds`.

        `sizes` has the number of steps in each part. Returns None, so that one task makes all parts, if there is only
        one part, or if all parts together are expected to take at most `max_seconds`.
        """
        total = seconds * len(sizes)
        if total <= max_seconds or len(sizes) < 2:
            return None
        per_shard = max(1, int(max_seconds / seconds), math.ceil(len(sizes) / MAX_SHARDS))
        return cls(stage, tuple(sizes), per_shard)

    @property
    def total(self) -> int:
        """Number of steps of progress in all parts of the analysis."""
        return sum(self.sizes)

    @property
    def shards(self) -> int:
        """Number of shards, each of which is made by one task."""
        return math.ceil(len(self.sizes) / self.per_shard)

    def parts(self, shard: int) -> range:
        """Return the indices of the parts that task number `shard` makes; the last task may make fewer."""
        first = shard * self.per_shard
        return range(first, min(first + self.per_shard, len(self.sizes)))

    def shard_size(self, shard: int) -> int:
        """Return how many steps of the job's progress task number `shard` makes: the sum of the sizes of its parts."""
        return sum(self.sizes[part] for part in self.parts(shard))
