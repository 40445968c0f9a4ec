r"""Alignment of patches: what Hessian LLE and LTSA share.

A patch is a point and its k neighbours, with tangent coordinates from a singular value decomposition of its centred
coordinates. A method takes from them orthonormal rows :math:`C_i` (m, k + 1), annihilating the constant, and
:math:`M = \sum_i S_i^T C_i^T C_i S_i` with :math:`S_i` the selection of the patch; the embedding is the p bottom
eigenvectors of M other than the constant, :math:`Y^T Y = n I`. The point belongs to its own patch, so that one which is
nobody's neighbour has a place, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import blocks
from glle_engine.base.validation import require_enough_points
from glle_engine.eigen.eigenproblem import scaled
from glle_engine.graph.connectivity import connected_neighbors
from glle_engine.methods.base import Cost, Embedding
from glle_engine.methods.refusals import require_rank
from glle_engine.methods.spectral.laplacian import bottom_cost, bottom_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.neighborhood import NeighborSpec

_BLOCK = 1024
_VANISHING = 1e-13  # of an eigenvalue, relative to the largest entry of M
_FLAT = 1e-10  # of the p-th singular value of a patch, relative to the first


def aligned(
    X: NDArray[np.float64],
    spec: NeighborSpec,
    complement: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    on_progress: OnProgress,
) -> Embedding:
    """Embed by patches.

    Parameters
    ----------
    X : (n, d) float64
    spec
        Of the method; n_neighbors and n_components are read.
    complement : callable
        Orthonormal tangent coordinates (b, k + 1, p) of some patches to the projectors (b, k + 1, k + 1) on what may
        not be in the embedding.
    on_progress : callable

    Raises
    ------
    DisconnectedGraphError, ConvergenceError

    """
    nearest, _ = connected_neighbors(X, spec.n_neighbors, on_progress)
    n, p = len(X), spec.n_components
    patch = np.concatenate([np.arange(n, dtype=np.int32)[:, None], nearest], axis=1)
    M = csr_array((n, n))
    flat = 0
    for rows in blocks(n, _BLOCK, "patches", on_progress):
        own = patch[rows]
        among = X[own]
        left, singular, _ = np.linalg.svd(among - among.mean(axis=1, keepdims=True), full_matrices=False)
        flat += int(np.sum(singular[:, p - 1] <= _FLAT * singular[:, 0]))
        # Of a patch with fewer than p dimensions the last vectors are any: the constant may be in them.
        tangent = np.linalg.qr(np.concatenate([np.ones((*own.shape, 1)), left[:, :, :p]], axis=2))[0][:, :, 1:]
        projector = complement(tangent)
        row = np.broadcast_to(own[:, :, None], projector.shape)
        column = np.broadcast_to(own[:, None, :], projector.shape)
        M = M + csr_array((projector.ravel(), (row.ravel(), column.ravel())), shape=(n, n))
    M = csr_array((M + M.T) / 2)
    on_progress(0, 1, "embedding")
    values, vectors, solver = bottom_pairs(M, np.ones(n), p + 1)
    on_progress(1, 1, "embedding")
    gap = float((values[p] - values[p - 1]) / values[p]) if values[p] > 0 else 0.0
    figures = {"solver": solver, "relative_gap": gap, "flat_patches": flat}
    return Embedding(
        scaled(vectors[:, :p]), np.maximum(values[:p], 0.0), figures, _notes(values, abs(M).max(), p, flat)
    )


def _notes(values: NDArray[np.float64], size: float, p: int, flat: int) -> tuple[Note, ...]:
    """Return the notes of a null space with more than the constant and p coordinates, and of patches without p."""
    notes = []
    if values[p] <= _VANISHING * size:
        notes.append(
            Note(
                "null-space",
                f"More than {p} coordinates satisfy the local conditions to rounding: which {p} are shown is "
                "arbitrary. Patches may hang together by too few points, which more neighbours mend; or the data have "
                "more dimensions than were asked for, and are flat.",
            )
        )
    if flat:
        notes.append(
            Note(
                "flat-patches",
                f"The neighbourhoods of {flat} points have fewer than {p} dimensions, and their tangent spaces an "
                "arbitrary direction. Give more neighbours or fewer components, or remove duplicates.",
            )
        )
    return tuple(notes)


def refuse(n: int, d: int, spec: NeighborSpec) -> None:
    """Refuse too few points, and more components than the data have dimensions."""
    require_enough_points(n, spec)
    require_rank(n, d, spec.n_components)


def cost(n: int, d: int, spec: NeighborSpec) -> Cost:
    """Return the cost of neighbours, small decompositions, and one sparse factorisation with some twenty solves."""
    m = spec.n_neighbors + 1
    search = 1e-6 * n * m if d <= 15 else 2e-10 * n * n * d
    local = n * (5e-6 + 2e-8 * m * min(m, d) ** 2 + 1e-7 * m * m)
    bottom = bottom_cost(n, d, 3 * m, spec.n_components + 1)
    return Cost(seconds=0.01 + search + local + bottom.seconds, bytes=8.0 * min(n, 1024) * 8 * m * m + bottom.bytes)
