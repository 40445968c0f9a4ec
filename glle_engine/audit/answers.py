r"""Four answers about an embedding, from the embeddings of pairs of separate halves of the data.

The answers need the islands of the embedding (`glle_engine.audit.islands`). For halves :math:`A` and :math:`B` of the
data they are:

- *islands*: the share of halves in whose embeddings an island is isolated. If an island is isolated in the embeddings
  of halves, but not in the data, the method has cut the data there.
- *arrangement*, of three islands or more: :math:`R^2` of the islands' centers in the embeddings of A and B.
- *neighborhoods*: the share of a point's k neighbors in the embedding of A that are also its neighbors in the embedding
  of B.
- *shape*: :math:`R^2` of the points of one island in the embeddings of A and B, where each island is rotated by itself.

All but the first are corrected for chance: :math:`(R^2 - c) / (1 - c)`. For arrangement and shape, :math:`c` is the
mean :math:`R^2` over permuted centers or points. For neighborhoods, :math:`c = k / (m - 1)` is the share that random
points of an island of m points would reach, and the share of neighbors takes the role of :math:`R^2`.

Two scores say where the embedding itself is wrong. *Stretch* is the distance in the embedding from a point to the
points that are its neighbors in the embeddings of halves, weighted by their probability. *Squeeze* is the distance in
the embeddings of halves from a point to its neighbors in the embedding. Each is divided by the typical distance between
neighbors in the same embedding, so that 1 is usual. If the audit has only coordinates, and no method to embed halves,
the data take the role of the embeddings of halves.

A point is *torn off* if more than a tenth of its neighbors in the embeddings of halves, by their probability, are far
from it in the embedding: more than four times the distance from each of the two points to its k-th neighbor. It is
*glued* if more than 35 % of its neighbors in the embedding are far from it in the data (`far_neighbors`). Embeddings of
halves cannot show this, because a method that folds the data often folds each half, too. A *seam* is a tear or a fold
with two sides: two connected regions that are torn off each other, or laid onto each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glle_engine.audit.agreement import far_neighbors, shared, spaces_of, standard_error
from glle_engine.base.progress import blocks
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.reliability.thresholds import (
    FAR_RATIO_IN_MAP,
    FEW_DISTURBED,
    MANY_DISTURBED,
    MAX_GLUED_SHARE,
    MAX_TORN_SHARE,
    MIN_NEIGHBOR_PROBABILITY,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_ARRANGED_ISLANDS = 3  # the arrangement of fewer islands is not compared
MIN_SHAPE_POINTS = 5  # the shape of an island with fewer points is not compared
CHANCE_PERMUTATIONS = 8  # the R^2 by chance is the mean R^2 of this many permutations
MAX_SHOWN_TEARS = 100  # an audit keeps at most this many pairs of torn neighbors for drawing
MAX_SEAMS = 9
_BLOCK_POINTS = 16_384  # the neighbors of this many points are compared at a time, so that they stay in the cache
# Each side of a seam has at least this many points, or half the share `FEW_DISTURBED` of all points if that is more.
MIN_SEAM_POINTS = 3


@dataclass(frozen=True, eq=False)
class Answer:
    """How much of one aspect of the embedding another sample would show: arrangement, neighborhoods or shapes.

    Attributes
    ----------
    share : float in [0, 1]
        The share that the maps of two separate halves of the data have in common. It is corrected for chance: 0 stands
        for what random positions would have in common.
    error : float
        Standard error over pairs of halves of these data; the shares of other samples differ more.
    of_islands : (m,) float64 or None
        The share for each island (clump of points in the embedding); None for the arrangement.

    """

    share: float
    error: float
    of_islands: NDArray[np.float64] | None = None

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-able dictionary."""
        of_islands = None if self.of_islands is None else self.of_islands.tolist()
        return {"share": self.share, "error": self.error, "of_islands": of_islands}


@dataclass(frozen=True, eq=False)
class Seam:
    """Two regions that the embedding tears apart, or lays onto each other.

    Attributes
    ----------
    kind : {"tear", "fold"}
        Whether the regions are torn apart or laid onto each other.
    sides : pair of (s,) int64
        Indices of the points in the two regions, the larger region first.
    islands : (int, int)
        The island to which most points of each side belong; -1 if most belong to none.
    score : float
        Mean `Disturbed.stretch` of the points of a tear, or `Disturbed.squeeze` of the points of a fold; 1 is usual,
        and larger is worse.

    """

    kind: Literal["tear", "fold"]
    sides: tuple[NDArray[np.int64], NDArray[np.int64]]
    islands: tuple[int, int]
    score: float

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the points as a JSON-able dictionary."""
        sizes = [len(side) for side in self.sides]
        return {"kind": self.kind, "sizes": sizes, "islands": list(self.islands), "score": self.score}


@dataclass(frozen=True, eq=False)
class Disturbed:
    """Where the embedding tears neighbors apart, or lays points onto each other that are no neighbors.

    The neighbors are those in maps of random halves of the data, or in the data if there are no such maps.

    Attributes
    ----------
    stretch : (n,) float64
        Mean distance in the embedding from each point to its neighbors; 1 is usual.
    squeeze : (n,) float64
        Mean distance in maps of halves, or in the data, from each point to its neighbors in the embedding; 1 is usual.
    is_torn : (n,) bool
        Whether more than a tenth of each point's neighbors lie far from it in the embedding. Neighbors in maps of
        halves are weighted by the probability that they are neighbors in another sample.
    is_glued : (n,) bool
        Whether more than 35 % of each point's neighbors in the embedding are far from it in the data.
    tears : (t, 2) int64
        Up to 100 pairs of neighbors that lie far apart in the embedding; none if most points are torn off.
    seams : tuple of Seam
        Tears and folds with two sides, the largest first.

    """

    stretch: NDArray[np.float64]
    squeeze: NDArray[np.float64]
    is_torn: NDArray[np.bool_]
    is_glued: NDArray[np.bool_]
    tears: NDArray[np.int64]
    seams: tuple[Seam, ...] = ()

    __repr__ = brief

    @property
    def seam(self) -> NDArray[np.int64]:
        """The seam on which each point lies (n,): j or -j for the first or the second side of seam j; 0 for no seam.

        Seam j is `seams[j - 1]`, a tear or a fold with two sides. For a point on several seams, the first one counts.
        """
        of_points = np.zeros(len(self.stretch), np.int64)
        for number, seam in reversed(list(enumerate(self.seams, start=1))):
            for side, sign in zip(seam.sides, (1, -1), strict=True):
                of_points[side] = sign * number
        return of_points


def arrangement(maps: NDArray[np.float64], islands: NDArray[np.int64]) -> Answer | None:
    """Return the R^2 of the centers of the islands in maps of two separate halves of the data, the mean over pairs.

    The R^2 is the one after a Procrustes alignment, corrected for chance: 0 for random centers, 1 for equal ones. Maps
    2 j and 2 j + 1 of `maps` (m, n, p) are a pair. `islands` (n,) has the number of each point's island, a clump of
    points in the audited embedding; -1 stands for no island. Returns None for fewer than three islands.
    """
    count = int(islands.max()) + 1
    if count < MIN_ARRANGED_ISLANDS:
        return None
    members = [islands == island for island in range(count)]
    centers = np.array([[Y[rows].mean(axis=0) for rows in members] for Y in maps])
    shares = np.array([_beyond_chance(a, b) for a, b in zip(centers[::2], centers[1::2], strict=True)])
    return Answer(float(np.clip(shares.mean(), 0, 1)), standard_error(shares))


def neighborhoods(
    near: NDArray[Any], islands: NDArray[np.int64], rows: NDArray[np.intp] | None = None
) -> tuple[Answer, NDArray[np.float64]]:
    """Return how well neighbors agree between maps of halves of the data: for all points, and for each point (n,).

    Both results are shares: how many of a point's neighbors in the map of one half are its neighbors in the map of the
    other half, too, corrected for chance. 0 is the share that random points of the same island would have, and 1 means
    all neighbors.

    `near` (m, n, k) are the neighbors in m maps, where maps 2 j and 2 j + 1 are of two separate halves of the data.
    `islands` (n,) has the number of each point's island, a clump of points in the audited embedding; -1 stands for no
    island. With `rows`, all neighbors in `near` are among these points, and the first result is the mean over them.
    """
    k, rows = near.shape[2], np.arange(len(islands)) if rows is None else rows
    pairs = np.array([shared(a, b) for a, b in zip(near[::2], near[1::2], strict=True)])
    count, is_inside = int(islands.max()) + 1, islands >= 0
    # The last size is for points of no island, whose number is -1: all rows are their possible neighbors.
    sizes = np.append(np.bincount(islands[rows][is_inside[rows]], minlength=count), len(rows))
    by_chance = np.minimum(k / np.maximum(sizes - 1, 1), 1.0)[islands]
    beyond = np.divide(pairs - by_chance, 1 - by_chance, out=np.zeros_like(pairs), where=by_chance < 1)
    of_points = np.clip(beyond.mean(axis=0), 0, 1)
    shares = beyond[:, rows].mean(axis=1)
    of_islands = np.bincount(islands[is_inside], beyond.mean(axis=0)[is_inside]) / np.bincount(islands[is_inside])
    answer = Answer(float(np.clip(shares.mean(), 0, 1)), standard_error(shares), np.clip(of_islands, 0, 1))
    return answer, of_points


def shape_shares(A: NDArray[np.float64], B: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, for each of m islands, what share of its shape two maps (n, p) have in common.

    The maps are of two separate halves of the data. The share is the R^2 between the island's points in the two maps,
    rotated onto each other and corrected for chance; it is 0 for an island of fewer than 5 points. `islands` (n,) has
    the number of each point's island, a clump of points in the audited embedding; -1 stands for no island.
    """
    members = (islands == island for island in range(int(islands.max()) + 1))
    return np.array([_beyond_chance(A[rows], B[rows]) if rows.sum() >= MIN_SHAPE_POINTS else 0.0 for rows in members])


def shape(shares: NDArray[np.float64], islands: NDArray[np.int64]) -> Answer:
    """Return how well the shapes of islands agree between maps of two separate halves of the data.

    `shares` (h, m) says, for each of h pairs of halves and each of m islands, what share of the island's shape the two
    maps have in common (`shape_shares`). `islands` (n,) has the number of each point's island, or -1 for no island. The
    answer is the mean over pairs of halves and over all points on islands.
    """
    sizes = np.bincount(islands[islands >= 0])
    of_pairs = shares @ sizes / sizes.sum()
    return Answer(float(np.clip(of_pairs.mean(), 0, 1)), standard_error(of_pairs), np.clip(shares.mean(axis=0), 0, 1))


def disturbed_by_samples(
    Y: NDArray[np.float64],
    neighbors: NDArray[Any],
    probability: csr_array,
    squeezes: NDArray[np.float64],
    islands: NDArray[np.int64],
    is_far_in_data: NDArray[np.bool_],
) -> Disturbed:
    """Return where an embedding tears neighbors apart, or lays points onto each other that are no neighbors.

    Tears are found by maps of random halves of the data, which stand for other samples. Points that are laid onto each
    other are found by the data, because maps of halves can have the same folds as the embedding.

    Parameters
    ----------
    Y : (n, p) float64
        The embedding.
    neighbors : (n, k) int
        Neighbors of each point in the embedding.
    probability : (n, n) csr_array
        Entry (i, j) is the probability that j is a neighbor of i in the map of another sample.
    squeezes : (m, n) float64
        Mean distance from each point to its `neighbors` in each of m maps of halves; 1 is usual (`squeeze_of`).
    islands : (n,) int64
        Number of each point's island, a clump of points in the embedding; -1 stands for no island.
    is_far_in_data : (n, k) bool
        Which of the `neighbors` are far from the point in the data.

    """
    n, start, columns, weights = len(Y), probability.indptr, probability.indices, probability.data
    radii = _apart(Y, np.arange(n)[:, None], neighbors)
    reach, usual = radii.max(axis=1), float(np.median(radii.mean(axis=1)))
    stretch, is_torn = np.empty(n), np.empty(n, bool)
    is_likely, is_far = weights >= MIN_NEIGHBOR_PROBABILITY, np.empty(len(weights), bool)
    for block in blocks(n, _BLOCK_POINTS, "tears"):
        entries = slice(start[block.start], start[block.stop])
        near, weight, size = columns[entries], weights[entries], block.stop - block.start
        row = np.repeat(np.arange(size), np.diff(start[block.start : block.stop + 1]))
        apart = _apart(Y, block.start + row, near)
        total = np.bincount(row, weight, size)
        stretch[block] = np.bincount(row, weight * apart, size) / np.where(total > 0, total, 1) / (usual or 1.0)
        is_far[entries] = apart > FAR_RATIO_IN_MAP * np.maximum(reach[block][row], reach[near])
        is_far[entries] &= is_likely[entries]
        torn, likely = (np.bincount(row, weight * flags[entries], size) for flags in (is_far, is_likely))
        is_torn[block] = torn > MAX_TORN_SHARE * np.maximum(likely, 1e-12)
    squeeze = squeezes.mean(axis=0)
    is_glued = is_far_in_data.mean(axis=1) > MAX_GLUED_SHARE
    far, in_map = _entries(probability, is_far), _pairs(neighbors)
    tears = _seams("tear", far[is_torn[far[:, 0]]], in_map, islands, stretch)
    laid = in_map[is_far_in_data.ravel() & is_glued[in_map[:, 0]]]
    folds = _seams("fold", laid, _entries(probability, is_likely), islands, squeeze) if len(laid) else ()
    shown = far[:0] if is_torn.mean() > MANY_DISTURBED else far
    of_shown = weights[is_far][: len(shown)]
    return Disturbed(stretch, squeeze, is_torn, is_glued, _some_tears(shown, of_shown), tears + folds)


def _entries(matrix: csr_array, is_chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the row and the column (t, 2) of each chosen entry of a sparse matrix, in the order of the entries."""
    chosen = np.flatnonzero(is_chosen)
    rows = np.searchsorted(matrix.indptr, chosen, side="right") - 1
    return np.stack([rows, matrix.indices[chosen]], axis=1).astype(np.int64)


def squeeze_of(
    places: NDArray[np.float64], near: NDArray[np.int32], neighbors: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return each point's mean distance (n,), in the map of a half of the data, to its neighbors in the audited map.

    `places` (n, p) are the positions in the map of the half, `near` (n, k) the nearest neighbors there, and `neighbors`
    (n, k) the nearest neighbors in the audited map. The unit is the usual distance of neighbors in the map of the half:
    the mean distance of a point to its `near`, in the median over points.
    """
    distance, inside = (
        _apart(places, np.arange(len(places))[:, None], each).mean(axis=1) for each in (neighbors, near)
    )
    return np.asarray(distance / (np.median(inside) or 1.0))


def _apart(places: NDArray[np.float64], first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return the distances between points `first` and `second` of a map (n, p): row numbers that are broadcast."""
    total = np.zeros(np.broadcast_shapes(first.shape, second.shape))
    for column in np.ascontiguousarray(places.T):  # numpy would sum over few columns slowly
        total += (column[first] - column[second]) ** 2
    return np.sqrt(total)


def disturbed_by_data(
    Y: NDArray[np.float64], points: NDArray[np.float64], k: int, islands: NDArray[np.int64]
) -> Disturbed:
    """Return where an embedding Y (n, p) tears neighbors apart, or lays points onto each other that are no neighbors.

    The embedding is compared with the data alone, `points` (n, d), and not with maps of halves of the data; k neighbors
    are compared. `islands` (n,) has the number of each point's island, a clump of points in the embedding; -1 stands
    for no island.
    """
    (in_map, _), (in_data, _) = (kneighbors(np.ascontiguousarray(each), k) for each in (Y, points))
    stretch, is_torn_pair = _distances_to(Y, in_map, in_data)
    squeeze, _ = _distances_to(points, in_data, in_map)
    is_far = far_neighbors(spaces_of(points), in_map, np.arange(len(Y)), k, least=MAX_GLUED_SHARE)
    is_torn, is_glued = is_torn_pair.mean(axis=1) > MAX_TORN_SHARE, is_far.mean(axis=1) > MAX_GLUED_SHARE
    torn, laid = _pairs(in_data)[is_torn_pair.ravel()], _pairs(in_map)[is_far.ravel()]
    tears = _seams("tear", torn[is_torn[torn[:, 0]]], _pairs(in_map), islands, stretch)
    folds = _seams("fold", laid[is_glued[laid[:, 0]]], _pairs(in_data), islands, squeeze)
    some = torn[: len(torn) if is_torn.mean() <= MANY_DISTURBED else 0]
    shown = _some_tears(some, np.ones(len(some)))
    return Disturbed(stretch, squeeze, is_torn, is_glued, shown, tears + folds)


def _distances_to(
    places: NDArray[np.float64], neighbors: NDArray[np.int32], other: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each point's mean distance (n,) to its `other` points (n, k), and which of these points (n, k) are far.

    `neighbors` (n, k) are each point's nearest neighbors among `places` (n, p). `other` are neighbors that were found
    elsewhere, such as in the data if `places` is a map. Each point's mean distance to its `neighbors` is computed, and
    the median of these is the unit of the first result. Two points are far from each other if their distance exceeds
    `FAR_RATIO_IN_MAP` times the distance of each of the two to its farthest neighbor.
    """
    rows = np.arange(len(places))[:, None]
    inside, distance = _apart(places, rows, neighbors), _apart(places, rows, other)
    limit = inside.max(axis=1)
    is_far = distance > FAR_RATIO_IN_MAP * np.maximum(limit[:, None], limit[other])
    return distance.mean(axis=1) / (np.median(inside.mean(axis=1)) or 1.0), is_far


def _pairs(near: NDArray[Any]) -> NDArray[np.int64]:
    """Return all pairs (n k, 2) of a point and one of its neighbors (n, k)."""
    return np.stack([np.repeat(np.arange(len(near)), near.shape[1]), near.ravel()], axis=1).astype(np.int64)


def _seams(
    kind: Literal["tear", "fold"],
    pairs: NDArray[np.int64],
    near: NDArray[np.int64],
    islands: NDArray[np.int64],
    score: NDArray[np.float64],
) -> tuple[Seam, ...]:
    """Group pairs of points into seams, each a tear or a fold with two sides; return at most 9, the largest first.

    `pairs` (t, 2) are torn apart in a tear, and laid onto each other in a fold. The points on one side of a seam are
    connected by the pairs `near` (s, 2). For a tear, these are neighbors in the embedding; for a fold, neighbors in the
    data or in maps of halves of the data. `islands` (n,) has the number of each point's island, a clump of points in
    the embedding, or -1 for no island. `score` (n,) is the stretch of each point for tears, and its squeeze for folds.

    There are no seams if more than half of the points (`MANY_DISTURBED`) are disturbed, because then the embedding as a
    whole is at fault.
    """
    n, min_side = len(islands), max(MIN_SEAM_POINTS, int(np.ceil(FEW_DISTURBED * len(islands) / 2)))
    is_node = np.zeros(n, bool)
    is_node[pairs.ravel()] = True
    if not 0 < len(np.unique(pairs[:, 0])) <= MANY_DISTURBED * n:
        return ()
    inside = near[is_node[near].all(axis=1)]
    graph = csr_array((np.ones(len(inside)), inside.T), shape=(n, n))
    side = connected_components(graph, directed=False)[1]
    of_pairs = np.sort(side[pairs], axis=1)
    seams = []
    for first, second in np.unique(of_pairs[of_pairs[:, 0] != of_pairs[:, 1]], axis=0):
        crossing = pairs[(of_pairs == (first, second)).all(axis=1)].ravel()
        points = [np.unique(crossing[side[crossing] == one]) for one in (first, second)]
        if min(len(each) for each in points) >= min_side:
            points.sort(key=len, reverse=True)
            first_island, second_island = (int(np.bincount(islands[each] + 1).argmax()) - 1 for each in points)
            mean_score = float(score[np.concatenate(points)].mean())
            seams.append(Seam(kind, (points[0], points[1]), (first_island, second_island), mean_score))
    return tuple(sorted(seams, key=lambda seam: -sum(len(each) for each in seam.sides))[:MAX_SEAMS])


def _some_tears(pairs: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return at most 100 distinct `pairs` (t, 2) of points, the pairs of largest weight first."""
    pairs = np.sort(pairs, axis=1)
    order = np.argsort(-weights, kind="stable")
    distinct, first = np.unique(pairs[order], axis=0, return_index=True)
    return np.asarray(distinct[np.argsort(first)][:MAX_SHOWN_TEARS].reshape(-1, 2))


def _beyond_chance(A: NDArray[np.float64], B: NDArray[np.float64]) -> float:
    """Return the R^2 of two sets of positions (m, p) of the same points, corrected for the R^2 of permuted points."""
    if not (np.ptp(A, axis=0).any() and np.ptp(B, axis=0).any()):
        return 0.0
    rng = generator(len(A), A.shape[1])
    by_chance = float(np.mean([1 - disparity(A, B[rng.permutation(len(B))]) for _ in range(CHANCE_PERMUTATIONS)]))
    return (1 - disparity(A, B) - by_chance) / max(1 - by_chance, 1e-12)
