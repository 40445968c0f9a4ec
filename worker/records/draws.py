"""A draws job as a value: which draws it asks for, in what shards they are made, where each is cached."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from glle_engine.linalg import LANES
from worker.base.versions import versioned
from worker.records.cache_entry import entry_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTO: Literal["auto"] = "auto"  # in place of a scale: the one that half-sampling suggests
CHAINS = 4  # shards of one job that may be in work at once, at least; each enqueues its successor
MOST_PER_SHARD = 64
PIECES = 24  # shards of a job that is long enough: so many divide evenly between a handful of workers
LEAST_SECONDS = 0.05  # of work in a shard, beside which what a shard costs is little: some 2 ms
SECONDS_PER_VALUE = 1e-6  # a draw of many takes about this times n (p + 1) / 3, measured at n = 5,000 and 20,000


@dataclass(frozen=True)
class DrawKey:
    """One draw: everything it is a function of, beside the posterior."""

    seed: int
    index: int
    scale: float
    source: str
    align: str

    def cache_key(self, posterior: str) -> str:
        """Return where its embedding is cached; `posterior` names its arrays (`PosteriorRecord.arrays_id`)."""
        return f"{cache_prefix(posterior)}{self.seed}:{self.index}:{self.scale!r}:{self.source}:{self.align}"


def draws_bytes(n: int, p: int, count: int) -> int:
    """Return the bytes that draws of n points in p dimensions take in the cache."""
    return count * entry_bytes((n, p), (p,))


def draw_seconds(n: int, p: int) -> float:
    """Return the seconds that one of many draws of n points in p dimensions takes, by estimate."""
    return SECONDS_PER_VALUE * n * (p + 1) / 3


def shard_seconds(n: int, p: int, total: int, most: float) -> float:
    """Return the seconds of work in one shard of `total` draws: `most`, less where that gave too few to divide."""
    return min(most, max(LEAST_SECONDS, total * draw_seconds(n, p) / PIECES))


def cache_prefix(posterior: str) -> str:
    """Return what the cache keys of all draws of a posterior begin with."""
    return versioned(f"draw:{posterior}:")


@dataclass(frozen=True, kw_only=True)
class DrawsSpec:
    """What a draws job makes of a posterior of `n` points in `p` dimensions.

    Draws are numbered scale by scale: position ``s * count + i`` is draw ``first + i`` at ``scales[s]``.

    Parameters
    ----------
    scales
        Factors on the covariance. ``auto`` is the posterior's calibrated one, a number once it is known:
        see `at`.
    grid
        Whether the scales are an axis of the result, or there is just the one.
    shard_seconds
        The work in one shard, by estimate. It is recorded, as all that the shards are a function of: workers of
        another version, that would choose another one, have the same shards.

    """

    n: int
    p: int
    count: int
    first: int
    seed: int
    scales: tuple[float | Literal["auto"], ...]
    grid: bool
    source: str
    align: str
    shard_seconds: float

    @property
    def is_auto(self) -> bool:
        """Whether a scale is still to be calibrated."""
        return AUTO in self.scales

    def at(self, calibrated: float) -> Self:
        """Return the same with this number for ``auto``: its draws are those of the number, to the last bit."""
        return replace(self, scales=tuple(calibrated if scale == AUTO else scale for scale in self.scales))

    @property
    def total(self) -> int:
        """The number of draws."""
        return self.count * len(self.scales)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the embeddings: (count, n, p), or (scales, count, n, p) for a grid."""
        grid = (len(self.scales),) if self.grid else ()
        return (*grid, self.count, self.n, self.p)

    @property
    def nbytes(self) -> int:
        """Bytes of the job's draws in the cache."""
        return draws_bytes(self.n, self.p, self.total)

    @property
    def seconds(self) -> float:
        """The work, in seconds of one worker, by estimate."""
        return self.total * draw_seconds(self.n, self.p)

    @property
    def per_shard(self) -> int:
        """Draws in a shard, whole lane groups: `shard_seconds` of work, less when all chains would not get one."""
        in_time = int(self.shard_seconds / draw_seconds(self.n, self.p))
        wished = min(MOST_PER_SHARD, in_time, math.ceil(self.total / CHAINS))
        return LANES * max(1, math.ceil(wished / LANES))

    @property
    def shards(self) -> int:
        """The number of shards."""
        return math.ceil(self.total / self.per_shard)

    def chains(self, workers: int) -> int:
        """Return how many shards may be in work at once, where so many workers are.

        As many as there are workers, so that no other job waits for longer than a task takes; but each is to have two
        shards to make of the posterior that it reads first.
        """
        return max(CHAINS, min(workers, self.shards // 2))

    def shard_size(self, shard: int) -> int:
        """Return the number of draws in a shard; the last has the rest."""
        return min(self.per_shard, self.total - shard * self.per_shard)

    def shard_keys(self, shard: int) -> list[DrawKey]:
        """Return the draws of a shard."""
        start = shard * self.per_shard
        return [self.key(start + i) for i in range(self.shard_size(shard))]

    def draws(self) -> Iterator[DrawKey]:
        """Yield all draws in the order of the result."""
        return (self.key(position) for position in range(self.total))

    def key(self, position: int) -> DrawKey:
        """Return the draw at a position of the result."""
        which, index = divmod(position, self.count)
        scale = self.scales[which]
        assert scale != AUTO
        return DrawKey(self.seed, self.first + index, scale, self.source, self.align)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(**{**value, "scales": tuple(value["scales"])})
