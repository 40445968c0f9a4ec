"""Blocks of resamples of a posterior, and their cache keys."""

from __future__ import annotations

from dataclasses import dataclass

from worker.base.versions import versioned
from worker.records.cache_entry import entry_bytes

RESAMPLES = "resamples"  # kind of cache keys
PER_BLOCK = 4  # also the fewest of a stream; a killed worker's successor makes at most one block again


@dataclass(frozen=True)
class ResampleBlock:
    """Address of the resamples first, ..., first + 3 of a stream, within a posterior.

    Parameters
    ----------
    stream
        Number of the stream (`glle_engine.posterior.spread.resampling.Stream`).

    """

    stream: int
    seed: int
    number: int

    @property
    def first(self) -> int:
        """Its first resample."""
        return self.number * PER_BLOCK

    def cache_key(self, posterior: str) -> str:
        """Return its cache key; `posterior` names the posterior's arrays (`PosteriorRecord.arrays_id`)."""
        return versioned(f"{RESAMPLES}:{posterior}:{self.stream}:{self.seed}:{self.number}")


def resample_blocks(stream: int, seed: int, count: int) -> list[ResampleBlock]:
    """Return the blocks of the first `count` resamples of a stream; the last one may have more."""
    return [ResampleBlock(stream, seed, number) for number in range(-(-count // PER_BLOCK))]


def resamples_bytes(n: int, p: int, count: int) -> int:
    """Return the cache bytes of `count` resamples of a stream of n points in p dimensions."""
    return len(resample_blocks(0, 0, count)) * entry_bytes((PER_BLOCK, n, p))
