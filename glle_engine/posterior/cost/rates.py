"""Seconds and bytes of each stage of a fit and of a draw, with measured constants.

The seconds were measured on one core of an AMD EPYC processor with AVX-512 at some 30 GFLOP/s in the factors of four
lanes. They are constants, so that an estimate is a function of data and parameters. `python -m bench.engine.estimates`
prints estimates beside measurements.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.eigen.ordering.choice import dissections
from glle_engine.graph.neighbors import FEW_FEATURES
from glle_engine.linalg import LANES
from glle_engine.posterior.findings.trust import DRAWS as COMPARED_DRAWS
from glle_engine.posterior.findings.trust import LAWS
from glle_engine.posterior.fit import DRAWS

if TYPE_CHECKING:
    from glle_engine.base.spec import FitSpec
    from glle_engine.posterior.cost.factorization import Work


BASE_BYTES = 1.2e7  # blocks of neighborhoods and buffers, whatever the size
_DENSE_SECONDS = 6e-9  # of the dense solver, for each entry of a cube of n
_CACHE_BYTES = 3.2e7  # of the shared cache; the factors of the lanes beyond it are read from memory
_MAX_FURTHER = 0.75  # time of further runs for large separators, as a share of that of a dissection


def search_bytes(n: int, d: int, spec: FitSpec) -> float:
    """Return the peak memory of the search: copies of the data, neighbors with their distances, and tiles."""
    return n * (16.0 * d + 24 * spec.n_neighbors)


def weights_seconds(n: int, d: int, spec: FitSpec) -> float:
    """Return the seconds of weights, posterior and diagnostics, of both laws of the noise if one is to be chosen."""
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
    """Return the seconds of the trust in one draw (`glle_engine.posterior.findings.trust`)."""
    return 5e-3 + 1.4e-6 * n + (1e-7 * n * d if d > FEW_FEATURES else 0.0)


def compared_draws(spec: FitSpec) -> int:
    """Return the number of draws whose trust a fit compares."""
    return len(LAWS) * COMPARED_DRAWS if spec.noise == "auto" else 0


def order_seconds(n: int, work: Work, dimension: float, spec: FitSpec) -> float:
    """Return the seconds of the elimination order, with dissections if they are tried, and of the structure.

    Separators of data of more intrinsic dimensions are larger, and more of them are computed several times.
    """
    seconds = 4e-6 * n + 1.2e-8 * work.entries
    # Minimum degree, whose operations decide, often has a quarter more.
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


def draw_seconds(n: int, work: Work, spec: FitSpec) -> float:
    """Return the seconds of one of many draws: of one lane, beyond few points."""
    k, steps = spec.n_neighbors, steps_of(spec)
    if n <= DENSE_BELOW:
        return _DENSE_SECONDS * n**3
    sampling = n * (4e-9 * k + 1e-10 * k * k)
    far = max(work.entries - _CACHE_BYTES / (8 * LANES), 0.0)  # entries of a lane that are not in the cache
    factors = 3.4e-11 * work.flops + 3e-10 * work.entries + 1.2e-9 * far
    krylov = steps * (5e-10 * work.entries + 3e-10 * far + 2.2e-9 * n * steps)
    seconds = sampling + factors + krylov + 2.5e-8 * n * spec.n_components
    # Half of the published draws and more are solved again with pivoting.
    return seconds if spec.variant == "constrained" else seconds + pivoting_seconds(n, work)


def pivoting_seconds(n: int, work: Work) -> float:
    """Return the seconds of a solution with pivoting."""
    return 2.5e-5 * n + 1e-9 * work.flops


def null_seconds(n: int, work: Work, classes: int) -> float:
    """Return the seconds of the null vectors of closed classes: a solution each, and their orthogonalisation."""
    return classes * 1e-9 * work.entries + 4e-9 * n * classes**2


def null_bytes(n: int, classes: int) -> float:
    """Return the bytes of the left and right null vectors of closed classes, and of a copy."""
    return 24.0 * n * classes


def lanes(n: int, spec: FitSpec) -> int:
    """Return the number of draws that take as long as one alone."""
    return LANES if n > DENSE_BELOW and spec.variant == "constrained" else 1


def posterior_bytes(n: int, spec: FitSpec) -> float:
    """Return the bytes of a posterior's arrays: mean, factor, neighbors and embedding."""
    k = spec.n_neighbors
    return n * (8.0 * k * k + 12 * k + 8 * spec.n_components + 8)


def landmarks_seconds(n: int, m: int, d: int) -> float:
    """Return the seconds of the choice of m landmarks; 72 s for 10,000 of 1,000,000 x 50."""
    return 1.5e-7 * n * d + 7e-7 * n * (4 + d) * log(max(m, 2)) / 9 + 1e-9 * m * m * d / 2


def placing_seconds(n: int, spec: FitSpec) -> float:
    """Return the seconds of n placed points in one of many draws."""
    k = spec.n_neighbors
    return n * (1e-8 * k + 2e-9 * k * k)


def placed_bytes(n: int, m: int, d: int, spec: FitSpec) -> float:
    """Return the bytes that n points need beside m landmarks: their posterior, and copies of the data in the fit."""
    return 0.0 if m >= n else posterior_bytes(n, spec) + n * (16.0 * d + 40)


def structure_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the bytes of the symbolic factorisation."""
    return n * (20.0 * spec.n_neighbors + 50) + 0.5 * work.entries


def fit_bytes(n: int, d: int, work: Work, spec: FitSpec) -> float:
    """Return the peak memory of a fit: that of its search, or of the factors and the posterior."""
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
