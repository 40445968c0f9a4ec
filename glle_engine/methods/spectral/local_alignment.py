r"""Hessian LLE and local tangent space alignment: eigenvectors of a sum of penalties over patches.

A patch is a point and its k neighbors, m = k + 1 points, with orthonormal tangent coordinates from the singular value
decomposition of the centered points. Each method computes a projector :math:`P_i` (m, m), which annihilates the
constant, from the tangent coordinates. The embedding is the p bottom eigenvectors of :math:`M = \sum_i S_i^T P_i S_i`
other than the constant, with :math:`Y^T Y = n I`, where :math:`S_i` selects the points of the patch. The patch includes
the point itself, so that a point in no other neighborhood gets a position, too.

Hessian LLE: :math:`P_i` projects on the second derivatives, estimated by least squares. A quadratic has
1 + p + p(p + 1)/2 coefficients, so k > p(p + 3)/2 (Donoho and Grimes 2003). On a sheet that is isometric to an open
connected set, the null space is spanned by the constant and the coordinates. The estimate of scikit-learn also keeps
the residuals of the quadratic fit, which makes it LTSA.

LTSA: :math:`P_i = I - Q_i Q_i^T`, where :math:`Q_i` (m, p + 1) is an orthonormal basis of the constant and the tangent
coordinates. :math:`\sum_i |P_i Y_i|^2` is then the deviation of the embedding from affine functions of the tangent
coordinates (Zhang and Zha 2004).

If the neighbor graph falls into parts, the number of neighbors is raised until the graph is connected. A single edge
between two parts would not suffice: a patch that has only one point of the other part, far from its other points, has a
tangent coordinate that is about 1 at this point and 0 at the others, up to shift and scale. The penalty does not see
tangent coordinates, so that the other part could lie anywhere. Patches may still have only one such point after the
number of neighbors was raised; therefore a note says that the positions of the parts mean little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from glle_engine.base.progress import block_size, blocks
from glle_engine.base.texts import Note, Way
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.eigen.eigenproblem import scale_embedding
from glle_engine.methods.base import Embedding, Method, note_raised
from glle_engine.methods.parameters import RaisingSpec, of_neighborhoods
from glle_engine.methods.spectral.laplacian import bottom_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_MAX_PATCHES = 1024  # patches whose penalty matrices are computed at a time; fewer if the matrices are large
_MIN_EIGENVALUE_SHARE = 1e-13  # smaller eigenvalues, relative to the largest entry of M, count as 0
_MIN_SINGULAR_VALUE_SHARE = 1e-10  # a patch is flat if its p-th singular value is a smaller share of the first


class HessianLleSpec(RaisingSpec):
    """Parameters of Hessian LLE."""

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for too few neighbors to fit a quadratic function."""
        super().require_possible(n, d)
        self.require_rank(n, d)
        min_neighbors = self.n_components * (self.n_components + 3) // 2 + 1
        self.require_neighbors("Hessian LLE", min_neighbors, f"more than p(p + 3)/2 = {min_neighbors - 1}")


class LtsaSpec(RaisingSpec):
    """Parameters of local tangent space alignment."""

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for so few neighbors that every function on them is affine."""
        super().require_possible(n, d)
        self.require_rank(n, d)
        min_neighbors = self.n_components + 2
        self.require_neighbors("LTSA", min_neighbors, f"at least p + 2 = {min_neighbors}")


def squared_hessian(tangent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the projectors (b, m, m) on quadratic functions of tangent coordinates (b, m, p), for Hessian LLE.

    The projector of a patch measures the second derivatives of a function on the patch's m points. Its range is spanned
    by the products of two tangent coordinates, orthogonalized against the constant and the coordinates.
    """
    b, m, p = tangent.shape
    first, second = np.triu_indices(p)
    products = tangent[:, :, first] * tangent[:, :, second]
    Q = np.linalg.qr(np.concatenate([np.ones((b, m, 1)), tangent, products], axis=2))[0]
    quadratic = Q[:, :, p + 1 :]
    return np.asarray(quadratic @ quadratic.transpose(0, 2, 1))


def misalignment(tangent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the projectors (b, m, m) that annihilate affine functions of tangent coordinates (b, m, p), for LTSA."""
    m = tangent.shape[1]
    return np.asarray(np.eye(m) - 1 / m - tangent @ tangent.transpose(0, 2, 1))


def align_patches(
    X: NDArray[np.float64],
    spec: RaisingSpec,
    penalty: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    on_progress: OnProgress,
) -> Embedding:
    """Embed X (n, d) by Hessian LLE or LTSA: the bottom eigenvectors of the sum of the penalties of all patches.

    A patch is a point and its k nearest neighbors, m = k + 1 points. k is raised if the graph would otherwise fall into
    parts, unless `spec.disconnected` is "error".

    Parameters
    ----------
    X : (n, d) float64
    spec : RaisingSpec
    penalty : callable
        `squared_hessian` or `misalignment`: takes the tangent coordinates (b, m, p) of b patches, with orthonormal
        columns of sum zero, and returns projectors (b, m, m).
    on_progress : callable

    Raises
    ------
    DisconnectedGraphError
        If the graph falls into parts, and k may not be raised or no larger k connects them within some seconds.
    ConvergenceError
        If the eigensolver fails.

    """
    nearest = spec.neighbors(X, on_progress)
    n, p = len(X), spec.n_components
    flat = 0

    def projectors(members: NDArray[np.int32]) -> NDArray[np.float64]:
        nonlocal flat
        points = X[members]
        left, singular, _ = np.linalg.svd(points - points.mean(axis=1, keepdims=True), full_matrices=False)
        flat += int(np.sum(singular[:, p - 1] <= _MIN_SINGULAR_VALUE_SHARE * singular[:, 0]))
        # The last singular vectors of a patch of fewer than p dimensions are arbitrary and may contain the constant.
        tangent = np.linalg.qr(np.concatenate([np.ones((*members.shape, 1)), left[:, :, :p]], axis=2))[0][:, :, 1:]
        return penalty(tangent)

    embedding = embedding_of_patches(nearest, p, projectors, on_progress)
    embedding = embedding.extended({"flat_patches": flat}, _notes(p, n - len(np.unique(nearest)), flat))
    return note_raised(embedding, spec.n_neighbors, nearest.shape[1])


def embedding_of_patches(
    nearest: NDArray[np.int32],
    p: int,
    penalties: Callable[[NDArray[np.int32]], NDArray[np.float64]],
    on_progress: OnProgress,
) -> Embedding:
    """Embed n points by the p bottom eigenvectors of the sum of the penalties of all patches.

    Parameters
    ----------
    nearest : (n, k) int32
        The neighbors of each point; the graph is connected.
    p : int
        Dimension of the embedding.
    penalties : callable
        Takes the members (b, m) of b patches, each a point and its k neighbors, and returns symmetric positive
        semidefinite matrices (b, m, m), whose rows sum to zero.
    on_progress : callable

    """
    n = len(nearest)
    patches = np.concatenate([np.arange(n, dtype=np.int32)[:, None], nearest], axis=1)
    M = csr_array((n, n))
    size = min(_MAX_PATCHES, block_size(patches.shape[1] ** 2))
    for rows in blocks(n, size, "patches", on_progress):
        members = patches[rows]
        matrices = penalties(members)
        row = np.broadcast_to(members[:, :, None], matrices.shape)
        column = np.broadcast_to(members[:, None, :], matrices.shape)
        M = M + csr_array((matrices.ravel(), (row.ravel(), column.ravel())), shape=(n, n))
    M = csr_array((M + M.T) / 2)
    on_progress(0, 1, "embedding")
    values, vectors, solver = bottom_pairs(M, np.ones(n), p + 1)
    figures = {"solver": solver, "relative_gap": relative_gap(values, p)}
    notes: tuple[Note, ...] = ()
    if values[p] <= _MIN_EIGENVALUE_SHARE * abs(M).max():
        message = (
            f"More than {p} coordinates satisfy the local conditions to rounding, so the choice of {p} is "
            f"arbitrary. Raise {Way('n_neighbors')} if patches share too few points; raise {Way('n_components')} "
            "if the data are flat and have more dimensions."
        )
        notes = (Note("null-space", message),)
    return Embedding(scale_embedding(vectors[:, :p]), np.maximum(values[:p], 0.0), figures, notes)


def _notes(p: int, lonely: int, flat: int) -> Iterator[Note]:
    """Yield a note if some points are in no other point's patch, and a note if some patches have under p dimensions.

    `lonely` and `flat` are the numbers of such points and of such patches.
    """
    if lonely:
        yield Note(
            "lonely-points",
            f"{lonely} points are among the neighbors of no other point: only their own patches determine where they "
            "are. scikit-learn leaves a point out of its own patch, so that its embedding only separates these points.",
        )
    if flat:
        yield Note(
            "flat-patches",
            f"The neighborhoods of {flat} points have fewer than {p} dimensions, so their tangent spaces contain "
            "an arbitrary direction. Give more neighbors or fewer components, or remove duplicates.",
        )


@Method(
    spec=HessianLleSpec,
    title="Hessian LLE",
    about="Coordinates whose second derivatives along the manifold vanish, estimated on k > p(p + 3)/2 neighbors.",
    source="Donoho and Grimes 2003, PNAS 100",
    doubles=of_neighborhoods(3),
    growth="n^1.3 for few features; up to n^3 for many",
)
def hessian_lle(X: NDArray[np.float64], spec: HessianLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by functions with small second derivatives on the patches."""
    return align_patches(X, spec, squared_hessian, on_progress)


@Method(
    spec=LtsaSpec,
    title="Local tangent space alignment",
    about="The coordinates that are nearest to affine functions of the tangent coordinates of every neighborhood.",
    source="Zhang and Zha 2004, SIAM Journal on Scientific Computing 26",
    doubles=of_neighborhoods(3),
    growth="n^1.3 for few features; up to n^3 for many",
)
def ltsa(X: NDArray[np.float64], spec: LtsaSpec, on_progress: OnProgress) -> Embedding:
    """Embed by functions that are nearly affine on the tangent spaces of the patches."""
    return align_patches(X, spec, misalignment, on_progress)
