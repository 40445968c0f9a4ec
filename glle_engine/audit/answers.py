r"""Four answers about an embedding, from the embeddings of pairs of separate halves of the data.

The answers need the islands of the embedding (`glle_engine.audit.islands`). For halves :math:`A` and :math:`B` of the
data they are:

- *islands*: the share of halves in whose embeddings an island is isolated. If an island is isolated in the embeddings
  of halves, but not in the data, the method has cut the data there.
- *arrangement*, of three islands or more: :math:`R^2` of the islands' centers in A and B.
- *neighborhoods*: the share of a point's k neighbors in A that are its neighbors in B.
- *shape*: :math:`R^2` of the points of one island in A and B, where each island is rotated by itself.

All but the first are corrected for chance: :math:`(R^2 - c) / (1 - c)`. For arrangement and shape, :math:`c` is the
mean :math:`R^2` over permuted centers or points. For neighborhoods, :math:`c = k / (m - 1)` is the share that random
points of an island of m points would reach, and the share of neighbors takes the role of :math:`R^2`.

Two scores say where the embedding itself is wrong. *Stretch* is the distance in the embedding from a point to the
points that are its neighbors in halves, weighted by their probability. *Squeeze* is the distance in halves from a point
to its neighbors in the embedding. Each is divided by the typical distance between neighbors in the embedding or in the
halves, so that 1 is usual. If only coordinates are given, the data take the role of the halves.

A point is *torn off* if a tenth of its neighbors in halves, by weight, are far from it in the embedding: more than four
times the distance from each of the two points to its k-th neighbor. It is *glued* if more than 35 % of its neighbors in
the embedding are far from it in the data (`far_neighbors`). Embeddings of halves cannot show this, because a fold of
the data is often a fold of each half. A *seam* is a tear or a fold with two
sides: connected points that are torn off each other, or laid onto each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from glle_engine.audit.agreement import far_neighbors, shared, spaces_of
from glle_engine.audit.islands import find_islands, isolated, numbered
from glle_engine.base.progress import silent
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.reliability.resamples import placing_weights
from glle_engine.reliability.thresholds import (
    DISTURBED,
    FAR,
    FEW_DISTURBED,
    GLUED,
    LIKELY_NEIGHBORS,
    MANY_DISTURBED,
    SMALL_ISLAND,
    STAYS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPONENTS = (10, 3)  # islands that are isolated among this many principal components are isolated in the data, too
PLACING_ISLANDS = 5  # the points outside a half are placed by this many neighbors in the half
MIN_CENTERS = 3  # islands that an arrangement needs
MIN_SHAPE = 5  # points that an island needs for a shape
PERMUTATIONS = 8
SHOWN_TEARS = 100  # pairs of torn neighbors that an audit keeps for drawing
MAX_SEAMS = 9
MIN_SIDE = 3  # each side of a seam has at least this many points, and half the share `FEW_DISTURBED` of all points


@dataclass(frozen=True, eq=False)
class Answer:
    """The share of one aspect of the embedding that another sample would show.

    Attributes
    ----------
    share : float in [0, 1]
    error : float
        Standard error over pairs of halves of this sample; other samples differ more.
    of_islands : (m,) float64 or None
        The share of each island; None for the arrangement.

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
class Islands:
    """Islands of an embedding; if only coordinates are given, nothing is known of other samples.

    Attributes
    ----------
    share, error : float or None
        Mean share of the halves in which the islands are isolated, with its standard error; None if only coordinates
        are given, and for a single island.
    of_points : (n,) int64
        Island of each point: 0 is the largest one, and -1 is none, for clumps that are too small to judge.
    in_data : (m,) bool
        Whether the points of the island are isolated in the data, too; False for a single island.
    in_samples : (m,) float64 or None
        Share of the halves in whose maps the other half's points of the island are isolated.
    in_halves : (m,) float64 or None
        Share of the halves in whose maps the half's own points of the island are isolated.
    of_halves : (h, m) bool or None
        Islands that are isolated in the map of each half.

    """

    share: float | None
    error: float | None
    of_points: NDArray[np.int64]
    in_data: NDArray[np.bool_]
    in_samples: NDArray[np.float64] | None = None
    in_halves: NDArray[np.float64] | None = None
    of_halves: NDArray[np.bool_] | None = None

    __repr__ = brief

    @property
    def stays(self) -> NDArray[np.bool_]:
        """Islands (m,) that can be trusted: they are isolated in 80 % of the halves, and in the data."""
        if self.in_samples is None:
            return np.zeros(len(self.in_data), bool)
        return np.asarray((self.in_samples >= STAYS) & self.in_data)

    @property
    def is_cut(self) -> NDArray[np.bool_]:
        """Islands (m,) that the method cuts: they are isolated in 80 % of the halves, but not in the data."""
        if self.in_samples is None:
            return np.zeros(len(self.in_data), bool)
        inside = self.in_samples if self.in_halves is None else self.in_halves
        return np.asarray((np.maximum(self.in_samples, inside) >= STAYS) & ~self.in_data)

    @property
    def count(self) -> int:
        """Number of islands; 0 for a single one, because it is not separate from anything."""
        return len(self.in_data) if len(self.in_data) > 1 else 0

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of points (m,) of each island."""
        return np.bincount(self.of_points[self.of_points >= 0], minlength=len(self.in_data))

    @property
    def outside(self) -> int:
        """Number of points in clumps that are too small to judge, which are in no island."""
        return int((self.of_points < 0).sum())

    @property
    def names(self) -> list[str]:
        """Names of the islands: A for the largest one, and so on; A1 follows Z."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        return [letters[index % 26] + (str(index // 26) if index >= 26 else "") for index in range(len(self.in_data))]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of each island as a JSON-able dictionary, without arrays of points or of single halves."""
        return {
            "share": self.share,
            "error": self.error,
            "names": self.names,
            "sizes": self.sizes.tolist(),
            "outside": self.outside,
            "in_data": self.in_data.tolist(),
            "in_samples": None if self.in_samples is None else self.in_samples.tolist(),
            "stays": self.stays.tolist(),
            "is_cut": self.is_cut.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Seam:
    """Two regions that the embedding tears apart, or lays onto each other.

    Attributes
    ----------
    kind : {"tear", "fold"}
    sides : pair of (s,) int64
        The points on both sides, the larger side first.
    islands : (int, int)
        The island to which most points of each side belong, or -1.
    score : float
        Mean `stretch` of a tear's points, or `squeeze` of a fold's.

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
    """Points whose positions in the embedding do not fit their neighbors.

    Attributes
    ----------
    stretch, squeeze : (n,) float64
    is_torn, is_glued : (n,) bool
    tears : (t, 2) int64
        Some pairs of neighbors that lie far apart in the embedding; none if most points are torn off.
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
        """Seam (n,) of each point: j and -j on the two sides of seam j, counted from 1; 0 for points on no seam."""
        of_points = np.zeros(len(self.stretch), np.int64)
        for number, seam in reversed(list(enumerate(self.seams, start=1))):
            for side, sign in zip(seam.sides, (1, -1), strict=True):
                of_points[side] = sign * number
        return of_points


def islands_of_picture(Y: NDArray[np.float64], points: NDArray[np.float64], *, is_linear: bool = False) -> Islands:
    """Return the islands of an embedding (n, p) of points (n, d), before maps of halves confirm them.

    Small islands that are not isolated in the data are left out, because a method may tear off a few points anywhere.
    """
    of_points = find_islands(Y)
    in_data = np.ones(int(of_points.max()) + 1, bool) if is_linear else _isolated_in_data(points, of_points)
    is_small = np.bincount(of_points[of_points >= 0]) < SMALL_ISLAND * len(Y)
    if (is_torn_off := is_small & ~in_data).any():
        of_points[(of_points >= 0) & is_torn_off[of_points]] = -1
        of_points = numbered(of_points)
        in_data = _isolated_in_data(points, of_points)
    if len(in_data) == 2:  # two islands are isolated from each other, or neither is isolated
        in_data[:] = in_data.all()
    return Islands(None, None, of_points, in_data & (len(in_data) > 1))


def _isolated_in_data(points: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each island (m,) is isolated among points (n, d), or among their first principal components.

    A linear map cuts nothing, so a gap among the components is a gap in the data. If there are many features, noise
    makes all distances nearly equal, and only the components show the gap.
    """
    holds = isolated(points, islands)
    limit = min(COMPONENTS[0], len(points) - 1, points.shape[1] - 1)
    if len(holds) == 1 or holds.all() or limit < 1:
        return holds
    scores = principal_axes(np.ascontiguousarray(points), limit, silent).scores
    for count in sorted({min(count, limit) for count in COMPONENTS}):
        holds = holds | isolated(np.ascontiguousarray(scores[:, :count]), islands)
    return holds


def island_places(
    points: NDArray[np.float64],
    rows: NDArray[np.bool_],
    chosen: NDArray[np.intp],
    Y: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a copy of a sample's map Y (n, p) in which only five neighbors in the sample place each of the `rows`.

    The sample is of the points `chosen`. If a point of a small group were placed by ten neighbors, some would belong to
    other groups, and their weights would put the point between the groups.
    """
    placed = Y.copy()
    placed[rows] = placing_weights(points[chosen], points[rows], PLACING_ISLANDS).embed(Y[chosen])
    return placed


def islands_of_samples(
    islands: Islands, isolated_outside: NDArray[np.bool_], isolated_inside: NDArray[np.bool_] | None = None
) -> Islands:
    """Return the islands of a map with the share of halves in whose embeddings each island is isolated.

    `isolated_outside` (m, islands) says whether an island is isolated among the points that are not in the half, and
    `isolated_inside` whether it is isolated among the half's own points. The half's own points show whether the method
    cuts the islands, because other points may be placed across a cut.
    """
    if not islands.count:
        return replace(islands, in_samples=np.zeros(1))
    if islands.count == 2:  # two islands are isolated from each other, or neither is isolated
        isolated_outside = np.repeat(isolated_outside.all(axis=1, keepdims=True), 2, axis=1)
    of_pairs = isolated_outside.mean(axis=1).reshape(-1, 2).mean(axis=1)
    return replace(
        islands,
        share=float(of_pairs.mean()),
        error=standard_error(of_pairs),
        in_samples=isolated_outside.mean(axis=0),
        in_halves=None if isolated_inside is None else isolated_inside.mean(axis=0),
        of_halves=isolated_outside,
    )


def isolated_among(Y: NDArray[np.float64], islands: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which islands (m,) are isolated when only the points `rows` are looked at; islands without them are not.

    Points of no island (-1) are ignored.

    To judge the embedding of a half, pass the points that are not in the half: an embedding of few points in many
    dimensions shows the points that it was made from farther apart than it would show points of a new sample.
    """
    rows = rows & (islands >= 0)
    present, of_rows = np.unique(islands[rows], return_inverse=True)
    holds = np.zeros(int(islands.max()) + 1, bool)
    holds[present] = isolated(Y[rows], of_rows) & (len(present) > 1)
    return holds


def arrangement(pictures: NDArray[np.float64], islands: NDArray[np.int64]) -> Answer | None:
    """Return how well the positions of the islands agree between halves; None for fewer than three islands."""
    count = int(islands.max()) + 1
    if count < MIN_CENTERS:
        return None
    members = [islands == island for island in range(count)]
    centers = np.array([[Y[rows].mean(axis=0) for rows in members] for Y in pictures])
    shares = np.array([_beyond_chance(a, b) for a, b in zip(centers[::2], centers[1::2], strict=True)])
    return Answer(float(np.clip(shares.mean(), 0, 1)), standard_error(shares))


def neighborhoods(
    near: NDArray[Any], islands: NDArray[np.int64], rows: NDArray[np.intp] | None = None
) -> tuple[Answer, NDArray[np.float64]]:
    """Return how well neighbors agree between maps of halves: the answer for the map, and the share of each point (n,).

    `near` (m, n, k) are the neighbors in m maps. With `rows`, only these points count as neighbors, and the answer is
    the mean over them.
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


def shape(pictures: NDArray[np.float64], islands: NDArray[np.int64]) -> Answer:
    """Return how well the shapes of islands agree between maps of halves, as a mean over points.

    `pictures` (m, n, p) are the maps. Islands of fewer than 5 points count as 0.
    """
    members = [np.flatnonzero(islands == island) for island in range(int(islands.max()) + 1)]
    shares = np.array(
        [
            [_beyond_chance(a[rows], b[rows]) if len(rows) >= MIN_SHAPE else 0.0 for rows in members]
            for a, b in zip(pictures[::2], pictures[1::2], strict=True)
        ]
    )
    of_pairs = shares @ np.array([len(rows) for rows in members]) / sum(len(rows) for rows in members)
    return Answer(float(np.clip(of_pairs.mean(), 0, 1)), standard_error(of_pairs), np.clip(shares.mean(axis=0), 0, 1))


def disturbed_by_samples(
    Y: NDArray[np.float64],
    neighbors: NDArray[Any],
    probability: csr_array,
    squeezes: NDArray[np.float64],
    islands: NDArray[np.int64],
    is_far_in_data: NDArray[np.bool_],
) -> Disturbed:
    """Return the points that an embedding (n, p) tears off or glues, judged by embeddings of halves.

    `neighbors` (n, k) are neighbors in the embedding, `probability` (n, n) the probabilities of being neighbors,
    `squeezes` (m, n) the distances of the neighbors in the embeddings of halves (`squeeze_of`), and `is_far_in_data`
    (n, k) says which of these `neighbors` are far in the data: embeddings of halves can have the same folds.
    """
    radii = np.linalg.norm(Y[:, None] - Y[neighbors], axis=2)
    reach, usual = radii.max(axis=1), float(np.median(radii.mean(axis=1)))
    rows = np.repeat(np.arange(len(Y)), np.diff(probability.indptr))
    columns, weights = probability.indices, probability.data
    apart = np.linalg.norm(Y[rows] - Y[columns], axis=1)
    total = np.bincount(rows, weights, len(Y))
    stretch = np.bincount(rows, weights * apart, len(Y)) / np.where(total > 0, total, 1) / (usual or 1.0)
    is_likely = weights >= LIKELY_NEIGHBORS
    is_far = is_likely & (apart > FAR * np.maximum(reach[rows], reach[columns]))
    torn, likely = (np.bincount(rows, weights * flags, len(Y)) for flags in (is_far, is_likely))
    is_torn = torn > DISTURBED * np.maximum(likely, 1e-12)
    squeeze = squeezes.mean(axis=0)
    is_glued = is_far_in_data.mean(axis=1) > GLUED
    pairs, in_picture = np.stack([rows, columns], axis=1), _pairs(neighbors)
    tears = _seams("tear", pairs[is_far & is_torn[rows]], in_picture, islands, stretch)
    laid = in_picture[is_far_in_data.ravel() & is_glued[in_picture[:, 0]]]
    folds = _seams("fold", laid, pairs[is_likely], islands, squeeze)
    is_shown = is_far & (is_torn.mean() <= MANY_DISTURBED)
    shown = _some_tears(rows[is_shown], columns[is_shown], weights[is_shown])
    return Disturbed(stretch, squeeze, is_torn, is_glued, shown, tears + folds)


def squeeze_of(
    places: NDArray[np.float64], near: NDArray[np.int32], neighbors: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return each point's mean distance (n,) to `neighbors`, in units of the typical distance of a point to `near`.

    `places` (n, p) are positions in the map of a half, and `near` (n, k) the nearest neighbors there.
    """
    distance, inside = (
        np.linalg.norm(places[:, None] - places[each], axis=2).mean(axis=1) for each in (neighbors, near)
    )
    return np.asarray(distance / (np.median(inside) or 1.0))


def disturbed_by_data(
    Y: NDArray[np.float64], points: NDArray[np.float64], k: int, islands: NDArray[np.int64]
) -> Disturbed:
    """Return the points that an embedding (n, p) tears off or glues, compared with the data (n, d)."""
    (in_picture, _), (in_data, _) = (kneighbors(np.ascontiguousarray(each), k) for each in (Y, points))
    stretch, is_torn_pair = _distances_to(Y, in_picture, in_data)
    squeeze, _ = _distances_to(points, in_data, in_picture)
    is_far = far_neighbors(spaces_of(points), in_picture, np.arange(len(Y)), k)
    is_torn, is_glued = is_torn_pair.mean(axis=1) > DISTURBED, is_far.mean(axis=1) > GLUED
    torn, laid = _pairs(in_data)[is_torn_pair.ravel()], _pairs(in_picture)[is_far.ravel()]
    tears = _seams("tear", torn[is_torn[torn[:, 0]]], _pairs(in_picture), islands, stretch)
    folds = _seams("fold", laid[is_glued[laid[:, 0]]], _pairs(in_data), islands, squeeze)
    some = torn[: len(torn) if is_torn.mean() <= MANY_DISTURBED else 0]
    shown = _some_tears(some[:, 0], some[:, 1], np.ones(len(some)))
    return Disturbed(stretch, squeeze, is_torn, is_glued, shown, tears + folds)


def _distances_to(
    places: NDArray[np.float64], neighbors: NDArray[np.int32], other: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each point's mean distance (n,) to its `other` points (n, k), and which of these points (n, k) are far.

    Distances are in units of the typical distance of a point to its `neighbors` (n, k).
    """
    inside = np.linalg.norm(places[:, None] - places[neighbors], axis=2)
    distance = np.linalg.norm(places[:, None] - places[other], axis=2)
    limit = inside.max(axis=1)
    is_far = distance > FAR * np.maximum(limit[:, None], limit[other])
    return distance.mean(axis=1) / (np.median(inside.mean(axis=1)) or 1.0), is_far


def _pairs(near: NDArray[Any]) -> NDArray[np.int64]:
    """Return the pairs (n k, 2) of each point with each of its neighbors (n, k)."""
    return np.stack([np.repeat(np.arange(len(near)), near.shape[1]), near.ravel()], axis=1).astype(np.int64)


def _seams(
    kind: Literal["tear", "fold"],
    pairs: NDArray[np.int64],
    near: NDArray[np.int64],
    islands: NDArray[np.int64],
    score: NDArray[np.float64],
) -> tuple[Seam, ...]:
    """Group disturbed pairs of points (t, 2) into seams; `near` pairs (s, 2) connect the points on a side of a seam.

    Returns at most 9 seams, the largest first; none if too many points are disturbed.
    """
    n, min_side = len(islands), max(MIN_SIDE, int(np.ceil(FEW_DISTURBED * len(islands) / 2)))
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


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of values; 0 for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _some_tears(rows: NDArray[Any], columns: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return at most 100 distinct pairs, the pairs of largest weight first."""
    pairs = np.stack([np.minimum(rows, columns), np.maximum(rows, columns)], axis=1).astype(np.int64)
    order = np.argsort(-weights, kind="stable")
    distinct, first = np.unique(pairs[order], axis=0, return_index=True)
    return np.asarray(distinct[np.argsort(first)][:SHOWN_TEARS].reshape(-1, 2))


def _beyond_chance(A: NDArray[np.float64], B: NDArray[np.float64]) -> float:
    """Return R^2 of two sets of positions (m, p), corrected for the R^2 of permuted positions."""
    if not (np.ptp(A, axis=0).any() and np.ptp(B, axis=0).any()):
        return 0.0
    rng = generator(len(A), A.shape[1])
    by_chance = float(np.mean([1 - disparity(A, B[rng.permutation(len(B))]) for _ in range(PERMUTATIONS)]))
    return (1 - disparity(A, B) - by_chance) / max(1 - by_chance, 1e-12)
