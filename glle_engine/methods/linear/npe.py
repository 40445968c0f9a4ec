r"""Neighborhood preserving embedding: LLE whose coordinates are linear functions of the data.

With LLE's weights W and :math:`M = (I - W)^T (I - W)`, the embedding is :math:`Y = X a` for the bottom solutions of
:math:`X^T M X a = \lambda X^T X a`, with X centered (He, Cai, Yan and Zhang 2005). With the singular value
decomposition :math:`X = Q S V^T`, the embedding is Q times the bottom right singular vectors of :math:`(I - W) Q`, and
the condition number is not squared. As in LLE, :math:`Y^T Y = n I`. With n - 1 principal axes every embedding is a
linear function of the data, and NPE is LLE. If there are as many features as points or more, only the axes with most of
the variance are therefore kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DegenerateDataError
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import require_enough_points
from glle_engine.eigen.eigenproblem import scale_embedding
from glle_engine.graph.connectivity import components, directed_graph
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import AffineMap
from glle_engine.methods.parameters import number
from glle_engine.methods.spectral.lle import LleSpec
from glle_engine.weights.lle import lle_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

# Share of the variance that the principal axes keep if there are at least as many features as points. He, Cai, Yan and
# Zhang 2005 keep 0.98.
KEPT_VARIANCE_SHARE = 0.99
# A note warns if the linear map places a training point farther than this from its position in the embedding, relative
# to the largest coordinate of the embedding.
MAX_MAP_ERROR = 1e-8


@dataclass(frozen=True, kw_only=True)
class NpeSpec(LleSpec):
    """Parameters of NPE."""

    variance_share: float | str = number(
        "auto",
        "Share of the variance that the principal axes in use must have; with 1, every axis along which the data vary "
        f"is used. auto is 1, or {KEPT_VARIANCE_SHARE} if there are at least as many features as points.",
        above=0,
        maximum=1,
        words=("auto",),
    )

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more components than min(n - 1, d)."""
        require_enough_points(n, self)
        self.require_rank(n, d)


def whiten(
    X: NDArray[np.float64], share: float, min_rank: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Project X (n, d) on its r leading principal axes: return orthonormal scores (n, r), the mean and the whitening.

    The scores are (X - mean) @ whitening, with the mean of the data (d,) and a matrix (d, r). The number of axes r is
    the smallest for which the axes hold `share` of the variance, but at least `min_rank`.

    Raises
    ------
    DegenerateDataError
        If the data span fewer than `min_rank` dimensions.

    """
    mean = X.mean(axis=0)
    U, spread, Vt = np.linalg.svd(X - mean, full_matrices=False)
    rank = int((spread > max(X.shape) * np.finfo(float).eps * spread[0]).sum())
    if rank < min_rank:
        raise DegenerateDataError(
            f"The data span {rank} dimensions, fewer than {Way('n_components', min_rank)}.",
            remedy=f"Give {Way('n_components')} of at most {rank}.",
            details={"most": rank},
        )
    variance = np.cumsum(spread[:rank] ** 2)
    count = rank if share == 1 else int(np.searchsorted(variance, share * variance[-1])) + 1
    kept = min(max(count, min_rank), rank)
    return np.asarray(U[:, :kept]), mean, Vt[:kept].T / spread[:kept]


@Method(
    spec=NpeSpec,
    title="Neighborhood preserving embedding",
    about="The linear functions of the data that LLE's weights reconstruct best: X^T M X a = lambda X^T X a.",
    source="He, Cai, Yan and Zhang 2005, ICCV",
    linear=True,
    growth="n d^2, and n^2 d to find neighbors among many features",
    restore=AffineMap.restore,
)
def npe(X: NDArray[np.float64], spec: NpeSpec, on_progress: OnProgress) -> Embedding:
    """Embed by the p linear functions of the data that LLE's weights reconstruct best."""
    n, d = X.shape
    p, k = spec.n_components, spec.n_neighbors
    nearest, _ = kneighbors(X, k, on_progress)
    neighbors = np.sort(nearest, axis=1)
    weights = lle_weights(X, neighbors, spec.reg, on_progress)
    on_progress(0, 1, "axes")
    share = (1.0 if d < n else KEPT_VARIANCE_SHARE) if spec.variance_share == "auto" else float(spec.variance_share)
    Q, mean, whitening = whiten(X, share, p)
    on_progress(0, 1, "embedding")
    W = directed_graph(neighbors, weights)
    _, S, Vt = np.linalg.svd(np.linalg.qr(Q - W @ Q, mode="r"))
    figures = {"axes": Q.shape[1], "components": int(components(nearest).max()) + 1}
    vectors = Q @ Vt[: -p - 1 : -1].T
    Y = scale_embedding(vectors)
    signs = np.where(np.einsum("ij,ij->j", Y, vectors) < 0, -1.0, 1.0)
    linear = AffineMap(mean, (signs * np.sqrt(n) * (whitening @ Vt[: -p - 1 : -1].T)).T)
    notes = []
    error = float(np.abs(linear.transform(X) - Y).max() / np.abs(Y).max())
    if error > MAX_MAP_ERROR:
        message = (
            "The embedding uses axes along which the data hardly vary: the map to it reproduces the points "
            f"to {error:.1g} of its extent only, and new points no better. Lower {Way('variance_share')}, to "
            ".999 for a start."
        )
        notes.append(Note("ill-conditioned-map", message))
    if figures["components"] > 1:
        message = (
            f"With {Way('n_neighbors', k)} the graph falls into {figures['components']} components. One linear "
            f"map embeds them all, but no weight relates their positions. Raise {Way('n_neighbors')}."
        )
        notes.append(Note("disconnected-graph", message))
    return Embedding(Y, S[: -p - 1 : -1] ** 2, figures, tuple(notes), map=linear)
