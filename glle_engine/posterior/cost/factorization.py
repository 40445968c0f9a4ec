r"""Fill and operations of the factors of B, from the symbolic factorisation of a graph or of subsamples.

The graph of all points is analysed if they are few. Of many points a fixed subsample and its two halves are searched
and analysed. The work grows like a power of n. For data of intrinsic dimension D, a separator has some
:math:`n^{(D-1)/D}` points (Lipton, Rose and Tarjan 1979), so that the fill grows like :math:`n^{2(D-1)/D}`, or
:math:`n \log n` on sheets, and the operations like :math:`n^{3(D-1)/D}`. The exponent is the mean of this one and of
that between the two sizes, which is noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from glle_engine.eigen.batched.symbolic.structure import front_sizes
from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances
from glle_engine.posterior.fit import DRAWS
from glle_engine.posterior.selection import intrinsic_dimension

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

MAX_ANALYSED = 3000  # points; the largest graph that is analysed as a whole
MAX_EDGES = 150_000  # of an analysed graph
MAX_VALUES = 1_500_000  # of searched data
_LEAST_PER_NEIGHBOR = 8  # points of the smaller size, for each neighbor


class Work(NamedTuple):
    """Work of one factorization.

    Attributes
    ----------
    entries : float
        Stored entries of L and U.
    flops : float
        Floating-point operations.
    scratch : float
        Entries of the area for contribution blocks.

    """

    entries: float
    flops: float
    scratch: float


_DENSE_ENTRIES, _DENSE_FLOPS = 2.0, 3.0  # exponents of dense factors
_LEAST_ENTRIES = 1.1  # n log n as a power, between a thousand and a million points


@dataclass(frozen=True)
class Factorization:
    """Work of the factorization by number of points, and the intrinsic dimension of the data.

    Attributes
    ----------
    points : tuple of int
        Numbers of analysed points, ascending: one or two.
    works : tuple of Work
        The work at each of them.
    dimension : float
        Estimate at the density of the largest (`glle_engine.posterior.selection.intrinsic_dimension`).

    """

    points: tuple[int, ...]
    works: tuple[Work, ...]
    dimension: float

    @classmethod
    def of(cls, X: Data, n_neighbors: int) -> Self:
        """Analyse the graph of data X (n, d), or those of subsamples; a function of the data."""
        n = len(X)
        least = max(DENSE_BELOW + 1, _LEAST_PER_NEIGHBOR * n_neighbors)
        most = min(n, MAX_ANALYSED, max(2 * least, min(MAX_EDGES // n_neighbors, MAX_VALUES // X.shape[1])))
        half = most // 2
        chosen = [sample(X, half), sample(X, half, half)] if half >= least else []
        halves = [_search(part, n_neighbors)[0] for part in chosen]
        whole, distances = _search(X if most == n else sample(X, most), n_neighbors)
        dimension = intrinsic_dimension(distances)
        if not halves:
            return cls((most,), (whole,), dimension)
        mean = Work(*(float(value) for value in np.mean(halves, axis=0)))
        return cls((half, most), (mean, whole), dimension)

    @property
    def exponents(self) -> Work:
        """Exponents of the growth with n, at most those of dense factors; the scratch's is the fill's."""
        entries, flops = _DENSE_ENTRIES, _DENSE_FLOPS
        if len(self.points) == 2:
            ratio = np.log(self.points[1] / self.points[0])
            less, more = self.works
            share = 1 - 1 / max(self.dimension, 1.0)
            expected = max(_DENSE_ENTRIES * share, _LEAST_ENTRIES), max(_DENSE_FLOPS * share, 1.0)
            counted = (np.log(more.entries / less.entries) / ratio, np.log(more.flops / less.flops) / ratio)
            entries = float(np.clip(counted[0], 1.0, entries) + expected[0]) / 2
            flops = float(np.clip(counted[1], 1.0, flops) + expected[1]) / 2
        return Work(entries, flops, entries)

    def at(self, n: int) -> Work:
        """Return the work for n points of the same distribution."""
        if n in self.points:
            return self.works[self.points.index(n)]
        ratio = n / self.points[-1]
        return Work(*(value * ratio**power for value, power in zip(self.works[-1], self.exponents, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return {"points": list(self.points), "works": [list(work) for work in self.works], "dimension": self.dimension}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        works = tuple(Work(*work) for work in value["works"])
        return cls(tuple(value["points"]), works, value["dimension"])


def sample(X: Data, size: int, first: int = 0) -> Data:
    """Return some rows of data X (n, d) in their order: see `sample_rows`."""
    rows = sample_rows(len(X), size, first)
    return X.at(rows) if isinstance(X, Distances) else X[rows]


def sample_rows(n: int, size: int, first: int = 0) -> NDArray[np.intp]:
    """Return some of n rows, ascending: those from `first` on of a permutation that depends on n only."""
    shuffled = np.random.Generator(np.random.Philox(key=n)).permutation(n)
    return np.asarray(np.sort(shuffled[first : first + size]), np.intp)


def _search(X: Data, n_neighbors: int) -> tuple[Work, NDArray[np.float64]]:
    """Return the work on the graph of some points, and the distances (m, k) to their neighbors."""
    nearest, distances = kneighbors(X, n_neighbors)
    return analyse(np.sort(nearest, axis=1)), distances


def analyse(neighbors: NDArray[np.int32]) -> Work:
    """Return the work of a factorization on a graph (n, k), in the elimination order of a fit."""
    pattern = Pattern.of(neighbors)
    return count_work(pattern if len(neighbors) <= DENSE_BELOW else pattern.order_for(DRAWS)[0])


def count_work(pattern: Pattern) -> Work:
    """Return the work of a factorization in the order of a pattern, in the time and memory of the pattern itself."""
    n = len(pattern.neighbors)
    if n <= DENSE_BELOW:
        return Work(float(n * n), 2 / 3 * n**3, 0.0)
    width, below, blocks = front_sizes(pattern.neighbors, pattern.order)
    entries = (width * (width + 2 * below)).sum()
    flops = 2 * width * (width**2 / 3 + width * below + below**2)
    return Work(float(entries), float(flops.sum()), float(blocks))
