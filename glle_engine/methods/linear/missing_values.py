r"""Probabilistic PCA of data with missing values, which the model fills in.

Row i has the values :math:`x_{ij}` of the features :math:`O_i`. Expectation maximization on the observed values alone
(Tipping and Bishop 1999, section 2.4; Ilin and Raiko 2010, JMLR 11, section 3): with the rows :math:`W_O` of W,
:math:`\Sigma_i = \sigma^2 (W_O^T W_O + \sigma^2 I)^{-1}` and :math:`z_i = \Sigma_i W_O^T (x_O - \mu_O) / \sigma^2`,

.. math:: (w_j, \mu_j) \leftarrow \arg\min \sum_i |x_{ij} - w_j^T z_i - \mu_j|^2 + w_j^T \Sigma_i w_j, \qquad
          \sigma^2 \leftarrow \mathrm{mean}_{ij} \; |x_{ij} - w_j^T z_i - \mu_j|^2 + w_j^T \Sigma_i w_j

over the rows that have feature j. Each step also estimates the mean m and the covariance A of z, and continues with the
loadings :math:`W A^{1/2}` and the mean :math:`\mu + W m`. This needs far fewer steps (Liu, Rubin and Wu 1998). Without
missing values the limit is the maximum in closed form (`glle_engine.methods.linear.pca.fit_ppca`). A missing value is
filled in by its mean :math:`w_j^T z_i + \mu_j`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.texts import Way

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The iteration stops when a step changes each loading by less than this, and the noise variance by a smaller share than
# this. The data are scaled so that the mean variance of a feature is 1.
_TOLERANCE = 1e-9
_STEPS = 10_000
_MIN_NOISE = 1e-9  # smallest noise variance, for data that are scaled so that the mean variance of a feature is 1


@dataclass(frozen=True, eq=False)
class Completed:
    """Data whose missing values are filled in, and the probabilistic PCA that filled them in.

    Attributes
    ----------
    data : (n, d) float64
        The known values, and in place of each missing value its mean in the model, given the row's known values.
    mean : (d,) float64
        mu of the model x = W z + mu + noise.
    loadings : (d, p) float64
        W of the model, in the unit of the data.
    noise_variance : float
        Variance of the noise of each feature, in squared units of the data.
    embedding : (n, p) float64
        The posterior mean of the latent coordinates z of each row, given the row's known values.
    converged : bool
        Whether the iteration ended because the model no longer changed, and not at the largest number of steps.

    """

    data: NDArray[np.float64]
    mean: NDArray[np.float64]
    loadings: NDArray[np.float64]
    noise_variance: float
    embedding: NDArray[np.float64]
    converged: bool


def complete(X: NDArray[np.float64], n_components: int = 2, max_iter: int = _STEPS) -> Completed:
    """Fit probabilistic PCA to data X (n, d) with NaN for missing values, and fill these in.

    `n_components` is p, the dimension of the model. The features should have one unit, because the noise has one
    variance. At most `max_iter` steps are made.

    Raises
    ------
    DegenerateDataError
        If a row or a column has no values, or no value differs from the mean of its column.
    InvalidParameterError
        Unless p < d.

    """
    is_known = ~np.isnan(X)
    n, d = X.shape
    p = check_integer("n_components", n_components, 1)
    if p >= d:
        raise InvalidParameterError(
            f"{Way('n_components', p)} leaves no dimension of {d} features for the noise.",
            remedy=f"Give {Way('n_components')} of at most {d - 1}.",
        )
    for axis, name in ((1, "row"), (0, "column")):
        if not is_known.any(axis=axis).all():
            index = int(np.flatnonzero(~is_known.any(axis=axis))[0])
            raise DegenerateDataError(
                f"All values of {name} {index} (counted from 0) are missing.", remedy=f"Leave this {name} out."
            )
    mean = np.nanmean(X, axis=0)
    known = np.where(is_known, X - mean, 0.0)
    unit = float(np.sqrt((known**2).sum() / is_known.sum()))
    if unit == 0:
        raise DegenerateDataError(
            f"In each of the {d} columns, all known values are equal.",
            remedy="Give data in which at least one column varies.",
        )
    known, center = known / unit, np.zeros(d)
    weight = is_known.astype(np.float64)
    W, noise = np.random.default_rng(0).standard_normal((d, p)), 1.0
    converged = False
    for _ in range(max_iter):
        spread, z = _posterior(known - weight * center, weight, W, noise)
        # Regress each feature on (z, 1), over the rows where it is known, with the second moments of z.
        outer = np.zeros((n, p + 1, p + 1))
        outer[:, :p, :p] = spread + z[:, :, None] * z[:, None, :]
        outer[:, :p, p] = outer[:, p, :p] = z
        outer[:, p, p] = 1.0
        moments = np.einsum("nj,nab->jab", weight, outer, optimize=True)
        cross = known.T @ np.column_stack([z, np.ones(n)])
        solution = np.linalg.solve(moments, cross[:, :, None])[:, :, 0]
        before, shift = W, z.mean(axis=0)
        root = np.linalg.cholesky(outer[:, :p, :p].mean(axis=0) - np.outer(shift, shift))
        W, center = solution[:, :p] @ root, solution[:, p] + solution[:, :p] @ shift
        left = max(float((known**2).sum() - (cross * solution).sum()) / float(weight.sum()), _MIN_NOISE)
        change = max(float(np.abs(W - before).max()), abs(left / noise - 1))
        noise = left
        if change < _TOLERANCE:
            converged = True
            break
    _, z = _posterior(known - weight * center, weight, W, noise)
    rotation, scales, axes = np.linalg.svd(W, full_matrices=False)
    data = np.where(is_known, X, mean + unit * (z @ W.T + center))
    return Completed(data, mean + unit * center, unit * rotation * scales, unit**2 * noise, z @ axes.T, converged)


def _posterior(
    known: NDArray[np.float64], weight: NDArray[np.float64], W: NDArray[np.float64], noise: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the posterior covariance (n, p, p) and mean (n, p) of each row's latent coordinates z.

    `known` (n, d) are the centered values of the rows, 0 where a value is missing, and `weight` (n, d) is 1 where a
    value is known. W (d, p) are the loadings and `noise` is the noise variance.
    """
    p = W.shape[1]
    products = (W[:, :, None] * W[:, None, :]).reshape(len(W), p * p)
    inverse = np.linalg.inv((weight @ products).reshape(-1, p, p) + noise * np.eye(p))
    return np.asarray(noise * inverse), np.asarray(np.einsum("nab,nb->na", inverse, known @ W))
