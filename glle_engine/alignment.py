"""Orthogonal Procrustes: embeddings have no orientation of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def procrustes_rotation(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the orthogonal R (p, p) that minimises :math:`\|Y R - Y_0\|_F`.

    R = U V^T for the singular value decomposition :math:`Y^T Y_0 = U S V^T` (Schoenemann 1966); reflections are
    allowed, since an eigenvector has no sign.

    Parameters
    ----------
    Y, reference : (n, p) float64

    """
    u, _, vt = np.linalg.svd(Y.T @ reference)
    return np.asarray(u @ vt)


def disparity(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    r"""Return the Procrustes disparity of two embeddings, in [0, 1]; symmetric.

    :math:`1 - (\sum_i s_i)^2`, s the singular values of :math:`Y^T Y_0` after both were centred and scaled to
    unit Frobenius norm: the squared distance left after translation, scaling, rotation and reflection.

    Parameters
    ----------
    Y, reference : (n, p) float64
        Neither with all points equal.

    """
    a, b = Y - Y.mean(axis=0), reference - reference.mean(axis=0)
    overlap = np.linalg.svd(a.T @ b, compute_uv=False).sum()
    return float(max(0.0, 1 - (overlap / (np.linalg.norm(a) * np.linalg.norm(b))) ** 2))


def aligned_to(
    Y: NDArray[np.float64], reference: NDArray[np.float64], *, centred: bool
) -> tuple[NDArray[np.float64], float]:
    """Return Y turned to the reference by `procrustes_rotation`, and their `disparity`.

    Parameters
    ----------
    Y, reference : (n, p) float64
    centred : bool
        Whether the columns of both sum to zero: one decomposition then serves both.

    """
    u, s, vt = np.linalg.svd(Y.T @ reference)
    if centred:
        norms = np.vdot(Y, Y) * np.vdot(reference, reference)
        apart = float(max(0.0, 1 - s.sum() ** 2 / norms))
    else:
        apart = disparity(Y, reference)
    return Y @ (u @ vt), apart
