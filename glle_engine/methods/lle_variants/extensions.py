r"""Extensions of LLE, listed in the surveys, that change the data before the search for neighbors.

Relative transformation: a point becomes the vector of its distances to all points,
:math:`x_i \mapsto (d_{i1}, ..., d_{in})`. *Kernel* relative transformation takes the distances in the feature space of
a Gaussian kernel, :math:`d_{ij}^2 = 2 - 2 \exp(-\gamma |x_i - x_j|^2)` (Wen, Jiang and Wen 2008). A point off the data
then differs from all others in many coordinates: relative to the usual distance between neighbors, the point moves away
from the data. Points beside three uniform squares moved away by 2 to 8 %, and only if :math:`\gamma` times the squared
extent of the data was small, because a kernel saturates. The transformed points choose the neighbors; weights and
embedding are LLE's.

Neighbor smoothing: each point is projected onto the p-dimensional plane that fits it and its k nearest neighbors best,
a local linear estimate of the surface, so that noise off the surface does not bend the weights (after Yin, Hu and Zhou
2008; Zhang and Zha 2003). LLE then embeds the smoothed points. With 16 neighbors, noise off a plane falls to less than
half. But embeddings of twelve noisy S-curves kept neighbors better in only seven cases, because smoothing also flattens
bends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import GraphSpec, number, of_pairs
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class RelativeLleSpec(GraphSpec, LleSpec):
    """Parameters of LLE by relative transformation."""

    gamma: float | None = number(
        None,
        "Of the Gaussian kernel in whose feature space distances are taken, in 1 / squared units of the data; null for "
        "the distances of the data.",
        above=0,
    )


def relative_points(X: NDArray[np.float64], gamma: float | None = None) -> NDArray[np.float64]:
    """Return the distances (n, n) between the points of X (n, d), as the new coordinates of the points.

    With `gamma`, in 1 / squared units of the data, the distances are measured in the feature space of a Gaussian
    kernel.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415 # an API process does without

    squares = cdist(X, X, "sqeuclidean")
    return np.asarray(np.sqrt(squares if gamma is None else 2 - 2 * np.exp(-gamma * squares)))


@Method(
    spec=RelativeLleSpec,
    title="Relative LLE",
    about="LLE whose neighbors are nearest by the vectors of their distances to all points, optionally of a kernel.",
    source="after Wen, Jiang and Wen 2008 (kernel relative transformation)",
    doubles=of_pairs(1),
    growth="n^3",
)
def relative_lle(X: NDArray[np.float64], spec: RelativeLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by neighbors that `relative_points` chooses."""
    graph, bridges = spec.graph(relative_points(X, spec.gamma), on_progress)
    return note_bridges(lle_of(X, graph.nearest, spec, on_progress), bridges)


@dataclass(frozen=True, kw_only=True)
class SmoothedLleSpec(GraphSpec, LleSpec):
    """Parameters of LLE of smoothed points, of which the planes have `n_components` dimensions."""


def smoothed(
    X: NDArray[np.float64], n_neighbors: int, n_components: int, on_progress: OnProgress = silent
) -> NDArray[np.float64]:
    """Return X (n, d) with each point projected onto the p-dimensional plane that fits it and its k nearest best."""
    nearest, _ = kneighbors(X, n_neighbors, on_progress)
    members = np.concatenate([np.arange(len(X), dtype=np.int32)[:, None], nearest], axis=1)
    moved = np.empty_like(X)
    for rows in blocks(len(X), max(1, _BLOCK_ENTRIES // (members.shape[1] * X.shape[1])), "smoothing", on_progress):
        clouds = X[members[rows]]
        centers = clouds.mean(axis=1)
        axes = np.linalg.svd(clouds - centers[:, None], full_matrices=False)[2][:, :n_components]
        along = np.einsum("npd,nd->np", axes, X[rows] - centers)
        moved[rows] = centers + np.einsum("np,npd->nd", along, axes)
    return moved


@Method(
    spec=SmoothedLleSpec,
    title="Smoothed LLE",
    about="LLE of the points after each is moved onto the plane that fits it and its neighbors best.",
    source="after Yin, Hu and Zhou 2008 (neighbor smoothing); Zhang and Zha 2003",
    growth="as LLE, and k^2 d for each point",
)
def smoothed_lle(X: NDArray[np.float64], spec: SmoothedLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed the smoothed points by LLE."""
    points = smoothed(X, spec.n_neighbors, spec.n_components, on_progress)
    graph, bridges = spec.graph(points, on_progress)
    return note_bridges(lle_of(points, graph.nearest, spec, on_progress), bridges)
