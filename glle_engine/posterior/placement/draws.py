r"""Draws of a posterior on landmarks: the landmarks by the eigenproblem, the other points by drawn weights on them.

The normals of landmark i are row i of the draw's stream, those of other point q row :math:`4 \lceil m / 4 \rceil + q`,
so that the weights of a point depend on (seed, index) and the point only.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import LANES
from glle_engine.posterior.sampler import ordered_map
from glle_engine.weights.gaussian import sample_lanes
from glle_engine.weights.lane_sampling import GROUP, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from glle_engine.base.spec import Align, Source
    from glle_engine.posterior.draw import Draw, DrawKey
    from glle_engine.posterior.sampler import Sampler
    from glle_engine.weights.gaussian import WeightLaw

_BLOCK_ENTRIES = 1 << 22  # of the factors of some points: 32 MB


@dataclass(frozen=True, eq=False)
class Placement:
    """Points that are no landmarks, and the law of their weights.

    Attributes
    ----------
    law : WeightLaw
        Of all n points.
    neighbors : (n, k) int32
        Landmarks near each point, as points.
    landmarks : (m,) int32
        Ascending.

    """

    law: WeightLaw
    neighbors: NDArray[np.int32]
    landmarks: NDArray[np.int32]

    @cached_property
    def others(self) -> NDArray[np.intp]:
        """The points that are no landmarks, ascending."""
        return np.setdiff1d(np.arange(len(self.neighbors)), self.landmarks, assume_unique=True)

    def positions(self, points: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the positions (r, k) of the neighbors of points (r,) among the landmarks."""
        return np.asarray(np.searchsorted(self.landmarks, self.neighbors[points]), np.int32)

    def weights(self, key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Return the weights (n - m, k) of the other points in a draw."""
        k = self.neighbors.shape[1]
        weights = np.empty((len(self.others), k))
        for rows, counter in self._blocks():
            law = self.law.at(self.others[rows])
            weights[rows] = law.draw((key.seed, key.index), key.scale, source, counter)
        return weights

    def place(self, draws: list[Draw]) -> list[Draw]:
        """Return draws of the landmarks, of one source, with the places of all points."""
        wholes = [np.empty((len(self.neighbors), draw.embedding.shape[1])) for draw in draws]
        for whole, draw in zip(wholes, draws, strict=True):
            whole[self.landmarks] = draw.embedding
        for start in range(0, len(draws), LANES):
            self._fill(draws[start : start + LANES], wholes[start : start + LANES])
        return [replace(draw, embedding=whole) for draw, whole in zip(draws, wholes, strict=True)]

    def _fill(self, draws: list[Draw], wholes: list[NDArray[np.float64]]) -> None:
        """Write the places of the other points in at most `LANES` draws."""
        filled = [*draws, *[draws[0]] * (LANES - len(draws))]  # unused lanes repeat the first
        p = draws[0].embedding.shape[1]
        values = np.ascontiguousarray(np.stack([draw.embedding for draw in filled], axis=2)).ravel()
        streams = [(draw.seed, draw.index, math.sqrt(draw.scale)) for draw in filled]
        for rows, counter in self._blocks():
            points = self.others[rows]
            weights = sample_lanes(streams, *self.law.at(points).gaussian(draws[0].source), counter)
            places = np.empty(len(points) * p * LANES)
            place((0,) * LANES, self.positions(points).astype(np.int64), weights.ravel(), values, places)
            for lane, whole in enumerate(wholes):
                whole[points] = places.reshape(-1, p, LANES)[:, :, lane]

    def _blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield slices of the other points with the counters of the stream at which their normals begin."""
        k, n = self.neighbors.shape[1], len(self.others)
        size = GROUP * max(1, _BLOCK_ENTRIES // (GROUP * k * k))
        first = -(-len(self.landmarks) // GROUP)
        for start in range(0, n, size):
            yield slice(start, min(start + size, n)), (first + start // GROUP) * k


@dataclass(frozen=True, eq=False)
class LandmarkSampler:
    """Sampler of weights and embeddings of all points.

    Attributes
    ----------
    sampler : Sampler
        Of the landmarks.
    placement : Placement

    """

    sampler: Sampler
    placement: Placement

    def weights(self, key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Return the weights (n, k) of one draw."""
        weights = np.empty(self.placement.neighbors.shape)
        weights[self.placement.landmarks] = self.sampler.weights(key, source)
        weights[self.placement.others] = self.placement.weights(key, source)
        return weights

    def draws(self, keys: Iterable[DrawKey], source: Source, align: Align, threads: int = 1) -> Iterator[Draw]:
        """Yield the draws of keys, in their order: see `glle_engine.posterior.sampler.Sampler.draws`."""
        drawn = self.sampler.draws(keys, source, align, threads)
        groups = iter(lambda: list(itertools.islice(drawn, LANES)), [])
        for group in ordered_map(self.placement.place, groups, threads):
            yield from group
