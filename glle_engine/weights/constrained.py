r"""Constrained posteriors: weights that sum to one (GLLE Eq. 7), with reconstruction noise.

The model of one neighborhood is

.. math:: D_i w_i + e = 0,\quad e \sim N(0, s_i^2 I_d),\quad
          w_i \sim N(1/k,\ (s_i^2 / \lambda_i) I)\ \text{on}\ 1^T w = 1,

with :math:`\lambda_i = \mathrm{reg}\cdot\mathrm{tr}(G_i)`, so that `reg` is the ratio of noise to prior variance. The
posterior on the plane :math:`1^T w = 1` is Gaussian. Its mean is LLE's regularized solution, and its covariance is

.. math:: s_i^2 \left(A_i^{-1} - A_i^{-1} 1 1^T A_i^{-1} / (1^T A_i^{-1} 1)\right),

which has rank k - 1 and maps the vector 1 to 0. The differences :math:`D_i`, their Gram matrix :math:`G_i` and
:math:`A_i` are defined in `glle_engine.weights.lle`. *direct* (Algorithm 2) adds the differences :math:`D_{y,i}` in the
embedding to the precision, which becomes :math:`A_i + c\,D_{y,i}^T D_{y,i}`. The factor
c = mean tr G / mean tr D_y^T D_y converts the embedding to the units of the data.

Let :math:`A_i = L L^T`, :math:`v = L^{-T} z` with z standard normal, and
:math:`g_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)`. Then :math:`s_i (v - g_i 1^T v)` has exactly the covariance above, so that
:math:`F_i = s_i (I - g_i 1^T) L^{-T}` is a factor of the covariance.

If only k_i of the k candidates are neighbors (`glle_engine.graph.adaptive`), the entries of the vector 1 are 0 for the
other candidates, whose weights are then 0 in the mean and in every draw.

The noise has as many directions as LLE's residuals. With the residuals :math:`r_i = \sum_j w_{ij} (x_j - x_i)` at the
mean weights, and their second moments C over all points, the participation ratio

.. math:: \nu = (\mathrm{tr}\, C)^2 / \mathrm{tr}\, C^2 = \Big(\sum \lambda\Big)^2 \Big/ \sum \lambda^2

of the eigenvalues :math:`\lambda` of C is the effective number of directions of the residuals: d if all features have
independent noise of the same variance, 1 if all residuals lie on one line. For Gaussian noise of covariance C, the
squared length of the noise has the mean and the variance of :math:`\mathrm{tr}\, C / \nu` times a chi-square of
:math:`\nu` degrees of freedom (Satterthwaite 1946). The ratio does not change with rotations, with the unit, with an
isometric embedding into more features, or if features are constant or all are repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glle_engine.base.progress import OnProgress, block_size, silent
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg import dense
from glle_engine.weights.gaussian import WeightDistribution
from glle_engine.weights.lle import neighborhoods, normalized_precision, ridge_factor, whiten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec
    from glle_engine.graph.relations import Data
    from glle_engine.weights.lle import MeanWeights

_TILE_COLUMNS = 512  # the matrix of second moments (d, d) is computed in tiles of this width, to save memory
# Residuals are rounding errors if their root mean square length is below this share of the points' root mean square
# length: 64 times the machine epsilon of float64.
_ROUNDING = 2.0**-46


def chosen_variance(spec: FitSpec, directions: float) -> Literal["dirichlet", "ml"]:
    """Return the rule for the noise variance, "dirichlet" or "ml": `spec.variance`, or a choice if that is "auto".

    The k - 1 free weights of a point can reconstruct k - 1 directions exactly. If the residuals lie in fewer
    `directions` (the result of `residual_dimension`), the residuals come from the ridge and say nothing about the
    noise, so that "auto" chooses dirichlet. With tangent noise "auto" also chooses dirichlet, because this noise
    already tells the directions along the sheet from the directions off it. Otherwise "auto" chooses ml (maximum
    likelihood).
    """
    if spec.variance != "auto":
        return spec.variance
    if spec.noise == "tangent":
        return "dirichlet"
    return "dirichlet" if directions < spec.n_neighbors - 1 else "ml"


@dataclass(frozen=True)
class NoiseModel:
    """How the variance of the reconstruction noise of a point follows from its neighborhood: a rule and its numbers.

    Attributes
    ----------
    variance : {"dirichlet", "ml"}
        The rule, as explained in `constrained_distribution`.
    dimension : float
        The number nu by which the rule ml divides: the effective number of directions of the reconstruction residuals,
        plus p for method="direct".
    unit_ratio : float
        The factor c by which method="direct" converts squared distances in the embedding to the unit of the data; 0 for
        method="em".

    """

    variance: Literal["dirichlet", "ml"]
    dimension: float
    unit_ratio: float

    @classmethod
    def from_fit(
        cls,
        X: Data,
        neighbors: NDArray[np.int32],
        embedding: NDArray[np.float64],
        spec: FitSpec,
        directions: float,
        kept: NDArray[np.bool_] | None = None,
    ) -> Self:
        """Return the noise model of a fit to the data X with the reference `embedding` (n, p).

        `directions` is the effective number of directions of the residuals (`residual_dimension`). `kept` (n, k) says
        which of the `neighbors` (n, k) are used; None means all.
        """
        direct = spec.method == "direct"
        unit_ratio = _unit_ratio(X, neighbors, embedding, kept) if direct else 0.0
        dimension = max(directions, 1.0) + (spec.n_components if direct else 0)
        return cls(chosen_variance(spec, directions), dimension, unit_ratio)


def constrained_distribution(
    X: Data, mean: MeanWeights, embedding: NDArray[np.float64], spec: FitSpec, on_progress: OnProgress = silent
) -> tuple[WeightDistribution, dict[str, Any]]:
    r"""Return the constrained posterior of the weights for method="em" or "direct", and numbers for the diagnostics.

    The variance :math:`s_i^2` of the reconstruction noise of point i depends on `spec.variance`. Let :math:`A_i` be the
    Gram matrix of the differences to the neighbors plus the ridge :math:`\lambda_i I`, where :math:`\lambda_i` is
    `spec.reg` times the trace of the Gram matrix. For method="direct", the Gram matrix of the differences in the
    embedding is added, times the factor `NoiseModel.unit_ratio`.

    - *dirichlet*: :math:`s_i^2 = \lambda_i / (k (k + 1))`, so that the prior covariance is the covariance of flat
      Dirichlet weights, :math:`(I - 11^T/k) / (k (k + 1))`;
    - *ml*, maximum likelihood in closed form: :math:`s_i^2 = (1 / (1^T A_i^{-1} 1) - \lambda_i / k) / \nu`, where nu is
      the participation ratio of the residuals (`residual_dimension`), plus p for method="direct";
    - *auto*: one of these (`chosen_variance`).

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
    mean : MeanWeights
        The neighbors of the points, and the mean of the weights: LLE's weights, or the mean for tangent noise.
    embedding : (n, p) float64
        The reference embedding, which method="direct" uses.
    spec : FitSpec
    on_progress
        Called with (points done, n, "posterior").

    Returns
    -------
    distribution : WeightDistribution
    facts : dict
        JSON-able numbers for the diagnostics of the fit.

    """
    directions = residual_dimension(X, mean.neighbors, mean.weights)
    noise = NoiseModel.from_fit(X, mean.neighbors, embedding, spec, directions, mean.kept)
    distribution, noise_ratio = distribution_at(X, mean, embedding, spec, noise, on_progress=on_progress)
    assert distribution.prior_factor is not None
    facts = {
        "variance": noise.variance,
        "residual_dimension": directions,
        "noise_to_neighborhood": float(np.median(noise_ratio)),
        "prior_standard_deviation": float(np.median(distribution.prior_factor)),
    }
    return distribution, facts


def distribution_at(
    X: Data,
    known: MeanWeights,
    embedding: NDArray[np.float64],
    spec: FitSpec,
    noise: NoiseModel,
    *,
    points: NDArray[np.float64] | None = None,
    places: NDArray[np.float64] | None = None,
    on_progress: OnProgress = silent,
) -> tuple[WeightDistribution, NDArray[np.float64]]:
    """Return the distribution of each point's weights under the noise model of a fit, and the relative noise (n,).

    The relative noise is the variance s_i^2 of the noise over tr(G_i), the sum of the squared distances of the point to
    its neighbors. The points are the n rows of X, or n new `points` (n, d) at the positions `places` (n, p) in the
    embedding, and `known` has the neighbors and mean weights of these points. `embedding` (n, p) is the reference
    embedding of the rows of X, and `spec` and `noise` are the parameters and the noise model of the fit. `on_progress`
    is called with (points done, all points, "posterior").
    """
    neighbors, kept = known.neighbors, known.kept
    n, k = neighbors.shape
    places = embedding if places is None else places
    mean, factor, prior = np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    noise_ratio = np.empty(n)
    for block in neighborhoods(X, neighbors, "posterior", on_progress, kept, points):
        rows, kept_of_rows = block.rows, block.kept
        count = kept_of_rows.sum(axis=1)
        precision, unit = normalized_precision(whiten(block, known.frames), block.trace, spec.reg)
        if spec.method == "direct":
            apart = (embedding[neighbors[rows]] - places[rows, None, :]) * kept_of_rows[:, :, None]
            precision += (noise.unit_ratio / unit)[:, None, None] * dense.gram(apart)
        root = ridge_factor(precision)
        center, minimum = dense.affine_solution(root, None if kept is None else kept_of_rows)
        if noise.variance == "dirichlet":
            ratio = spec.reg / (count * (count + 1))  # s_i^2 / tr(G_i), the relative noise, for the rule "dirichlet"
        else:
            ratio = np.maximum(minimum - spec.reg / count, 0.0) / noise.dimension
        mean[rows] = center if spec.mean == "derived" else known.weights[rows]
        if kept is not None:
            root *= kept_of_rows[:, :, None]
        factor[rows] = (root - center[:, :, None] * root.sum(axis=1)[:, None, :]) * np.sqrt(ratio)[:, None, None]
        prior[rows] = np.sqrt(ratio / spec.reg)
        noise_ratio[rows] = ratio
    distribution = WeightDistribution(mean, factor, 1 / k, prior, constrained=True, sigma=None, kept=kept)
    return distribution, noise_ratio


def _unit_ratio(X: Data, neighbors: NDArray[np.int32], Y: NDArray[np.float64], kept: NDArray[np.bool_] | None) -> float:
    """Return the factor that converts squared distances in the embedding Y to the unit of the data X.

    It is the mean squared distance between neighbors in X over their mean squared distance in Y. `kept` (n, k) says
    which of the `neighbors` (n, k) count; None means all.
    """
    data = sum(float(block.trace.sum()) for block in neighborhoods(X, neighbors, kept=kept))
    drawn = sum(float(block.trace.sum()) for block in neighborhoods(Y, neighbors, kept=kept))
    return data / drawn


def residual_dimension(X: Data, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
    """Return the effective number of directions of reconstruction residuals: their participation ratio.

    The residual of a point is its difference from the sum of its `neighbors` (n, k) times `weights` (n, k), whose rows
    sum to 1. With the matrix C of second moments of the residuals, the ratio is (tr C)^2 / tr C^2. It is in
    [1, min(n, d)] up to rounding, or 0 if the residuals are no larger than the rounding errors of the data.
    """
    if isinstance(X, Distances | SparsePoints):
        return X.residual_dimension(neighbors, weights)
    rest = residuals(X, neighbors, weights)
    if dense.dot(rest, rest) <= _ROUNDING**2 * dense.dot(X, X):
        return 0.0
    np.ldexp(rest, -int(np.frexp(np.abs(rest).max())[1]), out=rest)  # exact, and fourth powers stay in range
    if rest.shape[0] < rest.shape[1]:
        rest = np.ascontiguousarray(rest.T)  # R R^T and R^T R have the same eigenvalues except for zeros
    total, squares = 0.0, 0.0
    tiles = [rest[:, start : start + _TILE_COLUMNS] for start in range(0, rest.shape[1], _TILE_COLUMNS)]
    for i, left in enumerate(tiles):
        total += float((left * left).sum())
        for j, right in enumerate(tiles[: i + 1]):
            product = dense.cross(left, right)
            squares += (1 if i == j else 2) * dense.dot(product, product)
    return total * total / squares


def residuals(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the residuals (n, d) of a reconstruction: the sum of a point's neighbors times `weights`, minus the point.

    `neighbors` and `weights` are (n, k), and each row of weights sums to 1. The residuals are computed as weighted sums
    of the differences between neighbors and point, which is accurate even if the data are far from the origin.
    """
    n, k = neighbors.shape
    rest = np.zeros((n, X.shape[1]))
    rows = block_size(X.shape[1])
    for start in range(0, n, rows):
        block = slice(start, min(start + rows, n))
        for j in range(k):
            rest[block] += weights[block, j, None] * (X[neighbors[block, j]] - X[block])
    return rest
