r"""Published posteriors: the equations of GLLE as published, with diagnostics of their effects.

*em* (Algorithm 1): :math:`x_i = X_i w_i + \mu`, :math:`w_i \sim N(0, \Omega_i)`, X_i the raw neighbors (d x k), mu the
data mean. E-step (Eq. 21-22): mean :math:`\Omega X^T (X \Omega X^T)^+ (x - \mu)`, covariance
:math:`\Omega - \Omega X^T (X \Omega X^T)^+ X \Omega`. M-step: the global scatters S1 (Eq. 24) and S2 (Eq. 25), then
:math:`\sigma_i = (\mathrm{tr}((X_i X_i^T)^+ S_1) + \mathrm{tr} S_2) / (d + k)` (Eq. 29). Eq. 22 has the conditional
covariance in place of E[w w^T]; the outer product of the mean is missing, S1 is no scatter, and sigma_i turns
negative. A draw then uses \|sigma_i\|, and the diagnostics count the negative ones. A full Omega_i is
in `glle_engine.weights.published_full`.

*direct* (Algorithm 2): precision :math:`X_i^T X_i + Y_i^T Y_i` (Eq. 35). It is singular if d + p < k; the
pseudo-inverse replaces the inverse then, and the diagnostics report it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.linalg import dense
from glle_engine.weights.gaussian import WeightLaw
from glle_engine.weights.lle import lle_weights
from glle_engine.weights.published_full import full_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec

_BLOCK_ENTRIES = 1 << 20


def published_law(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    embedding: NDArray[np.float64],
    spec: FitSpec,
    on_progress: OnProgress = silent,
) -> tuple[WeightLaw, dict[str, Any]]:
    """Return the published posterior, em with a spherical (Eq. 29) or full covariance or direct, and its figures.

    X (n, d) is in the unit of the data, because the posterior changes with shifts and scales. `embedding` (n, p), the
    LLE embedding with (1/n) Y^T Y = I, is for direct. `on_progress` is called with (points or iterations done, all,
    "posterior").
    """
    if spec.method == "direct":
        return _direct(X, neighbors, embedding, spec, on_progress)
    if spec.covariance != "spherical":
        return full_law(X, neighbors, spec, on_progress)
    return _em_spherical(X, neighbors, spec, on_progress)


def _em_spherical(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], spec: FitSpec, on_progress: OnProgress
) -> tuple[WeightLaw, dict[str, Any]]:
    """Compute Eq. 21-29 with Omega_i = sigma_i I, for which the mean is X_i^+ (x_i - mu) for any sigma_i."""
    n, k = neighbors.shape
    d = X.shape[1]
    centred = X - X.mean(axis=0)
    mean, null, rank = np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    scatter = dense.cross(centred, centred)
    rows_of = list(blocks(n, max(1, _BLOCK_ENTRIES // (k * max(k, d))), "posterior"))
    for rows in rows_of:
        raw = X[neighbors[rows]].transpose(0, 2, 1)  # X_i, (m, d, k)
        inverse = dense.pinv(raw)
        mean[rows] = dense.matmul(inverse, centred[rows, :, None])[:, :, 0]
        null[rows] = np.eye(k) - dense.matmul(inverse, raw)
        rank[rows] = np.rint(k - np.trace(null[rows], axis1=1, axis2=2))
        # X E[w w^T] X^T as published is sigma X (I - X^+ X) X^T = 0; the rest of Eq. 24:
        scatter -= 2 * dense.cross(dense.matmul(raw, mean[rows, :, None])[:, :, 0], centred[rows])
        on_progress(rows.stop, n, "posterior")
    null[rank == k] = 0.0  # full column rank: the covariance is 0, not rounding
    scatter /= n
    explained = np.empty(n)
    for rows in rows_of:
        inverse = dense.pinv(X[neighbors[rows]].transpose(0, 2, 1))
        explained[rows] = (dense.matmul(inverse, scatter) * inverse).sum(axis=(1, 2))  # tr((X X^T)^+ S1)
    sigma = np.ones(n)
    free = k - rank
    iterations, converged = 0, False
    while iterations < spec.max_iter and not converged:
        before, sigma = sigma, (explained + np.mean(sigma * free)) / (d + k)
        iterations += 1
        converged = spec.tol > 0 and bool(np.all(np.abs(sigma - before) <= spec.tol * np.abs(sigma)))
        on_progress(iterations, spec.max_iter, "posterior")
    spread = np.sqrt(np.abs(sigma))
    facts = {
        "iterations": iterations,
        "converged": converged,
        "negative_variances": int((sigma < 0).sum()),
        "median_sigma": float(np.median(sigma)),
        "full_rank_neighborhoods": int((rank == k).sum()),
        "exact_reconstructions": int((rank == d).sum()) if d < k else 0,
    }
    return WeightLaw(mean, spread[:, None, None] * null, 0.0, spread, constrained=False, sigma=sigma), facts


def direct_covariance(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], embedding: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Return Gamma_i = (X_i^T X_i + Y_i^T Y_i)^+ (Eq. 35), its symmetric root and the precision's rank.

    X is (n, d), `neighbors` (n, k) and `embedding` (n, p), in the scale in which it counts. The first two results are
    (n, k, k). The rank (n,) is less than k if the precision is singular and the pseudo-inverse replaces the inverse.
    """
    n, k = neighbors.shape
    covariance, root, rank = np.empty((n, k, k)), np.empty((n, k, k)), np.empty(n, np.intp)
    joint = np.concatenate([X, embedding], axis=1)
    for rows in blocks(n, max(1, _BLOCK_ENTRIES // (k * max(k, joint.shape[1]))), "posterior"):
        raw = joint[neighbors[rows]]
        values, vectors = dense.eigh(dense.gram(raw))
        floor = max(k, joint.shape[1]) * np.finfo(float).eps * values[:, -1:]
        held = values > floor
        inverse = np.where(held, 1 / np.where(held, values, 1.0), 0.0)
        rank[rows] = held.sum(axis=1)
        covariance[rows] = dense.matmul(vectors * inverse[:, None, :], vectors.transpose(0, 2, 1))
        root[rows] = dense.matmul(vectors * np.sqrt(inverse)[:, None, :], vectors.transpose(0, 2, 1))
    return covariance, root, rank


def _direct(
    X: NDArray[np.float64],
    neighbors: NDArray[np.int32],
    embedding: NDArray[np.float64],
    spec: FitSpec,
    on_progress: OnProgress,
) -> tuple[WeightLaw, dict[str, Any]]:
    n, k = neighbors.shape
    covariance, root, rank = direct_covariance(X, neighbors, embedding)
    if spec.mean == "lle":
        mean = lle_weights(X, neighbors, spec.reg)
    else:  # Gamma_i (X_i^T x_i + Y_i^T y_i), Eq. 35
        joint = np.concatenate([X, embedding], axis=1)
        target = dense.matmul(joint[neighbors], joint[:, :, None])
        mean = dense.matmul(covariance, target)[:, :, 0]
    on_progress(n, n, "posterior")
    facts: dict[str, Any] = {"singular_precisions": int((rank < k).sum())}
    return WeightLaw(mean, root, 0.0, None, constrained=False, sigma=None), facts
