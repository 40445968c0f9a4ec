"""Orthogonal Procrustes alignment of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.linalg import dense
from glle_engine.linalg import tall_kernels as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _rotation(
    Y: NDArray[np.float64], reference: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, tuple[float, float]]:
    """Return U V^T and tr S of Y^T Y_0 = U S V^T, and both squared norms."""
    turn = np.empty((Y.shape[1], Y.shape[1]))
    overlap, *squares = kernels.rotation(dense.readable(Y), dense.readable(reference), turn)
    if not np.isfinite(overlap):
        raise np.linalg.LinAlgError("A product of two embeddings is not finite.")
    return turn, overlap, (squares[0], squares[1])


def procrustes_rotation(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the orthogonal R (p, p) that minimises :math:`\|Y R - Y_0\|_F` for embeddings (n, p).

    R = U V^T for the singular value decomposition :math:`Y^T Y_0 = U S V^T` (Schoenemann 1966). Reflections are
    allowed, because an eigenvector has no sign.

    Raises
    ------
    numpy.linalg.LinAlgError
        If an entry is not finite.

    """
    return _rotation(Y, reference)[0]


def disparity(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    r"""Return the Procrustes disparity of two embeddings (n, p), in [0, 1]; symmetric.

    :math:`1 - (\sum_i s_i)^2`, s the singular values of :math:`Y^T Y_0` after centering and scaling to unit Frobenius
    norm: the squared distance left after translation, scaling, rotation and reflection. Not all points may be equal.
    """
    _, overlap, (a, b) = _rotation(Y - Y.mean(axis=0), reference - reference.mean(axis=0))
    share = overlap / (np.sqrt(a) * np.sqrt(b))
    return float(max(0.0, 1 - share * share))


def aligned_to(
    Y: NDArray[np.float64], reference: NDArray[np.float64], *, centred: bool
) -> tuple[NDArray[np.float64], float]:
    """Return Y rotated to the reference by `procrustes_rotation`, and their `disparity`.

    If the columns of both sum to zero (`centred`), one decomposition serves both.
    """
    turn, overlap, (a, b) = _rotation(Y, reference)
    apart = max(0.0, 1 - overlap * overlap / (a * b)) if centred else disparity(Y, reference)
    return turned(Y, turn), apart


def turned(Y: NDArray[np.float64], turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Y R of an embedding (n, p) and a rotation (p, p)."""
    out = np.empty((len(Y), turn.shape[1]))
    kernels.turned(dense.readable(Y), turn, out)
    return out
