"""Align embeddings of the same points by rotations (Procrustes), and compute mean and covariance of each point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense_kernels import singular_systems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_ROUNDS = 100  # generalized Procrustes analysis ends after this many rounds at most
CONSENSUS_TOLERANCE = 1e-10  # it ends earlier if a round changes the mean embedding by less, relative to its norm
MEDOID_CANDIDATES = 32  # the medoid is chosen among at most this many embeddings, so that 496 pairs are compared


def _rotation(
    Y: NDArray[np.float64], reference: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, tuple[float, float]]:
    """Return the rotation U V^T (p, p) of an embedding Y (n, p) to a reference Y_0, tr S, and (||Y||^2, ||Y_0||^2).

    U S V^T is the singular value decomposition of Y^T Y_0.

    Raises
    ------
    InvalidShapeError
        For embeddings of different shapes, or without columns.
    numpy.linalg.LinAlgError
        If an entry of Y^T Y_0 is not finite.

    """
    if Y.shape != reference.shape or Y.ndim != 2 or not Y.shape[1]:  # else compiled code reads beyond its arrays
        raise InvalidShapeError(
            f"Two embeddings cannot be aligned, because they have the shapes {Y.shape} and {reference.shape}.",
            remedy="Give two embeddings of the same points, with equal numbers of coordinates.",
        )
    turn = np.empty((Y.shape[1], Y.shape[1]))
    overlap, *squares = _decompose(dense.readable(Y), dense.readable(reference), turn)
    if not np.isfinite(overlap):
        raise np.linalg.LinAlgError("A product of two embeddings is not finite.")
    return turn, overlap, (squares[0], squares[1])


def procrustes_rotation(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the orthogonal R (p, p) that minimizes :math:`\|Y R - Y_0\|_F` for an embedding Y and a reference Y_0.

    R = U V^T for the singular value decomposition :math:`Y^T Y_0 = U S V^T` (Schoenemann 1966). Reflections are
    allowed, because an eigenvector has no sign.

    Raises
    ------
    InvalidShapeError
        For embeddings of different shapes.
    numpy.linalg.LinAlgError
        If an entry is not finite.

    """
    return _rotation(Y, reference)[0]


def disparity(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    r"""Return the Procrustes disparity of two embeddings (n, p), from 0 (same shape) to 1; symmetric.

    The disparity is :math:`1 - (\sum_i s_i)^2`, where s are the singular values of :math:`Y^T Y_0` after both
    embeddings have been centered and scaled to unit Frobenius norm. This is the squared distance that is left after
    translation, scaling, rotation and reflection. It is 1 if all points of one embedding are equal.

    Raises
    ------
    InvalidShapeError
        For embeddings of different shapes.

    """
    _, overlap, (a, b) = _rotation(Y - Y.mean(axis=0), reference - reference.mean(axis=0))
    if not (a and b):
        return 1.0
    share = overlap / (np.sqrt(a) * np.sqrt(b))
    return float(max(0.0, 1 - share * share))


def aligned_to(
    Y: NDArray[np.float64], reference: NDArray[np.float64], *, centered: bool
) -> tuple[NDArray[np.float64], float]:
    """Return the embedding Y (n, p) rotated to the reference (`procrustes_rotation`), and their `disparity`.

    `centered` states that the columns of both embeddings sum to zero, so that one singular value decomposition gives
    both results.
    """
    turn, overlap, (a, b) = _rotation(Y, reference)
    apart = max(0.0, 1 - overlap * overlap / (a * b)) if centered else disparity(Y, reference)
    return rotate(Y, turn), apart


def rotate(Y: NDArray[np.float64], turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rotated embedding Y R (n, p), for an embedding Y (n, p) and a rotation R = `turn` (p, p)."""
    out = np.empty((len(Y), turn.shape[1]))
    _multiply(dense.readable(Y), turn, out)
    return out


def generalized_procrustes(
    embeddings: NDArray[np.float64],
    reference: NDArray[np.float64],
    on_progress: OnProgress = silent,
) -> NDArray[np.float64]:
    r"""Rotate embeddings (m, n, p) to their common mean, and the mean to the `reference` (n, p); return the embeddings.

    Generalized Procrustes analysis (Gower 1975) minimizes :math:`\sum_j \|Y_j R_j - \bar Y\|_F^2` over orthogonal R_j
    by alternating between the mean and the rotations. Every round lowers the sum. Which local minimum is found depends
    on the first mean, for which the medoid of the embeddings is taken. `on_progress` is called with (round, largest
    number of rounds, "consensus").

    Raises
    ------
    InvalidParameterError
        For fewer than two embeddings.
    InvalidShapeError
        If the shape of the reference is not the shape (n, p) of an embedding.

    """
    if len(embeddings) < 2:
        raise InvalidParameterError(
            f"The spread of {len(embeddings)} draw(s) is not defined.",
            remedy="Give at least two draws; with a hundred draws, the spread ranks the points well.",
        )
    aligned = np.array(embeddings)
    consensus: NDArray[np.float64] = aligned[medoid(aligned)].copy()
    for round_ in range(MAX_ROUNDS):
        on_progress(round_, MAX_ROUNDS, "consensus")
        for j, embedding in enumerate(aligned):
            aligned[j] = rotate(embedding, procrustes_rotation(embedding, consensus))
        before, consensus = consensus, aligned.mean(axis=0)
        if dense.norm(consensus - before) <= CONSENSUS_TOLERANCE * dense.norm(consensus):
            break
    turn = procrustes_rotation(consensus, reference)
    for j, embedding in enumerate(aligned):
        aligned[j] = rotate(embedding, turn)
    return aligned


def medoid(embeddings: NDArray[np.float64]) -> int:
    """Return the index of the embedding with the smallest sum of squared distances to the other embeddings.

    The two embeddings of a pair are rotated to each other before their distance is measured. Of more than 32
    `embeddings` (m, n, p), only 32 evenly spaced ones are compared.
    """
    rows = np.unique(np.linspace(0, len(embeddings) - 1, min(len(embeddings), MEDOID_CANDIDATES)).astype(int))
    apart = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        for j in range(i):
            _, overlap, (a, b) = _rotation(embeddings[row], embeddings[rows[j]])
            apart[i, j] = apart[j, i] = a + b - 2 * overlap
    return int(rows[np.argmin(apart.sum(axis=1))])


def moments(
    places: Sequence[NDArray[np.float64]] | NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (n, p) and covariance (n, p, p) of each point's position over two or more embeddings (n, p).

    `places` are the embeddings. The result for a point does not depend on the other points.
    """
    n, p = places[0].shape
    mean = np.zeros((n, p))
    for place in places:
        mean += place
    mean /= len(places)
    scatter = np.zeros((n, p, p))
    for place in places:
        off = place - mean
        scatter += off[:, :, None] * off[:, None, :]
    return mean, scatter / (len(places) - 1)


def root_trace(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root of the trace (n,) of covariances (n, p, p): the root-mean-square distance from the mean."""
    return np.asarray(np.sqrt(np.trace(covariance, axis1=1, axis2=2)))


@compiled
def _decompose(
    Y: NDArray[np.float64], reference: NDArray[np.float64], turn: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Write the rotation U V^T to `turn` (p, p), where U S V^T is the singular value decomposition of Y^T `reference`.

    Returns tr S and the squared norms of Y (n, p) and of the reference (n, p); tr S is NaN if a product is not finite.
    """
    n, p = Y.shape
    cross = np.zeros((1, p, p))
    square, reference_square = 0.0, 0.0
    if p == 2:  # the usual case, with the sums in registers
        square, reference_square = _planar_products(Y, reference, cross[0])
    else:
        for i in range(n):
            for a in range(p):
                y = Y[i, a]
                square += y * y
                reference_square += reference[i, a] * reference[i, a]
                for b in range(p):
                    cross[0, a, b] += y * reference[i, b]
    left, values, right = np.empty((1, p, p)), np.empty((1, p)), np.empty((1, p, p))
    if singular_systems(cross, left, values, right) >= 0:
        return np.nan, square, reference_square
    total = 0.0
    for a in range(p):
        total += values[0, a]
        for b in range(p):
            entry = 0.0
            for j in range(p):
                entry += left[0, a, j] * right[0, b, j]
            turn[a, b] = entry
    return total, square, reference_square


@compiled
def _planar_products(
    Y: NDArray[np.float64], reference: NDArray[np.float64], cross: NDArray[np.float64]
) -> tuple[float, float]:
    """Write Y^T `reference` of two embeddings (n, 2) to `cross` (2, 2), and return the squared norms of both."""
    xx, xy, yx, yy = 0.0, 0.0, 0.0, 0.0
    own_x, own_y, other_x, other_y = 0.0, 0.0, 0.0, 0.0
    for i in range(len(Y)):
        x, y, u, v = Y[i, 0], Y[i, 1], reference[i, 0], reference[i, 1]
        xx += x * u
        xy += x * v
        yx += y * u
        yy += y * v
        own_x += x * x
        own_y += y * y
        other_x += u * u
        other_y += v * v
    cross[0, 0], cross[0, 1], cross[1, 0], cross[1, 1] = xx, xy, yx, yy
    return own_x + own_y, other_x + other_y


@compiled
def _multiply(Y: NDArray[np.float64], turn: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the product Y R (n, q) of Y (n, p) and R = `turn` (p, q) to `out`."""
    n, p = Y.shape
    if p == 2 and turn.shape[1] == 2:
        a, b, c, d = turn[0, 0], turn[0, 1], turn[1, 0], turn[1, 1]
        for i in range(n):
            x, y = Y[i, 0], Y[i, 1]
            out[i, 0] = x * a + y * c
            out[i, 1] = x * b + y * d
        return
    for i in range(n):
        for b in range(turn.shape[1]):
            entry = 0.0
            for a in range(p):
                entry += Y[i, a] * turn[a, b]
            out[i, b] = entry
