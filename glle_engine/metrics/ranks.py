"""Score how faithful an embedding is: trustworthiness, continuity, affine R^2 to the truth, residual variance.

The residual variance is the share of the variance of distances that an embedding leaves unexplained, :math:`1 -
R^2(D_G, D_Y)`. R is the correlation, over pairs of points, between the lengths of the shortest paths along the neighbor
graph of the data and the Euclidean distances in the embedding (Tenenbaum, de Silva, Langford 2000, Science 290, figure
2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import dijkstra

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.texts import Way
from glle_engine.base.validation import require_same_length
from glle_engine.graph.connectivity import directed_graph, require_connected
from glle_engine.graph.neighbors import MAX_TREE_FEATURES, kneighbors
from glle_engine.graph.relations import Distances
from glle_engine.linalg.distances import counts_nearer, distances, nearest_rows, power_of_two, unit_of
from glle_engine.linalg.procrustes import disparity

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

__all__ = ["continuity", "disparity", "local_trustworthiness", "trustworthiness"]

_TREE_BLOCK_POINTS = 4096
_TIE_TOLERANCE = 1e-12  # distances with a smaller relative difference count as equal
_BRUTE_BLOCK_ENTRIES = 1 << 23
# Up to this n, computing all distances is faster than a tree (2.6 ms, not 9.5, for 1,000 points).
_MAX_POINTS_WITHOUT_TREE = 4_000
MAX_POINTS_OF_ALL_PAIRS = 2000  # up to this n (3 s), scores of pairs use all pairs; beyond, a sample of pairs
LANDMARKS = 400  # for larger n, the residual variance is over the pairs that include one of this many sampled points
_SEED = 0


def affine_r_squared(Y: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    r"""Return the share of the truth's variance that an affine map of the embedding explains, in [0, 1]; 1 is best.

    .. math:: R^2 = 1 - \min_{A, b} \|T - Y A - 1 b^T\|^2 / \|T - 1 \bar t^T\|^2

    The result does not change if Y is transformed by an invertible affine map. The scale of an embedding, which many
    methods fix, therefore does not matter.

    Parameters
    ----------
    Y : (n, p) float64
    truth : (n, q) float64
        Not all rows equal.

    """
    a, b = Y - Y.mean(axis=0), truth - truth.mean(axis=0)
    size = np.linalg.norm(a, axis=0)
    a = a / np.where(size > 0, size, 1.0)  # lstsq would ignore columns that are tiny relative to the largest one
    rest = b - a @ np.linalg.lstsq(a, b, rcond=None)[0]
    return max(0.0, 1 - float(np.linalg.norm(rest) / np.linalg.norm(b)) ** 2)


def trustworthiness(
    X: Data,
    Y: Data,
    n_neighbors: int = 10,
    points: NDArray[np.intp] | None = None,
) -> float:
    r"""Return how far the neighbors in an embedding are near in the data, in [0, 1]; 1 is best.

    .. math:: T = 1 - \frac{2}{m k (2n - 3k - 1)} \sum_i \sum_{j \in U_k(i)} \max(0, r(i, j) - k)

    T is the mean over m points i, with U_k(i) the k nearest neighbors of i in Y and r(i, j) the rank of j among the
    neighbors of i in X (Venna and Kaski 2001). Points at equal distances in X all get the smallest of their ranks, so
    that the order of the rows does not matter. scikit-learn ranks such points in the order of the rows, so that its
    value may be lower. Memory grows as n, not as n^2, because distances are computed in blocks.

    Parameters
    ----------
    X : (n, d) float64, or Distances
    Y : (n, p) float64
    n_neighbors : int
        k < n / 2.
    points : (m,) int, optional
        Row numbers of the points over which the score averages; their neighbors and ranks are still among all n points.

    Raises
    ------
    InvalidParameterError
        If k is not below n / 2.
    InvalidShapeError
        If X and Y differ in length.

    """
    return float(local_trustworthiness(X, Y, n_neighbors, points).mean())


def local_trustworthiness(
    X: Data,
    Y: Data,
    n_neighbors: int = 10,
    points: NDArray[np.intp] | None = None,
) -> NDArray[np.float64]:
    """Return the trustworthiness (m,) of each point: how far its neighbors in Y are near in X; 1 is best.

    Parameters and errors as for `trustworthiness`, which is the mean of these values. A single point may have a
    negative value; the mean is at least 0.
    """
    n = len(X)
    require_same_length(X, Y)
    k = check_integer("n_neighbors", n_neighbors, 1)
    if k >= n / 2:
        raise InvalidParameterError(
            f"{Way('n_neighbors', k)} is not below half of the {n} points.",
            remedy=f"Give {Way('n_neighbors')} of at most {(n - 1) // 2}.",
        )
    rows = np.arange(n) if points is None else np.asarray(points)
    excess = _excess_ranks(X, _neighbors_of(Y, k, rows), rows, k)
    return np.asarray(1 - 2 * excess / (k * (2 * n - 3 * k - 1)))


def continuity(
    X: Data,
    Y: Data,
    n_neighbors: int = 10,
    points: NDArray[np.intp] | None = None,
) -> float:
    """Return the continuity (Venna and Kaski 2001), in [0, 1]: the trustworthiness with X and Y exchanged; 1 is best.

    Parameters and errors as for `trustworthiness`.
    """
    return trustworthiness(Y, X, n_neighbors, points)


def _neighbors_of(Y: Data, k: int, rows: NDArray[np.intp]) -> NDArray[np.int32]:
    if isinstance(Y, Distances):
        return kneighbors(Y, k)[0][rows]
    Y = np.ascontiguousarray(Y, np.float64)
    return nearest_rows(Y, Y[rows], rows, k)[0]


def _excess_ranks(X: Data, neighbors: NDArray[np.int32], rows: NDArray[np.intp], k: int) -> NDArray[np.float64]:
    """Return the sums (m,) of max(0, r(i, j) - k) over the neighbors j in the embedding of each point i in `rows`.

    `neighbors` (m, k) are the neighbors in the embedding. r(i, j) is the rank of j in X, one more than the number of
    points that are nearer to i than j is. Distances with a relative difference below 1e-12 count as equal, so that
    rounding does not decide about ranks.
    """
    if isinstance(X, Distances):
        return X.ranks_beyond(rows, neighbors, k, _TIE_TOLERANCE)
    X = np.ascontiguousarray(X, np.float64)
    unit = unit_of(X)
    X = X if unit == 1.0 else X / unit
    has_tree = X.shape[1] <= MAX_TREE_FEATURES and len(X) > _MAX_POINTS_WITHOUT_TREE
    count = _counted_by_tree if has_tree else _counted_by_products
    return count(X, neighbors, rows, k)


def _counted_by_tree(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], rows: NDArray[np.intp], k: int
) -> NDArray[np.float64]:
    from scipy.spatial import cKDTree  # noqa: PLC0415 # slow, and not needed by API processes

    tree = cKDTree(X)
    excess = np.zeros(len(rows))
    for block in blocks(len(rows), _TREE_BLOCK_POINTS, "ranks"):
        center, near = X[rows[block]], neighbors[block]
        closer = np.nextafter(distances(center, X, near) * (1 - _TIE_TOLERANCE), 0.0)
        # A neighbor that is no farther away than the k-th nearest point has at most rank k, so it adds nothing.
        kth = tree.query(center, k + 1)[0][:, -1]
        far = closer > kth[:, None]
        item = np.nonzero(far)[0]
        rank = tree.query_ball_point(center[item], closer[far], return_length=True)
        excess[block] = np.bincount(item, np.maximum(rank - k, 0), minlength=len(near))
    return excess


def _counted_by_products(
    X: NDArray[np.float64], neighbors: NDArray[np.int32], rows: NDArray[np.intp], k: int
) -> NDArray[np.float64]:
    excess = np.zeros(len(rows))
    for block in blocks(len(rows), max(1, _BRUTE_BLOCK_ENTRIES // len(X)), "ranks"):
        center = X[rows[block]]
        closer = np.sort(distances(center, X, neighbors[block]) * (1 - _TIE_TOLERANCE), axis=1)
        rank = 1 + counts_nearer(X, center, rows[block], closer)
        excess[block] = np.maximum(rank - k, 0).sum(axis=1)
    return excess


def fixed_sample(n: int, size: int) -> NDArray[np.intp]:
    """Return the row numbers of the points over which a score averages: of all n points, or of `size` if n > 2,000.

    The sample is random, but depends only on n and `size`.
    """
    if n <= MAX_POINTS_OF_ALL_PAIRS:
        return np.arange(n)
    return np.sort(np.random.default_rng(_SEED).choice(n, size, replace=False))


def residual_variance(
    X: NDArray[np.float64], Y: NDArray[np.float64], score_neighbors: int = 10, on_progress: OnProgress = silent
) -> float:
    """Return 1 - R^2 of geodesic distances in the data and Euclidean distances in the embedding, in [0, 1]; 0 is best.

    Geodesic distances are lengths of shortest paths along the neighbor graph. R^2 is over all pairs of up to 2,000
    points. For more points, it is over the pairs that include one of 400 landmarks, a fixed random sample.

    Parameters
    ----------
    X : (n, d) float64
        The data.
    Y : (n, p) float64
        The embedding.
    score_neighbors : int
        k < n of the neighbor graph. Its edges are undirected.
    on_progress
        Called with (landmarks done, all, "geodesics").

    Raises
    ------
    InvalidShapeError
        If X and Y differ in length.
    DisconnectedGraphError
        If the neighbor graph is not connected; the error names the smallest k that connects the graph.
    DegenerateDataError
        If all distances are equal, in the graph or in the embedding.

    """
    n = len(X)
    require_same_length(X, Y)
    k = score_neighbors
    nearest, lengths = kneighbors(X, k, on_progress)
    require_connected(X, nearest, option="score_neighbors", instead="Or omit residual_variance from the scores.")
    graph = directed_graph(nearest, lengths)
    landmarks = fixed_sample(n, LANDMARKS)

    def along(block: slice) -> NDArray[np.float64]:
        return np.asarray(dijkstra(graph, directed=False, indices=landmarks[block]))

    return unexplained_variance(along, landmarks, Y, on_progress)


def unexplained_variance(
    distances: Callable[[slice], NDArray[np.float64]],
    points: NDArray[np.intp],
    Y: NDArray[np.float64],
    on_progress: OnProgress = silent,
) -> float:
    """Return :math:`1 - r^2` in [0, 1], with the correlation r of distances in the data and in an embedding.

    The function `distances` supplies the distances in the data. The correlation is over the pairs of one of `points`
    with any other point. The score `residual_variance` and Isomap both compute their residual variance by this
    function. The units of the distances do not change the result.

    Parameters
    ----------
    distances : callable
        Takes a slice of `points`, and returns their distances in the data to all points, (b, n).
    points : (m,) int
        Row numbers of the points from which distances are measured.
    Y : (n, p) float64
        The embedding.
    on_progress
        Called with (points done, m, "geodesics").

    Raises
    ------
    DegenerateDataError
        If all distances are equal, in the data or in the embedding.

    """
    n = len(Y)
    unit = 0.0
    places = Y / power_of_two(float(np.ptp(Y, axis=0).max()))
    moments = np.zeros(6)
    for block in blocks(len(points), block_size(n), "geodesics", on_progress):
        along = distances(block)
        unit = unit or power_of_two(float(along.max()))
        centers = places[points[block]]
        straight = np.sqrt(sum((centers[:, j, None] - places[:, j]) ** 2 for j in range(places.shape[1])))
        others = np.arange(n) != points[block, None]
        a, b = along[others] / unit, straight[others]
        moments += [a.size, a.sum(), b.sum(), (a * a).sum(), (b * b).sum(), (a * b).sum()]
    mean = moments / moments[0]
    spread = np.array([mean[3] - mean[1] ** 2, mean[4] - mean[2] ** 2])
    is_constant = spread <= 1e-14 * mean[3:5]
    if is_constant.any():
        noun = ("in the data", "in the embedding")[is_constant.argmax()]
        raise DegenerateDataError(
            f"All distances {noun} are equal, so that they have no correlation with other distances.",
            remedy="Give more points, and an embedding whose points differ.",
        )
    return float(np.clip(1 - (mean[5] - mean[1] * mean[2]) ** 2 / spread.prod(), 0.0, 1.0))
