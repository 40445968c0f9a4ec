r"""Expected seconds and bytes of draws of a fitted posterior, from the fill of its factors and measured constants.

The constants were measured on one core of an AMD EPYC processor with AVX-512, which factorizes four lanes at some
30 GFLOP/s. They are the same on every machine, so that a cost is a function of the posterior. By these costs, the
service splits draws into shards and decides which requests for draws become jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from glle_engine.eigen.batched.structure import front_sizes
from glle_engine.eigen.eigenpairs import MAX_STEPS
from glle_engine.eigen.eigenproblem import DENSE_BELOW
from glle_engine.linalg import LANES

if TYPE_CHECKING:
    from glle_engine.base.spec import FitSpec
    from glle_engine.eigen.pattern import Pattern
    from glle_engine.posterior.posterior import Posterior

BASE_BYTES = 1.2e7  # blocks of neighborhoods and buffers, independent of the number of points
_DENSE_SECONDS = 6e-9  # seconds of the dense solver for n points, divided by n^3
_CACHE_BYTES = 3.2e7  # size of the shared cache; factors that do not fit are read from memory


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


class DrawCost(NamedTuple):
    """Expected cost of draws on one core.

    Attributes
    ----------
    seconds : float
        Seconds of a single draw; the unused lanes compute the same draw again.
    each_seconds : float
        Seconds per draw, if there are enough draws for all lanes.
    bytes : float
        Peak memory of a process that draws, with the posterior.

    """

    seconds: float
    each_seconds: float
    bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as a JSON-able dictionary, rounded to three digits."""
        return {name: float(f"{value:.3g}") for name, value in self._asdict().items()}


def draw_cost(posterior: Posterior) -> DrawCost:
    """Return the expected cost of draws of a posterior, without computing factors or their structure.

    Counting the fill takes no more time and memory than reading the graph, even if a posterior was forged to have much
    fill.

    Examples
    --------
    >>> from glle_engine import fit, manifolds
    >>> cost = draw_cost(fit(manifolds.make("swiss_roll", 1000, seed=0).X))
    >>> cost.seconds < 0.1 and cost.bytes < 1e8
    True

    """
    pattern, spec = posterior.eigenproblem.pattern, posterior.spec
    n, work = len(pattern.neighbors), count_work(pattern)
    d = posterior.diagnostics.figures.get("n_features", 0)  # a forged file may lack it, and 0 gives the highest cost
    alone, each = _draw_seconds(posterior.n_points, n, work, spec, d)
    nbytes = draw_bytes(n, work, spec) + placed_bytes(posterior.n_points, n, 0, spec)
    if (classes := len(posterior.pins)) > 1:  # the batched solver cannot draw for several closed classes
        alone += pivoting_seconds(n, work) + null_seconds(n, work, classes)
        each = alone
        nbytes += null_bytes(n, classes)
    return DrawCost(alone, each, nbytes)


def _draw_seconds(n: int, solved: int, work: Work, spec: FitSpec, d: int) -> tuple[float, float]:
    """Return the seconds of a single draw of n points, and of each of many draws.

    The eigenproblem has `solved` points; the other points are placed.
    """
    lane = draw_seconds(solved, work, spec, d) + placing_seconds(n - solved, spec)
    fallback = fallback_seconds(solved, work, spec, d)  # draws that the batched solver rejects
    return lanes(solved) * lane + fallback, lane + fallback


def count_work(pattern: Pattern) -> Work:
    """Return the work of a factorization in a pattern's elimination order.

    Counting takes no more time or memory than the pattern itself.
    """
    n = len(pattern.neighbors)
    if n <= DENSE_BELOW:
        return Work(float(n * n), 2 / 3 * n**3, 0.0)
    width, below, blocks = front_sizes(pattern.neighbors, pattern.order)
    entries = (width * (width + 2 * below)).sum()
    flops = 2 * width * (width**2 / 3 + width * below + below**2)
    return Work(float(entries), float(flops.sum()), float(blocks))


def steps_of(spec: FitSpec) -> int:
    """Return the expected number of Lanczos steps: 8 for two components, 24 for ten, 44 for twenty."""
    return 4 + 2 * spec.n_components


def draw_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the expected seconds per draw of n points with d features, if many draws are solved, one in each lane.

    Up to `DENSE_BELOW` points, the solver is dense and has no lanes.
    """
    k, steps = spec.n_neighbors, MAX_STEPS if has_singular_draws(spec, d) else steps_of(spec)
    if n <= DENSE_BELOW:
        return _DENSE_SECONDS * n**3
    sampling = n * (4e-9 * k + 1e-10 * k * k)
    far = max(work.entries - _CACHE_BYTES / (8 * LANES), 0.0)  # entries of a lane that are not in the cache
    factors = 3.4e-11 * work.flops + 3e-10 * work.entries + 1.2e-9 * far
    krylov = steps * (5e-10 * work.entries + 3e-10 * far + 2.2e-9 * n * steps)
    return sampling + factors + krylov + 2.5e-8 * n * spec.n_components


def has_singular_draws(spec: FitSpec, d: int) -> bool:
    """Return whether B = I - W is singular in all draws from the posterior, which then need solvers for M = B^T B.

    With fewer features than neighbors, published draws by em reconstruct the centered data exactly. B then maps linear
    functions of the data to 0 (`docs/explanation/published.md`).
    """
    return spec.variant == "published" and spec.method == "em" and d < spec.n_neighbors


def fallback_seconds(n: int, work: Work, spec: FitSpec, d: int) -> float:
    """Return the expected extra seconds of a draw that the batched solver rejects; 0 for constrained draws.

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
    """Return the expected seconds of one factorization and solution by the LU decomposition with pivoting."""
    return 2.5e-5 * n + 1e-9 * work.flops


def null_seconds(n: int, work: Work, classes: int) -> float:
    """Return the expected seconds of the null vectors of closed classes: a solution for each, and orthogonalization."""
    return classes * 1e-9 * work.entries + 4e-9 * n * classes**2


def null_bytes(n: int, classes: int) -> float:
    """Return the bytes of the left and right null vectors of all closed classes, and of one copy of such vectors."""
    return 24.0 * n * classes


def lanes(n: int) -> int:
    """Return the number of draws of n points that are solved in the time of a single draw: the lanes of the solver."""
    return LANES if n > DENSE_BELOW else 1


def posterior_bytes(n: int, spec: FitSpec) -> float:
    """Return the bytes of a posterior's arrays: mean, factor, neighbors and embedding."""
    k = spec.n_neighbors
    return n * (8.0 * k * k + 12 * k + 8 * spec.n_components + 8)


def placing_seconds(n: int, spec: FitSpec) -> float:
    """Return the expected seconds per draw to place n points that are not landmarks, if there are many draws."""
    k = spec.n_neighbors
    return n * (1e-8 * k + 2e-9 * k * k)


def placed_bytes(n: int, m: int, d: int, spec: FitSpec) -> float:
    """Return the bytes that a posterior of n points on m landmarks needs beyond the landmarks; 0 without landmarks.

    These are the arrays of all points, and copies of the data (n, d) in the fit.
    """
    return 0.0 if m >= n else posterior_bytes(n, spec) + n * (16.0 * d + 40)


def structure_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the bytes of the symbolic factorization."""
    return n * (20.0 * spec.n_neighbors + 50) + 0.5 * work.entries


def draw_bytes(n: int, work: Work, spec: FitSpec) -> float:
    """Return the peak memory of draws: the posterior, its structure, and the workspace of the lanes."""
    base = posterior_bytes(n, spec) + structure_bytes(n, work, spec)
    lanes = LANES if n > DENSE_BELOW else 1
    vectors = n * (spec.n_neighbors + 3 * steps_of(spec) + 3 * spec.n_components + 3.0)
    return BASE_BYTES + base + 8 * lanes * (work.entries + work.scratch + vectors)
