"""Draws, which are embeddings sampled from a posterior: their addresses, and the division of a job of many draws.

Several tasks may make the draws of a job. Each task makes one shard, which is stored as one result.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from glle_engine import NUMBERS
from glle_engine.linalg import LANES
from worker.base.versions import versioned_key
from worker.records.cache_entry import file_bytes
from worker.records.ids import digest
from worker.records.sharding import MAX_SHARDS

# In place of a scale (the factor on the posterior covariance): the scale that the posterior's calibration has found.
AUTO: Literal["auto"] = "auto"
# Prefix of the cache keys of draws. It has the version of the engine's results, because another one may change bits.
_GROUPS = versioned_key(f"lanes:{NUMBERS}:")
# Maximum bytes of a shard (the draws that one task makes), which a worker keeps in memory until it writes the file.
MAX_SHARD_BYTES = 2**26
# A sampler process makes single draws that are expected to take at most this long; jobs make slower ones.
QUICK_SECONDS = 1.0


@dataclass(frozen=True)
class DrawAddress:
    """Parameters of a draw from a posterior; they determine every bit of the draw.

    Parameters
    ----------
    seed, index
        Seed of the random numbers, and number of the draw.
    scale
        Factor on the posterior covariance.
    source
        Distribution from which the weights are drawn: ``posterior`` or ``prior``.
    align
        How the draw is aligned to the reference embedding: ``procrustes`` or ``none``.

    """

    seed: int
    index: int
    scale: float
    source: str
    align: str

    def group_key(self, posterior: str) -> str:
        """Return the cache key under which this draw of a posterior is stored, together with its lane group.

        A lane group is the `LANES` draws that are computed together, in SIMD lanes: draws that differ only in
        ``index % LANES``.
        """
        group = f"{self.index // LANES}:{self.scale!r}:{self.source}:{self.align}"
        return f"{_GROUPS}{posterior}:{self.seed}:{group}"


def draws_bytes(n: int, p: int, n_draws: int) -> int:
    """Return about how many bytes `n_draws` draws have, each an embedding (n, p) with p eigenvalues."""
    return file_bytes((n_draws, n, p), (n_draws, p))


@dataclass(frozen=True, kw_only=True)
class DrawsSpec:
    """Parameters of a job of many draws: `n_draws` embeddings of `n` points in `p` dimensions, at each scale.

    The result has all draws of the first scale, then those of the second: position ``s * n_draws + i`` is the draw with
    index ``first + i`` at ``scales[s]``.

    Parameters
    ----------
    scales
        Factors on the posterior covariance; ``auto`` stands for the calibrated factor, which `at` fills in.
    grid
        Whether the result has an axis for the scales: (scales, n_draws, n, p), otherwise (n_draws, n, p).
    draw_seconds
        Expected seconds per draw if many draws are made together (`PosteriorRecord.draw_seconds`).
    shard_seconds
        Expected seconds of work in one shard (the draws that one task makes). The job's record has both times, so that
        all its tasks divide the draws in the same way.

    """

    n: int
    p: int
    n_draws: int
    first: int
    seed: int
    scales: tuple[float | Literal["auto"], ...]
    grid: bool
    source: str
    align: str
    draw_seconds: float
    shard_seconds: float

    @property
    def is_auto(self) -> bool:
        """Whether one of the scales is ``auto``, which a task replaces by the calibrated factor (`at`)."""
        return AUTO in self.scales

    def at(self, calibrated: float) -> Self:
        """Return the specification with the scale ``auto`` replaced by `calibrated`, the factor of a calibration."""
        return replace(self, scales=tuple(calibrated if scale == AUTO else scale for scale in self.scales))

    @property
    def total(self) -> int:
        """Number of draws."""
        return self.n_draws * len(self.scales)

    @property
    def nbytes(self) -> int:
        """Bytes of all draws."""
        return draws_bytes(self.n, self.p, self.total)

    @property
    def seconds(self) -> float:
        """Expected seconds if one worker makes all draws."""
        return self.total * self.draw_seconds

    @property
    def per_shard(self) -> int:
        """Number of draws that one task makes (a shard): a multiple of `LANES`, the draws that are computed together.

        A shard has as many draws as take `shard_seconds` and fit into `MAX_SHARD_BYTES`, but more if the job would
        otherwise have more than `MAX_SHARDS` shards.
        """
        in_time = int(self.shard_seconds / self.draw_seconds)
        in_memory = MAX_SHARD_BYTES // draws_bytes(self.n, self.p, 1)
        size = min(self.total, max(min(in_time, in_memory), math.ceil(self.total / MAX_SHARDS)))
        return LANES * max(1, math.ceil(size / LANES))

    @property
    def shards(self) -> int:
        """Number of shards, each of which is made by one task."""
        return math.ceil(self.total / self.per_shard)

    def shard_size(self, shard: int) -> int:
        """Return the number of draws that task number `shard` makes; the last task may make fewer than `per_shard`."""
        return min(self.per_shard, self.total - shard * self.per_shard)

    def result_key(self, posterior: str, shard: int) -> str:
        """Return the key under which the draws that task number `shard` makes are stored as one result.

        The key is made from all parameters. If one of the `scales` is ``auto``, first replace it by a number with `at`.
        """
        return f"{posterior}:draws:{digest(self.to_dict())}:{shard}"

    def shard_keys(self, shard: int) -> list[DrawAddress]:
        """Return the addresses (seed, index, scale ...) of the draws that task number `shard` makes.

        They are in the order of the result.
        """
        start = shard * self.per_shard
        return [self.key(start + i) for i in range(self.shard_size(shard))]

    def key(self, position: int) -> DrawAddress:
        """Return the address (seed, index, scale ...) of the draw at a position of the result: 0 to `total` - 1."""
        number, index = divmod(position, self.n_draws)
        scale = self.scales[number]
        assert scale != AUTO
        return DrawAddress(self.seed, self.first + index, scale, self.source, self.align)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the specification from which `to_dict` made `value`."""
        return cls(**{**value, "scales": tuple(value["scales"])})
