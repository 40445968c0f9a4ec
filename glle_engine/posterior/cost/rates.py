r"""Seconds and bytes of each stage of a fit and of a draw, with measured constants.

The seconds were measured on one core of an AMD EPYC processor with AVX-512, which factorizes four lanes at some
30 GFLOP/s. They are constants, so that an estimate is a function of data and parameters.
`python -m bench.engine.estimates` prints estimates beside measurements.

Fill and operations of the factors of B follow from a symbolic factorization. If there are few points, the graph of all
points is analysed. If there are many, a fixed subsample and its two halves are searched and analysed, and the work is
extrapolated. The work grows like a power of n. For data of intrinsic dimension D, a separator has some
:math:`n^{(D-1)/D}` points (Lipton, Rose and Tarjan 1979), so that the fill grows like :math:`n^{2(D-1)/D}`, or
:math:`n \log n` on sheets, and the operations like :math:`n^{3(D-1)/D}`. The exponent that is used is the mean of
this theoretical exponent and of the exponent measured between the two sizes, which is noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from glle_engine.eigen.batched.structure import front_sizes
from glle_engine.eigen.eigenpairs import MAX_STEPS
from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.eigen.pattern import Pattern, dissections
from glle_engine.graph.neighbors import FEW_FEATURES, PAIR, PAIR_FEATURE, intrinsic_dimension, kneighbors
from glle_engine.graph.relations import Distances
from glle_engine.linalg import LANES
from glle_engine.posterior.findings import DRAWS as COMPARED_DRAWS
from glle_engine.posterior.findings import NOISE_MODELS
from glle_engine.posterior.fit import DRAWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data

MAX_ANALYSED = 3000  # points; the largest graph that is analysed as a whole
MAX_EDGES = 150_000  # most edges of a graph that is analysed
MAX_VALUES = 1_500_000  # most values of data that are searched
_MIN_POINTS_PER_NEIGHBOR = 8  # the smaller subsample has at least this many points for each neighbor
_DENSE_ENTRIES, _DENSE_FLOPS = 2.0, 3.0  # exponents of dense factors
_MIN_ENTRIES_POWER = 1.1  # n log n as a power, between a thousand and a million points
BASE_BYTES = 1.2e7  # blocks of neighborhoods and buffers, independent of the number of points
_DENSE_SECONDS = 6e-9  # seconds of the dense solver, times n^3
_CACHE_BYTES = 3.2e7  # shared cache; what does not fit is read from memory
_MAX_FURTHER = 0.75  # most extra time for large separators, as a share of the time of a dissection


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


@dataclass(frozen=True)
class Factorization:
    """Work of the factorization by number of points, and the intrinsic dimension of the data.

    Attributes
    ----------
    points : tuple of int
        One or two numbers of analysed points, ascending.
    works : tuple of Work
        The work for each number of points.
    dimension : float
        Intrinsic dimension, estimated from the largest analysed number of points
        (`glle_engine.graph.neighbors.intrinsic_dimension`).

    """

    points: tuple[int, ...]
    works: tuple[Work, ...]
    dimension: float

    @classmethod
    def from_data(cls, X: Data, n_neighbors: int) -> Self:
        """Analyse the graph of data X (n, d), or graphs of subsamples; a function of the data."""
        n = len(X)
        least = max(DENSE_BELOW + 1, _MIN_POINTS_PER_NEIGHBOR * n_neighbors)
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
        """Exponents of the growth with n, at most those of dense factors; the scratch area grows like the fill."""
        entries, flops = _DENSE_ENTRIES, _DENSE_FLOPS
        if len(self.points) == 2:
            ratio = np.log(self.points[1] / self.points[0])
            less, more = self.works
            share = 1 - 1 / max(self.dimension, 1.0)
            expected = max(_DENSE_ENTRIES * share, _MIN_ENTRIES_POWER), max(_DENSE_FLOPS * share, 1.0)
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
    """Return `size` of n rows, ascending: those from `first` on in a permutation that depends only on n."""
    shuffled = np.random.Generator(np.random.Philox(key=n)).permutation(n)
    return np.asarray(np.sort(shuffled[first : first + size]), np.intp)


def _search(X: Data, n_neighbors: int) -> tuple[Work, NDArray[np.float64]]:
    """Return the work on the graph of some points, and the distances (m, k) to their neighbors."""
    nearest, distances = kneighbors(X, n_neighbors)
    return analyse(np.sort(nearest, axis=1)), distances


def analyse(neighbors: NDArray[np.int32]) -> Work:
    """Return the work of a factorization on a graph (n, k), in the elimination order of a fit."""
    pattern = Pattern.from_neighbors(neighbors)
    return count_work(pattern if len(neighbors) <= DENSE_BELOW else pattern.order_for(DRAWS)[0])


def count_work(pattern: Pattern) -> Work:
    """Count the work of a factorization in the order of a pattern; takes no more time or memory than the pattern."""
    n = len(pattern.neighbors)
    if n <= DENSE_BELOW:
        return Work(float(n * n), 2 / 3 * n**3, 0.0)
    width, below, blocks = front_sizes(pattern.neighbors, pattern.order)
    entries = (width * (width + 2 * below)).sum()
    flops = 2 * width * (width**2 / 3 + width * below + below**2)
    return Work(float(entries), float(flops.sum()), float(blocks))


def search_bytes(n: int, d: int, spec: FitSpec) -> float:
    """Return the peak memory of the search: copies of the data, neighbors with their distances, and tiles."""
    return n * (16.0 * d + 24 * spec.n_neighbors)


def weights_seconds(n: int, d: int, spec: FitSpec) -> float:
    """Return the seconds of weights, posterior and diagnostics, for both noise models if the fit has to choose."""
    k = spec.n_neighbors
    each = 2.2e-6 + 1e-9 * k * k * (d + k)
    if spec.noise == "auto":
        each *= 2
    if spec.noise != "isotropic" or spec.neighborhoods == "adaptive":
        each += 9e-6
    if spec.variant == "published" and spec.covariance != "spherical":
        each += spec.max_iter * (1.2e-8 if spec.covariance == "full" else 6e-8) * k**3
    return n * each


def trust_seconds(n: int, d: int) -> float:
    """Return the seconds to compute the trustworthiness of one draw (`glle_engine.posterior.findings`)."""
    return 5e-3 + 1.4e-6 * n + (1e-7 * n * d if d > FEW_FEATURES else 0.0)


def compared_draws(spec: FitSpec) -> int:
    """Return the number of draws whose trustworthiness a fit compares."""
    return len(NOISE_MODELS) * COMPARED_DRAWS if spec.noise == "auto" else 0


def order_seconds(n: int, work: Work, dimension: float, spec: FitSpec) -> float:
    """Return the seconds of the elimination order, with dissections if they are tried, and of the structure.

    Data of higher intrinsic dimension have larger separators, and more of the separators are computed several times.
    """
    seconds = 4e-6 * n + 1.2e-8 * work.entries
    # The operations of minimum degree, often a quarter more than `work.flops`, decide how many dissections are tried.
    count = dissections(int(1.25 * work.flops), n, DRAWS)
    each = 2e-6 * n * spec.n_neighbors * (1 + min(max(dimension - 2, 0.0) / 4, _MAX_FURTHER))
    return seconds + count * each


def steps_of(spec: FitSpec) -> int:
    """Return the expected steps of Lanczos: 8 for two components, 24 for ten, 43 for twenty."""
    return 4 + 2 * spec.n_components


def mean_seconds(n: int, work: Work, spec: FitSpec) -> float:
    """Return the seconds of the reference embedding: factors of one lane, and two sequences of Lanczos."""
    if n <= DENSE_BELOW:
        return _DENSE_SECONDS * n**3
    steps = 2 * (steps_of(spec) + 3)
    return 1e-10 * work.flops + steps * (1.6e-9 * work.entries + 8e-9 * n * steps)


def draw_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the seconds of one of many draws of data with d features, as one lane unless the solver is dense."""
    k, steps = spec.n_neighbors, MAX_STEPS if has_singular_draws(spec, d) else steps_of(spec)
    if n <= DENSE_BELOW:
        return _DENSE_SECONDS * n**3
    sampling = n * (4e-9 * k + 1e-10 * k * k)
    far = max(work.entries - _CACHE_BYTES / (8 * LANES), 0.0)  # entries of a lane that are not in the cache
    factors = 3.4e-11 * work.flops + 3e-10 * work.entries + 1.2e-9 * far
    krylov = steps * (5e-10 * work.entries + 3e-10 * far + 2.2e-9 * n * steps)
    return sampling + factors + krylov + 2.5e-8 * n * spec.n_components


def has_singular_draws(spec: FitSpec, d: int) -> bool:
    """Whether B is singular in all draws from the posterior, so that only the shifted M is left to solve.

    With fewer features than neighbors, published draws by em rebuild the centred data exactly. B then annihilates
    linear functions of the data (`docs/explanation/published.md`).
    """
    return spec.variant == "published" and spec.method == "em" and d < spec.n_neighbors


def fallback_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the seconds that one draw takes beyond the lanes, because they may reject it; 0 for constrained draws.

    The share of published draws that the lanes reject grows with the number of points and the scale. On a Swiss roll it
    is 0 at 1,000 points, 60 % at 5,000 and 100 % at 20,000. The estimate assumes that every published draw is refined,
    and that every solver is tried on a singular draw. The lanes seldom reject constrained draws.
    """
    if spec.variant != "published" or n <= DENSE_BELOW:
        return 0.0
    if has_singular_draws(spec, d):
        return 2e-5 * n + 2.5e-9 * work.flops
    steps = steps_of(spec) + 3
    step = 3.2e-9 * work.entries + n * (1.2e-8 * spec.n_neighbors + 8e-9 * steps)
    return 1e-10 * work.flops + steps * step


def pivoting_seconds(n: int, work: Work) -> float:
    """Return the seconds of a solution with pivoting."""
    return 2.5e-5 * n + 1e-9 * work.flops


def null_seconds(n: int, work: Work, classes: int) -> float:
    """Return the seconds of the null vectors of closed classes: one solution for each, and orthogonalization."""
    return classes * 1e-9 * work.entries + 4e-9 * n * classes**2


def null_bytes(n: int, classes: int) -> float:
    """Return the bytes of the left and right null vectors of closed classes, and of a copy."""
    return 24.0 * n * classes


def lanes(n: int) -> int:
    """Return the number of draws that the lanes solve in the time of a single draw."""
    return LANES if n > DENSE_BELOW else 1


def posterior_bytes(n: int, spec: FitSpec) -> float:
    """Return the bytes of a posterior's arrays: mean, factor, neighbors and embedding."""
    k = spec.n_neighbors
    return n * (8.0 * k * k + 12 * k + 8 * spec.n_components + 8)


def landmarks_seconds(n: int, m: int, d: int) -> float:
    """Return the seconds of the choice of m landmarks; 27 s for 10,000 of 1,000,000 x 50."""
    return n * log(max(m, 2), 4) * (1e-6 + 3e-8 * d) + n * m * (PAIR + PAIR_FEATURE * d)


def placing_seconds(n: int, spec: FitSpec) -> float:
    """Return the seconds to place n points in one of many draws."""
    k = spec.n_neighbors
    return n * (1e-8 * k + 2e-9 * k * k)


def placed_bytes(n: int, m: int, d: int, spec: FitSpec) -> float:
    """Return the bytes that n points need beside m landmarks: their posterior, and copies of the data in the fit."""
    return 0.0 if m >= n else posterior_bytes(n, spec) + n * (16.0 * d + 40)


def structure_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the bytes of the symbolic factorisation."""
    return n * (20.0 * spec.n_neighbors + 50) + 0.5 * work.entries


def fit_bytes(n: int, d: int, work: Work, spec: FitSpec) -> float:
    """Return the peak memory of a fit: of its search, or of the factors and the posterior."""
    factors = 8 * (work.entries + work.scratch)
    held = n * 12.0 * spec.n_neighbors + 8.0 * n * d
    posteriors = 2 if spec.noise == "auto" else 1
    later = posteriors * posterior_bytes(n, spec) + structure_bytes(n, work, spec) + factors
    return BASE_BYTES + held + max(search_bytes(n, d, spec), later)


def draw_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the peak memory of draws: the posterior, its structure, and the workspace of the lanes."""
    base = posterior_bytes(n, spec) + structure_bytes(n, work, spec)
    lanes = LANES if n > DENSE_BELOW else 1
    vectors = n * (spec.n_neighbors + 3 * steps_of(spec) + 3 * spec.n_components + 3.0)
    return BASE_BYTES + base + 8 * lanes * (work.entries + work.scratch + vectors)
