r"""Estimate the seconds and bytes that draws from a fitted posterior take.

A draw costs mainly a sparse LU factorization, whose size is counted from the neighbor graph. The constants that turn
this size into seconds were measured on one core of an AMD EPYC processor with AVX-512. The constants are the same on
every machine, so that the cost depends on the posterior only. From these costs, the service decides how to split draws
among workers, and which requests for draws become jobs.

The solver computes `LANES` = 4 draws at once, one in each lane (entry) of its SIMD vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from glle_engine.eigen.batched.structure import front_sizes
from glle_engine.eigen.eigenpairs import MAX_LANCZOS_STEPS
from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.linalg import LANES

if TYPE_CHECKING:
    from glle_engine.base.spec import FitSpec
    from glle_engine.eigen.pattern import Pattern
    from glle_engine.posterior.posterior import Posterior

BASE_BYTES = 1.2e7  # memory for blocks of neighborhoods and buffers, which does not depend on the number of points
_DENSE_SECONDS = 6e-9  # measured: the dense solver takes this times n^3 seconds for n points
_CACHE_BYTES = 3.2e7  # size of the cache that all cores share; larger factors are read from memory


class Work(NamedTuple):
    """Size of one sparse LU factorization of the eigenproblem, which determines the seconds and the bytes of a draw.

    Attributes
    ----------
    entries : float
        Stored entries of the factors L and U.
    flops : float
        Floating-point operations.
    scratch : float
        Numbers in the scratch memory of the factorization.

    """

    entries: float
    flops: float
    scratch: float


class DrawCost(NamedTuple):
    """Expected seconds and bytes of draws on one core.

    Attributes
    ----------
    seconds : float
        Seconds of a single draw. One draw takes as long as four, because the solver always computes four at once.
    each_seconds : float
        Seconds per draw if at least four draws are computed together.
    bytes : float
        Peak memory of a process that draws, including the posterior itself.

    """

    seconds: float
    each_seconds: float
    bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary, whose numbers are rounded to three significant digits.

        Its keys are `seconds` of a single draw, `each_seconds` per draw among four or more that are computed together,
        and `bytes` of peak memory.
        """
        return {name: float(f"{value:.3g}") for name, value in self._asdict().items()}


def draw_cost(posterior: Posterior) -> DrawCost:
    """Return the expected cost of draws from a posterior, without a factorization.

    This takes time and memory only in proportion to the size of the neighbor graph, even if someone has forged a
    posterior whose LU factors would be dense.

    Examples
    --------
    >>> from glle_engine import fit, manifolds
    >>> cost = draw_cost(fit(manifolds.make("swiss_roll", 1000, seed=0).X))
    >>> cost.seconds < 0.1 and cost.bytes < 1e8
    True

    """
    pattern, spec = posterior.eigenproblem.pattern, posterior.spec
    n, work = len(pattern.neighbors), count_work(pattern)
    d = posterior.diagnostics.figures.get("n_features", 0)  # a forged file may lack it; 0 then gives the highest cost
    k, placed = spec.n_neighbors, posterior.n_points - n
    lane = draw_seconds(n, work, spec, d) + placed * (1e-8 * k + 2e-9 * k * k)
    fallback = fallback_seconds(n, work, spec, d)  # for draws that the batched solver rejects
    lanes = LANES if n > DENSE_BELOW else 1
    alone, each = lanes * lane + fallback, lane + fallback
    nbytes = draw_bytes(n, work, spec)
    if placed:  # the arrays of all points, beside the arrays of the landmarks
        nbytes += posterior_bytes(posterior.n_points, spec) + 40 * posterior.n_points
    if (classes := len(posterior.pins)) > 1:  # for several closed classes of the graph, draws are solved one by one
        alone += 2.5e-5 * n + 1e-9 * work.flops  # seconds of a factorization with pivoting
        alone += classes * 1e-9 * work.entries + 4e-9 * n * classes**2  # seconds for orthogonal null vectors
        each = alone
        nbytes += 24 * n * classes  # left and right null vectors, and one temporary copy of one of them
    return DrawCost(alone, each, nbytes)


def count_work(pattern: Pattern) -> Work:
    """Return the size of an LU factorization for a kNN graph and its elimination order (`pattern`), by counting."""
    n = len(pattern.neighbors)
    if n <= DENSE_BELOW:
        return Work(float(n * n), 2 / 3 * n**3, 0.0)
    width, below, blocks = front_sizes(pattern.neighbors, pattern.order)
    entries = (width * (width + 2 * below)).sum()
    flops = 2 * width * (width**2 / 3 + width * below + below**2)
    return Work(float(entries), float(flops.sum()), float(blocks))


def steps_of(spec: FitSpec) -> int:
    """Return the number of Lanczos steps that a draw is expected to take: 4 + 2 p for p components."""
    return 4 + 2 * spec.n_components


def draw_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the expected seconds per draw of n points with d features, if draws are solved four at a time.

    `work` is the size of one factorization. Up to `DENSE_BELOW` points, a dense solver computes one draw at a time.
    """
    k, steps = spec.n_neighbors, MAX_LANCZOS_STEPS if has_singular_draws(spec, d) else steps_of(spec)
    if n <= DENSE_BELOW:
        return _DENSE_SECONDS * n**3
    sampling = n * (4e-9 * k + 1e-10 * k * k)
    far = max(work.entries - _CACHE_BYTES / (8 * LANES), 0.0)  # entries of one draw that are not in the cache
    factors = 3.4e-11 * work.flops + 3e-10 * work.entries + 1.2e-9 * far
    krylov = steps * (5e-10 * work.entries + 3e-10 * far + 2.2e-9 * n * steps)
    return sampling + factors + krylov + 2.5e-8 * n * spec.n_components


def has_singular_draws(spec: FitSpec, d: int) -> bool:
    """Return whether I - W is singular for the weights W of every draw, so that draws need slower solvers.

    This happens with variant="published" and method="em" if there are fewer features d than neighbors. The weights then
    reconstruct the centered data exactly, and I - W maps linear functions of the data to 0
    (`docs/explanation/published.md`).
    """
    return spec.variant == "published" and spec.method == "em" and d < spec.n_neighbors


def fallback_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the expected extra seconds of a draw because its first solution is rejected as inaccurate.

    With variant="constrained" this seldom happens, so that the result is 0. With variant="published", the batched
    solver rejects 0 % of the draws of a Swiss roll at 1,000 points, 60 % at 5,000 and 100 % at 20,000, and more at a
    larger scale. The estimate assumes that all of these draws are solved again with iterative refinement, and that
    every solver is tried if I - W is singular. `d` is the number of features, and `work` the size of a factorization.
    """
    if spec.variant != "published" or n <= DENSE_BELOW:
        return 0.0
    if has_singular_draws(spec, d):
        return 2e-5 * n + 2.5e-9 * work.flops
    steps = steps_of(spec) + 3
    step = 3.2e-9 * work.entries + n * (1.2e-8 * spec.n_neighbors + 8e-9 * steps)
    return 1e-10 * work.flops + steps * step


def posterior_bytes(n: int, spec: FitSpec) -> float:
    """Return the bytes of the arrays of a posterior of n points: neighbors, weights, covariance factors, embedding."""
    k = spec.n_neighbors
    return n * (8.0 * k * k + 12 * k + 8 * spec.n_components + 8)


def draw_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the peak memory of draws from a posterior of n points, in bytes: the posterior and all work arrays."""
    structure = n * (20.0 * spec.n_neighbors + 50) + 0.5 * work.entries  # bytes of the symbolic factorization
    lanes = LANES if n > DENSE_BELOW else 1
    vectors = n * (spec.n_neighbors + 3 * steps_of(spec) + 3 * spec.n_components + 3.0)
    workspace = 8 * lanes * (work.entries + work.scratch + vectors)
    return BASE_BYTES + posterior_bytes(n, spec) + structure + workspace
