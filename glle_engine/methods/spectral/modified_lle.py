r"""Modified LLE: several weight vectors for each point, so that noise and the ridge do not bend the embedding.

If a point has more neighbors than dimensions, its reconstruction weights are not unique. Each point therefore gets s_i
nearly optimal, linearly independent weight vectors :math:`W_i = (w_i^{(1)}, ..., w_i^{(s_i)})`, and Y minimizes
:math:`\sum_i \sum_l |y_i - \sum_j w_{ij}^{(l)} y_j|^2` under :math:`Y^T Y = n I` (Zhang and Wang 2006).

Let :math:`V_i` (k, s_i) be the singular vectors of the neighbors around point i that have the smallest singular values,
:math:`w_i` the weights of LLE, :math:`\alpha_i = |V_i^T 1| / \sqrt{s_i}`, and :math:`H_i` the reflection of
:math:`V_i^T 1` onto :math:`\alpha_i 1`. Then :math:`W_i = (1 - \alpha_i) w_i 1^T + V_i H_i`. The objective needs only
:math:`W_i W_i^T` and :math:`W_i 1`. With :math:`P_i = V_i V_i^T` and :math:`V_i H_i 1 = P_i 1 / \alpha_i =: u_i` they
are

.. math::
    W_i W_i^T = P_i + (1 - \alpha_i) (u_i w_i^T + w_i u_i^T) + (1 - \alpha_i)^2 s_i w_i w_i^T, \quad
    W_i 1 = u_i + (1 - \alpha_i) s_i w_i.

P_i is the identity minus the projection on the k - s_i leading singular vectors, so that only these are computed.

If the kNN graph has several parts, the number of neighbors is raised until the graph is connected, because one edge
between two parts would not join them here. A single far neighbor alone determines the leading singular vector of its
neighborhood. The weight vectors are made of the other singular vectors, so the far neighbor has almost no weight, and
the far part could have almost any position. With the smallest number of neighbors that connects the graph, points may
still have only one far neighbor; a note says that the positions of the parts mean little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import block_size, blocks
from glle_engine.linalg.distances import power_of_two
from glle_engine.methods.base import Embedding, Method, note_raised
from glle_engine.methods.parameters import RaisingSpec, of_neighborhoods
from glle_engine.methods.spectral.local_alignment import embedding_of_patches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_RELATIVE_RIDGE = 1e-3  # relative to the trace of a Gram matrix, as in LLE


class ModifiedLleSpec(RaisingSpec):
    """Parameters of modified LLE."""

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more components than neighbors or features."""
        super().require_possible(n, d)
        self.require_rank(n, d)
        self.require_neighbors("Modified LLE", self.n_components, f"at least {self.n_components}")


def leading_counts(X: NDArray[np.float64], nearest: NDArray[np.int32], p: int) -> NDArray[np.intp]:
    """Return for each point (n,) how many leading singular vectors of its neighborhood span the tangent directions.

    The weight vectors of a point are made of the other singular vectors. The number, from 1 to min(d, k), is the
    smallest for which the variance along the other vectors is less than eta times the variance along the leading ones.
    eta is the median of this ratio over all points, with p leading vectors (Zhang and Wang 2006, section 4). X is
    (n, d), and `nearest` (n, k) are the neighbors.
    """
    spread = np.empty((len(X), min(X.shape[1], nearest.shape[1])))
    for rows in blocks(len(X), block_size(nearest.shape[1] * X.shape[1]), "neighborhoods"):
        spread[rows] = np.linalg.svd(X[nearest[rows]] - X[rows, None], compute_uv=False)
    variance = np.cumsum(spread**2, axis=1)
    residual = variance[:, -1:] / variance[:, :-1] - 1
    eta = np.median(variance[:, -1] / variance[:, p - 1] - 1)
    return np.asarray(variance.shape[1] - (residual < eta).sum(axis=1))


def ridge_weights(vectors: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of LLE (b, k), with a ridge of .001 of the trace, from the eigenpairs of b Gram matrices.

    `vectors` (b, k, r) are the eigenvectors, and `variance` (b, r) the eigenvalues, without the eigenvalues 0.
    """
    ridge = _RELATIVE_RIDGE * variance.sum(axis=1, keepdims=True)
    sums = vectors.sum(axis=1)
    weights = (1 - np.einsum("bkr,br->bk", vectors, sums)) / ridge
    weights += np.einsum("bkr,br->bk", vectors, sums / (variance + ridge))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@Method(
    spec=ModifiedLleSpec,
    title="Modified LLE",
    about="Each point keeps several independent sets of weights by which its neighbors reconstruct it, not one.",
    source="Zhang and Wang 2006, NIPS 19",
    doubles=of_neighborhoods(3),
    growth="n^1.3 for few features; up to n^3 for many",
    joins_equal=True,
)
def modified_lle(X: NDArray[np.float64], spec: ModifiedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed so that all weight vectors of each point reconstruct the point well."""
    nearest = spec.neighbors(X, on_progress)
    X = X / power_of_two(float(np.abs(X).max()))  # keeps squares in the range of floating-point numbers
    k, p = nearest.shape[1], spec.n_components
    counts = leading_counts(X, nearest, p)

    def penalties(members: NDArray[np.int32]) -> NDArray[np.float64]:
        point = members[:, 0]
        vectors, spread, _ = np.linalg.svd(X[members[:, 1:]] - X[point, None], full_matrices=False)
        w = ridge_weights(vectors, spread**2)
        vectors *= np.arange(vectors.shape[2]) < counts[point, None, None]
        s = np.maximum(k - counts[point], 1)[:, None]
        # the vector of ones minus its projection on the leading singular vectors: P_i 1 in the docstring of this file
        rest = 1 - np.einsum("bkr,br->bk", vectors, vectors.sum(axis=1))
        alpha = np.sqrt(np.maximum(rest.sum(axis=1, keepdims=True), 0.0) / s)
        u = np.divide(rest, alpha, out=np.zeros_like(rest), where=alpha > 0)
        cross = (1 - alpha)[:, :, None] * u[:, :, None] * w[:, None, :]
        sums = u + (1 - alpha) * s * w
        out = np.empty((len(members), k + 1, k + 1))
        out[:, 0, 0], out[:, 0, 1:], out[:, 1:, 0] = s[:, 0], -sums, -sums
        out[:, 1:, 1:] = np.eye(k) - vectors @ vectors.transpose(0, 2, 1) + cross + cross.transpose(0, 2, 1)
        out[:, 1:, 1:] += ((1 - alpha) ** 2 * s * w)[:, :, None] * w[:, None, :]
        return out

    return note_raised(embedding_of_patches(nearest, p, penalties, on_progress), spec.n_neighbors, k)
