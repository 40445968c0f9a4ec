r"""Acyclic locally linear embedding: LLE with an exact likelihood, because no point helps to reconstruct itself.

The points are put in an order, and each point is reconstructed from the k nearest of the points after it:
:math:`y_i \sim N(\sum_j w_{ij} y_j, s_i^2 I)`, with weights of sum one. The product of these densities is a Gaussian
field of precision :math:`P = M M^T`, where column i of M is :math:`(e_i - w_i) / s_i`. Because M is triangular, P is
positive definite, :math:`\log|P| = -2 \sum_i \log s_i`, and the parameters are fitted point by point (Lawrence 2012).

The weights are LLE's, ridge included: :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)`, :math:`A_i = G_i + \lambda_i I`,
:math:`\lambda_i = reg\,tr(G_i)`. The variance maximizes the marginal likelihood under the prior of the ridge,
:math:`s_i^2 = (1 / (1^T A_i^{-1} 1) - \lambda_i / k) / d`: the mean square of the residual at reg = 0.

The last points have fewer than k points after them, and take them all. The very last point has none. It gets the mean
and the mean variance of the data, which only translates all points and does not change the centered K. The embedding is
the principal coordinates of K, computed by products with :math:`M^{-T} M^{-1}`. With all neighbors, reg = 0 and
d >= n - 1, they are the coordinates of PCA divided by :math:`\sqrt d`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.progress import block_size, blocks
from glle_engine.base.texts import Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.eigen.leading import eigenpairs_between
from glle_engine.linalg.distances import ranks_of, smallest_of_rows
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.entropy.gaussian_field import log_likelihood
from glle_engine.methods.parameters import NeighborSpec, choice, integer, number

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse.linalg import SuperLU

    from glle_engine.base.progress import OnProgress

_MIN_LANCZOS_POINTS = 80  # for fewer points Lanczos is no faster than all eigenvalues
# A point counts as an exact combination of its neighbors if its variance given them is below this share of the variance
# of the data.
_MIN_RELATIVE_VARIANCE = 1e-14


@dataclass(frozen=True, kw_only=True)
class AlleSpec(NeighborSpec):
    """Parameters of acyclic LLE."""

    order: str = choice(
        "given",
        "The order of the points, of which each is reconstructed from later ones: the order of the rows (given), by "
        "decreasing distance from the mean (inward), or random.",
        "given",
        "inward",
        "random",
    )
    reg: float = number(
        1e-3,
        "Ridge of the weights, relative to the trace of the local Gram matrix; 0 is allowed only if d >= k.",
        minimum=0,
    )
    seed: int = integer(0, "Seed of the random order.", minimum=0)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or if reg is 0 and the weights have no unique solution."""
        super().require_possible(n, d)
        # The k weights of a point have sum one, so that k - 1 are free. They can fit d features exactly if d < k.
        # Neighbors are later points, so that even the first point has at most n - 1 of them.
        if self.reg == 0 and d < min(self.n_neighbors, n - 1):
            raise InvalidParameterError(
                f"With {Way('reg', 0)}, {self.n_neighbors} neighbors reconstruct a point of {d} features "
                "without error, so that the likelihood is infinite.",
                remedy=f"Give reg above 0, or {Way('n_neighbors')} of at most {d}.",
            )


def ordering(X: NDArray[np.float64], spec: AlleSpec) -> NDArray[np.intp]:
    """Return the rows (n,) of X (n, d) in the order `spec.order`: each point is reconstructed from points after it."""
    if spec.order == "inward":
        return np.argsort(-ranks_of(((X - X.mean(axis=0)) ** 2).sum(axis=1)), kind="stable")
    if spec.order == "random":
        return np.random.default_rng(spec.seed).permutation(len(X))
    return np.arange(len(X))


def nearest_after(X: NDArray[np.float64], k: int, on_progress: OnProgress) -> list[NDArray[np.intp]]:
    """Return, for each row of X (n, d), the indices of its k nearest among the later rows, in ascending order.

    The last k rows have fewer than k rows after them, and get all of them.
    """
    n = len(X)
    centered = X - X.mean(axis=0)
    squares = (centered**2).sum(axis=1)
    index = np.arange(n)
    neighbors: list[NDArray[np.intp]] = []
    for rows in blocks(n, block_size(n), "neighbors", on_progress):
        squared = np.maximum(squares[rows, None] + squares - 2 * centered[rows] @ centered.T, 0.0)
        squared[index <= index[rows, None]] = np.inf
        nearest = smallest_of_rows(squared, min(k, n))
        neighbors += [np.sort(row[row > i]) for i, row in enumerate(nearest, rows.start)]
    return neighbors


def conditional(
    X: NDArray[np.float64], i: int, neighbors: NDArray[np.intp], reg: float
) -> tuple[NDArray[np.float64], float]:
    """Return the LLE weights (k,) by which `neighbors` (k,) reconstruct point i, and the variance of the residual.

    The point and the neighbors are rows of X (n, d), and the variance is that of one feature. If reg is 0 and the Gram
    matrix is singular, the weights are 1/k and the variance is 0.
    """
    k = len(neighbors)
    differences = X[neighbors] - X[i]
    gram = differences @ differences.T
    ridge = reg * float(gram.trace())
    gram[np.diag_indices(k)] += ridge
    try:
        solution = np.linalg.solve(gram, np.ones(k))
    except np.linalg.LinAlgError:  # without a ridge, neighbors may reconstruct the point by many weights
        return np.full(k, 1 / k), 0.0
    total = float(solution.sum())
    return solution / total, (1 / total - ridge / k) / X.shape[1]


def acyclic(
    X: NDArray[np.float64], spec: AlleSpec, order: NDArray[np.intp], on_progress: OnProgress
) -> tuple[csc_array, NDArray[np.float64]]:
    """Fit acyclic LLE: return the lower triangular factor M (n, n) of the precision M M^T, and the variances (n,).

    The variance of a point is that of one feature, given the point's neighbors. Entry i of both results belongs to the
    point `order[i]`, a row of X (n, d).

    Raises
    ------
    DegenerateDataError
        If a point is a combination of its neighbors, so that its conditional variance is 0.

    """
    Z = X[order]
    n, d = Z.shape
    nearest = nearest_after(Z, spec.n_neighbors, on_progress)
    mean_variance = float(((Z - Z.mean(axis=0)) ** 2).sum() / (n * d))
    variances = np.full(n, mean_variance)
    columns: list[NDArray[np.float64]] = []
    for rows in blocks(n - 1, 1000, "weights", on_progress):
        for i in range(rows.start, rows.stop):
            weights, variances[i] = conditional(Z, i, nearest[i], spec.reg)
            if not variances[i] > _MIN_RELATIVE_VARIANCE * mean_variance:
                raise DegenerateDataError(
                    f"Point {order[i]} (counted from 0) is an exact combination of its {len(nearest[i])} neighbors, so "
                    "that the likelihood has no maximum.",
                    remedy="Raise reg, or use fewer neighbors.",
                    details={"point": int(order[i])},
                )
            columns.append(np.append(1.0, -weights) / math.sqrt(variances[i]))
    columns.append(np.array([1 / math.sqrt(mean_variance)]))
    indptr = np.concatenate([[0], np.cumsum([len(column) for column in columns])])
    row = np.concatenate([np.append(i, neighbors) for i, neighbors in enumerate(nearest)])
    return csc_array((np.concatenate(columns), row, indptr), shape=(n, n)), variances


def principal_coordinates(M: csc_array, p: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the p leading principal coordinates (n, p) of K = (M M^T)^-1, and the eigenvalues (p,), descending.

    M (n, n) is lower triangular. K is centered, but never formed for more than 80 points.
    """
    n = M.shape[0]
    # In natural order and without pivoting, SuperLU returns the triangular matrix as its own factor, without fill-in.
    lu: SuperLU = splu(M, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

    def product(v: NDArray[np.float64]) -> NDArray[np.float64]:
        solution = lu.solve(lu.solve(v - v.mean(axis=0)), trans="T")
        return np.asarray(solution - solution.mean(axis=0))

    if n <= _MIN_LANCZOS_POINTS:
        K = product(np.eye(n))
        values, vectors = eigenpairs_between((K + K.T) / 2, n - p, n - 1)
    else:
        start = np.random.default_rng(0).standard_normal(n)
        values, vectors = eigsh(LinearOperator((n, n), matvec=product, dtype=np.float64), k=p, v0=start)
    descending = np.argsort(-values)
    values = np.maximum(values[descending], 0.0)
    return sign_convention(vectors[:, descending] * np.sqrt(values)), values


@Method(
    spec=AlleSpec,
    title="Acyclic locally linear embedding",
    about="Each point is reconstructed from neighbors after it in an ordering, so that the likelihood of the Gaussian "
    "field with precision M M^T is exact; principal coordinates of its covariance.",
    source="Lawrence 2012, JMLR 13, on acyclic LLE (arXiv 1010.4830)",
    growth="n^2",
    joins_equal=True,
)
def alle(X: NDArray[np.float64], spec: AlleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by acyclic LLE: the principal coordinates of the exact covariance of its model."""
    n, d = X.shape
    order = ordering(X, spec)
    M, variances = acyclic(X, spec, order, on_progress)
    on_progress(0, 1, "embedding")
    coordinates, values = principal_coordinates(M, spec.n_components)
    Y = np.empty_like(coordinates)
    Y[order] = coordinates
    residuals = M.T @ (X - X.mean(axis=0))[order]
    figures = {
        "log_likelihood": log_likelihood(-float(np.log(variances).sum()), float((residuals**2).sum() / d), n, d),
        "fewer_neighbors": min(spec.n_neighbors, n),
        "least_variance": float(variances.min()),
    }
    return Embedding(Y, values, figures)
