r"""Gaussian affinities between points, with widths that give each point the same effective number of neighbors.

.. math:: p_{j|i} = \exp(-\beta_i |x_i - x_j|^2) / \sum_{l \ne i} \exp(-\beta_i |x_i - x_l|^2), \quad p_{i|i} = 0

with :math:`\beta_i` such that the entropy :math:`H_i = -\sum_j p_{j|i} \log p_{j|i}` is the logarithm of the perplexity
(Hinton and Roweis 2002, section 2). The joint affinities are :math:`p_{ij} = (p_{j|i} + p_{i|j}) / 2n` (van der Maaten
and Hinton 2008, section 3.1). Neither the conditional nor the joint affinities depend on the unit of the data.

This file also has the parameters, the initial coordinates, the checks and the results that methods on affinities share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from glle_engine.base.errors import InvalidParameterError, TooFewPointsError
from glle_engine.base.progress import blocks, silent
from glle_engine.base.texts import Note, Text, Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.methods.base import Embedding
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.methods.linear.scaling import scaling_of
from glle_engine.methods.parameters import DistanceSpec, choice, integer, number, require_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.descent import Descent

_BLOCK_ENTRIES = 1 << 18  # a block and its temporaries fit in the cache
_ENTROPY_TOLERANCE = 1e-10
# Bounds of the search for log beta, where the mean squared distance is 1. At beta = e^-50 all affinities of a point are
# equal up to rounding, and at e^100 only points that tie as the nearest have any: wider bounds would change nothing.
_MIN_LOG_PRECISION, _MAX_LOG_PRECISION = -50.0, 100.0
_MAX_STEPS = 300
# Standard deviation of the coordinates from which the descent starts. The affinity of two points of the embedding
# falls as exp(-|y_i - y_j|^2), so that at the start all points are near each other.
_START_DEVIATION = 1e-2
MAX_DESCENT_POINTS = 5000  # more points are refused: the matrices of all pairs take 1 GB, and a descent takes minutes
START_NOISE = 1e-2  # standard deviation of the noise added to initial coordinates, whose own is about 1
Start: TypeAlias = "NDArray[np.float64] | None"
"""Initial coordinates (n, p) that the user gave, or None.

They are centered, and scaled so that the widest column has standard deviation one.
"""


def require_perplexity(n: int, perplexity: float) -> None:
    """Raise `InvalidParameterError` if 3 * perplexity exceeds n - 1, the number of other points that each point has.

    Raises `TooFewPointsError` instead if n points allow no perplexity above 1.
    """
    max_perplexity = (n - 1) / 3
    if perplexity <= max_perplexity:
        return
    if max_perplexity <= 1:
        raise TooFewPointsError(
            f"A perplexity above 1 needs at least 5 points, not {n}.",
            remedy="Give at least 5 points.",
            details={"n_points": n, "least": 5},
        )
    shown = math.floor(max_perplexity * 100) / 100
    raise InvalidParameterError(
        Text(Way("perplexity", perplexity), f" is more than a third of the other {n - 1} points."),
        remedy=f"Give perplexity of at most {shown:g}, or more points.",
        details={"perplexity": perplexity, "most": shown, "n_points": n},
    )


def conditional_affinities(
    X: Data, perplexity: float, on_progress: OnProgress = silent
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    r"""Return the affinities :math:`p_{j|i}` of all pairs, and a mask of the points that reach the perplexity.

    Parameters
    ----------
    X : (n, d) float64, or Distances
    perplexity : float
        The effective number of neighbors, above 1 and below n - 1.
    on_progress
        Called between blocks of points, stage "affinities".

    Returns
    -------
    P : (n, n) float64
        Row i is :math:`p_{\cdot|i}`, of sum one and with zero on the diagonal.
    is_met : (n,) bool
        False if no width of the Gaussian gives a point the perplexity, because too many points tie as the nearest; the
        row of P is then uniform over these points.

    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 -- slow to import; the API does not need it

    n = len(X)
    P = np.empty((n, n))
    is_met = np.empty(n, dtype=bool)
    on_progress(0, n, "affinities")
    for rows in blocks(n, max(1, _BLOCK_ENTRIES // n), "affinities", on_progress):
        others = np.ones((rows.stop - rows.start, n), dtype=bool)
        others[np.arange(len(others)), np.arange(rows.start, rows.stop)] = False
        squares = X.known[rows] ** 2 if isinstance(X, Distances) else cdist(X[rows], X, "sqeuclidean")
        distances = squares[others].reshape(len(others), n - 1)
        shares, is_met[rows] = _calibrate(distances, math.log(perplexity))
        P[rows] = 0.0
        P[rows][others] = shares.ravel()
    return P, is_met


def joint_affinities(P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the joint affinities (P + P^T) / 2n, symmetric and with sum one, of conditional affinities P (n, n)."""
    joint = P + P.T
    joint /= 2 * len(P)
    return joint


def perplexity_notes(is_met: NDArray[np.bool_], perplexity: float) -> Iterator[Note]:
    """Yield a note if some points cannot reach the perplexity; `is_met` (n,) is False for these points."""
    if count := int(np.count_nonzero(~is_met)):
        yield Note(
            "perplexity-not-met",
            f"For {count} of {len(is_met)} points more than {perplexity:g} others tie as the nearest: "
            "their affinities are equal over these. Remove duplicated points, or give a larger perplexity.",
        )


def _calibrate(distances: NDArray[np.float64], target: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the affinities (b, n - 1) whose rows have the entropy `target`, and a mask (b,) of the rows that reach it.

    Row i of `distances` (b, n - 1) has the squared distances of a point to all others. The search for log beta, where
    beta is the precision of the row's Gaussian, takes a Newton step if this stays inside the bracket and the last step
    at least halved the distance of the entropy from `target`. Otherwise it bisects, because Newton's method alone can
    oscillate.
    """
    distances = distances - distances.min(axis=1, keepdims=True)  # this avoids underflow and changes no affinity
    unit = distances.mean(axis=1, keepdims=True)
    distances /= np.where(unit > 0, unit, 1.0)
    low, high = np.full(len(distances), _MIN_LOG_PRECISION), np.full(len(distances), _MAX_LOG_PRECISION)
    log_beta = np.zeros(len(distances))
    shares = np.empty_like(distances)
    is_met = np.zeros(len(distances), dtype=bool)
    last = np.full(len(distances), np.inf)
    open_rows = np.arange(len(distances))
    for _ in range(_MAX_STEPS):
        shares[open_rows], entropy, slope = _entropies(distances[open_rows], np.exp(log_beta[open_rows]))
        excess = entropy - target
        is_met[open_rows] = np.abs(excess) < _ENTROPY_TOLERANCE
        current = log_beta[open_rows]
        low[open_rows] = np.where(excess > 0, current, low[open_rows])
        high[open_rows] = np.where(excess > 0, high[open_rows], current)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = current - excess / slope
        is_inside = (step > low[open_rows]) & (step < high[open_rows])  # false for NaN
        is_good = is_inside & (np.abs(excess) <= last[open_rows] / 2)
        last[open_rows] = np.abs(excess)
        log_beta[open_rows] = np.where(is_good, step, (low[open_rows] + high[open_rows]) / 2)
        open_rows = open_rows[~is_met[open_rows] & (high[open_rows] - low[open_rows] > _ENTROPY_TOLERANCE)]
        if not len(open_rows):
            break
    return shares, is_met


def _entropies(
    distances: NDArray[np.float64], beta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the Gaussian affinities (b, m), the entropy (b,) of each row, and its derivative (b,) by log beta.

    `distances` (b, m) are squared, and `beta` (b,) has the precision of each row's Gaussian.
    """
    scaled = beta[:, None] * distances
    shares = np.exp(-scaled)
    total = shares.sum(axis=1)
    shares /= total[:, None]
    mean = np.einsum("ij,ij->i", shares, scaled)
    np.square(scaled, out=scaled)
    square = np.einsum("ij,ij->i", shares, scaled)
    return shares, np.log(total) + mean, mean**2 - square


def noisy(start: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Add a little noise to initial coordinates: equal points are separated, and points on a line can leave it."""
    return start + START_NOISE * np.random.default_rng(seed).standard_normal(start.shape)


@dataclass(frozen=True, kw_only=True)
class PerplexitySpec(DistanceSpec):
    """Parameters of a method that uses Gaussian affinities between points, with widths chosen by a perplexity."""

    perplexity: float = number(
        30.0,
        "Effective number of neighbors of a point; at most a third of the other points.",
        above=1,
        counts=True,
    )
    seed: int = integer(
        0,
        "Seed of the random start, and of the little noise that is added to other starts.",
        minimum=0,
        maximum=2**63 - 1,
    )
    init: str = choice(
        "pca",
        "Where the descent starts: principal components, eigenvectors of the affinities, or noise; scaled small.",
        "pca",
        "spectral",
        "random",
    )

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if the perplexity or the number of components is too large for n points."""
        self.require_rank(n, d if self.init == "pca" else n - 1)
        require_perplexity(n, self.perplexity)


@dataclass(frozen=True, kw_only=True)
class DescentSpec(PerplexitySpec):
    """Parameters of a method that minimizes an objective over all pairs of points (`descent.descend`)."""

    max_iter: int = integer(1000, "Largest number of iterations of the descent.", minimum=1)
    tol: float = number(1e-7, "Relative decrease of the objective at which the descent has converged.", above=0)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if the perplexity or the number of components is too large, or if n is too large.

        The first two are limited by the n points of d features, and n by `MAX_DESCENT_POINTS`, because the descent
        computes with n x n matrices.
        """
        super().require_possible(n, d)
        require_size(n, MAX_DESCENT_POINTS, "A descent over all pairs", "t-sne, which approximates")


def initial(
    X: Data, n_components: int, init: str, seed: int, joint: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return initial coordinates (n, p): principal components (init="pca"), eigenvectors ("spectral"), or noise.

    The eigenvectors are those of the affinities `joint` (n, n); without `joint`, "spectral" gives principal components.
    The first principal component or eigenvector has standard deviation one, and so has every column of noise. A little
    noise is added to principal components and eigenvectors, which separates equal points and lets the descent of data
    on a line leave this line.
    """
    noise = np.random.default_rng(seed).standard_normal((len(X), n_components))
    if init == "random":
        return noise
    if joint is not None and init == "spectral":
        Y = spectral(joint, n_components)
    elif isinstance(X, Distances):  # classical scaling gives the principal components of points with these distances
        Y = scaling_of(X.known, n_components, silent).Y
    elif isinstance(X, SparsePoints):
        Y = sign_convention(X.principal_scores(n_components))
    else:
        Y = principal_axes(X, n_components, silent).scores
    return np.asarray(Y / Y[:, 0].std() + START_NOISE * noise)


def older_seed(seed: int) -> int:
    """Derive a seed of 32 bits from a seed of 64 bits, for libraries that use numpy's legacy random generator."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def spectral(joint: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    r"""Return the p bottom eigenvectors (n, p) of :math:`L y = \lambda D y` other than the constant.

    L = D - P for the joint affinities P (n, n), and D is diagonal, with the row sums of P (Belkin and Niyogi 2003).
    """
    half = np.sqrt(joint.sum(axis=1))
    _, vectors = leading_eigenpairs(joint / (half[:, None] * half), n_components + 1, silent)
    return sign_convention(vectors[:, 1:] / half[:, None])


def begin(X: Data, spec: DescentSpec, joint: NDArray[np.float64], start: Start) -> NDArray[np.float64]:
    """Return the coordinates (n, p) from which the descent starts, small relative to the width of the Gaussians.

    These are the user's initial coordinates `start` (n, p), or, if `start` is None, the start that `spec.init` names.
    `joint` (n, n) are the affinities, whose eigenvectors are used if `spec.init` is "spectral".
    """
    if start is not None:
        return _START_DEVIATION * noisy(start, spec.seed)
    return _START_DEVIATION * initial(X, spec.n_components, spec.init, spec.seed, joint)


def embedding_of(descent: Descent, figures: dict[str, Any], is_met: NDArray[np.bool_], spec: DescentSpec) -> Embedding:
    """Return the result of a gradient descent as an `Embedding`, with the number of iterations among its figures.

    Notes say if the descent did not converge, and if some points did not reach the perplexity: `is_met` (n,) is False
    for these points.
    """
    notes = list(perplexity_notes(is_met, spec.perplexity))
    if not descent.converged:
        notes.append(
            Note(
                "not-converged",
                Text(
                    f"The descent did not converge in {descent.iterations} iterations (",
                    Way("max_iter", spec.max_iter),
                    "): the coordinates are not final. Give a larger ",
                    Way("max_iter"),
                    ", or a larger tol.",
                ),
            )
        )
    counts = {"iterations": descent.iterations, "evaluations": descent.evaluations, "converged": descent.converged}
    return Embedding(descent.Y, None, {**figures, **counts}, tuple(notes))
