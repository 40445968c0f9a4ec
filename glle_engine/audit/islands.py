r"""Islands of an embedding: its clusters that do not touch each other, and which of them can be trusted.

An island can be trusted (`Islands.stays`) if it is isolated in at least 80 % of the maps of halves of the data, judged
by the points outside the half (`isolated_among`), and also in the data (`islands_of_embedding`): among all
columns, or among the first 10 or 3 principal components. A linear method never separates what is connected in the data,
so the islands of a map that it made count as isolated in the data; those of coordinates that the caller passes do not.
A single island is separate from nothing, and is never trusted.

HDBSCAN finds the clusters (`glle_engine.audit.hdbscan`). A first pass looks for clusters that have at least 8
points, and also at least 2 % of all points. A second pass looks inside each of these clusters for smaller clumps, of at
least 8 points.

A cluster is not yet an island: HDBSCAN cuts even a uniform disc, and random points on a curve have gaps. A gap is more
than chance if points of a distribution without the gap would hardly leave it open. Random points of density
:math:`\lambda` on a curve have a gap of length :math:`\delta` somewhere with a probability of about
:math:`n e^{-\lambda \delta}`, so that the gap has to be :math:`\log n + 3` times as long as the mean distance between
consecutive points. In two dimensions and more, points without a gap would lie on all sides of a cluster, and a gap as
wide as the distance to the fifth neighbor is enough. The *reach* of a cluster is the median distance to the fifth
neighbor in two dimensions and more, the longer gap on a curve, and a width in between for dimensions between one and
two.

A point touches another cluster if one of that cluster's points lies within the reach of the point's own cluster. If the
other cluster has the larger reach, that reach counts, up to 1.5 times the own reach. A cluster is *isolated* if at most
2 % of its points touch another cluster, and at most a tenth of the share that would touch if the cluster itself were
cut in two. Clusters that touch are merged into one island, so that the islands of an embedding are isolated. Points
that lie far from every island, in clumps of fewer than 8, belong to none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from glle_engine.audit.agreement import standard_error
from glle_engine.audit.hdbscan import clusters_of, renumbered
from glle_engine.base.progress import silent
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors, kneighbors_to
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.reliability.thresholds import (
    CHANCE_GAP,
    FAR_CLUMP_REACHES,
    MAX_CUT_CONTACT_RATIO,
    MAX_ISLAND_CONTACT,
    MAX_REACH_RATIO,
    MIN_ISOLATED_SHARE,
    SMALL_ISLAND_SHARE,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.spatial import cKDTree

# An island is isolated in the data if it is isolated among all columns, or among the first 10 principal components, or
# among the first 3.
DATA_COMPONENTS = (10, 3)
MIN_ISLAND_POINTS = 8  # smaller clusters of points are not islands
# A point touches another cluster within the reach of its own cluster. For a cluster that fills two or more dimensions,
# the reach is the median distance of its points to their neighbor of this rank; for a curve, `_reach` makes it longer.
REACH_NEIGHBOR = 5
MAX_TREE_DIMENSIONS = 10  # up to this dimension a k-d tree is faster than computing all distances
MAX_COMPARED_POINTS = 5000  # of more points, a random sample of this size is compared
DIMENSION_NEIGHBORS = 30  # neighbors from which the dimension of a cluster is estimated
CUT_SHARES = (0.25, 0.5, 0.75)  # an island is cut in two so that these shares of its points are on one side
MIN_POINTS_TO_CUT = 4  # islands of fewer points are not cut in two


@dataclass(frozen=True, eq=False)
class Islands:
    """Islands of an embedding, and whether the data and other samples have them, too.

    An island is a cluster of points that hardly touches other clusters. Other samples are the maps of random halves of
    the data; for coordinates without a method, there are no such maps, and the fields about halves are None.

    Attributes
    ----------
    share, error : float or None
        Mean share of the halves in which the islands are isolated, with its standard error; None for a single island.
    of_points : (n,) int64
        Number of each point's island: 0 is the largest island, and -1 stands for points in clumps that are too small to
        judge.
    in_data : (m,) bool
        Whether the points of the island are isolated in the data, too; False for a single island.
    in_samples : (m,) float64 or None
        Share of the halves in whose maps each island is isolated, judged by the points that are not in the half.
    in_halves : (m,) float64 or None
        Share of the halves in whose maps each island is isolated, judged by the half's own points.
    of_halves : (h, m) bool or None
        Whether each island is isolated in the map of each half.

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
        """Whether each island (m,) can be trusted.

        It has to be isolated in the data, and in at least 80 % of the maps of random halves of the data.
        """
        if self.in_samples is None:
            return np.zeros(len(self.in_data), bool)
        return np.asarray((self.in_samples >= MIN_ISOLATED_SHARE) & self.in_data)

    @property
    def is_cut(self) -> NDArray[np.bool_]:
        """Whether the method cut each island (m,) off.

        Such an island is isolated in at least 80 % of the maps of random halves of the data, but not in the data.
        """
        if self.in_samples is None:
            return np.zeros(len(self.in_data), bool)
        inside = self.in_samples if self.in_halves is None else self.in_halves
        return np.asarray((np.maximum(self.in_samples, inside) >= MIN_ISOLATED_SHARE) & ~self.in_data)

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
        """Names of the islands, from the largest to the smallest: A to Z, then A1 to Z1, and so on."""
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


def islands_of_embedding(Y: NDArray[np.float64], points: NDArray[np.float64], *, is_linear: bool = False) -> Islands:
    """Return the islands of an embedding (n, p) of points (n, d), and whether the data have them, too.

    Small islands that are not isolated in the data are left out, because a method may tear off a few points anywhere.
    The islands of a linear map are isolated in the data, because a linear map never separates what is connected there.
    """
    of_points = find_islands(Y)
    in_data = np.ones(int(of_points.max()) + 1, bool) if is_linear else _isolated_in_data(points, of_points)
    is_small = np.bincount(of_points[of_points >= 0]) < SMALL_ISLAND_SHARE * len(Y)
    if (is_torn_off := is_small & ~in_data).any():
        of_points[(of_points >= 0) & is_torn_off[of_points]] = -1
        of_points = renumbered(of_points)
        in_data = _isolated_in_data(points, of_points)
    if len(in_data) == 2:  # two islands are isolated from each other, or neither is isolated
        in_data[:] = in_data.all()
    return Islands(None, None, of_points, in_data & (len(in_data) > 1))


def _isolated_in_data(points: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which islands (m,) are isolated (`isolated`) among points (n, d), or among their principal components.

    A projection onto principal components never separates points that are connected in the data, so an island that is
    isolated in the projection is isolated in the data, too. The components are needed if there are many features: noise
    then makes all distances nearly equal, and only the first components show the gaps.
    """
    holds = isolated(points, islands)
    limit = min(DATA_COMPONENTS[0], len(points) - 1, points.shape[1] - 1)
    if len(holds) == 1 or holds.all() or limit < 1:
        return holds
    scores = principal_axes(np.ascontiguousarray(points), limit, silent).scores
    for count in sorted({min(count, limit) for count in DATA_COMPONENTS}):
        holds = holds | isolated(np.ascontiguousarray(scores[:, :count]), islands)
    return holds


def islands_of_samples(
    islands: Islands, isolated_outside: NDArray[np.bool_], isolated_inside: NDArray[np.bool_] | None = None
) -> Islands:
    """Return the islands of a map, with the share of the maps of halves of the data in which each island is isolated.

    The result also has the mean of these shares, and its standard error. `isolated_outside` (m, islands) says whether
    each island is isolated in the map of each of m halves, judged by the points that are not in the half: these show
    what another sample would show. `isolated_inside` says the same, judged by the half's own points: these show whether
    the method itself cuts the island off. Points that are placed afterwards may lie across such a cut and hide it.
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
    """Return which islands (m,) are isolated in a map Y (n, p), if only the points in the mask `rows` are compared.

    Islands without such points are not isolated, and points of no island (-1) are ignored. To judge the map of a half
    of the data, pass the points that are not in the half. With few points in many dimensions, a map exaggerates the
    gaps between the points from which it was made, but not between points that are placed in it afterwards.
    """
    rows = rows & (islands >= 0)
    present, of_rows = np.unique(islands[rows], return_inverse=True)
    holds = np.zeros(int(islands.max()) + 1, bool)
    holds[present] = isolated(Y[rows], of_rows) & (len(present) > 1)
    return holds


def find_islands(Y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number (n,) of the island to which each point of an embedding (n, p) belongs, or -1 for no island.

    Island 0 is the largest one. Clumps of fewer than 8 points that lie far from every island belong to none. If no
    cluster is isolated, all other points belong to island 0. Of more than 5,000 points, a random sample is clustered.
    """
    n = len(Y)
    if n > MAX_COMPARED_POINTS:
        rows = generator(n, 0).permutation(n)[:MAX_COMPARED_POINTS]
        return np.asarray(find_islands(Y[rows])[_tree(Y[rows]).query(Y)[1]])
    islands = _with_small_islands(Y, _large_islands(Y))
    of_islands = islands[islands >= 0]
    order = np.argsort(-np.bincount(of_islands), kind="stable")
    islands[islands >= 0] = np.argsort(order)[of_islands]
    return islands


def _large_islands(Y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the island (n,) of each point, if only islands with at least 8 points and 2 % of all points count.

    A point that HDBSCAN puts into no cluster joins the island of the nearest point in a cluster.
    """
    min_size = max(MIN_ISLAND_POINTS, int(SMALL_ISLAND_SHARE * len(Y)))
    clusters = clusters_of(Y, min_size) if len(Y) >= 2 * min_size else np.full(len(Y), -1)
    if not (is_known := clusters >= 0).any():
        return np.zeros(len(Y), np.int64)
    return _join_touching(Y, clusters[is_known][_tree(Y[is_known]).query(Y)[1]])


def _join_touching(Y: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join islands that touch until each island is isolated, and return the new island (n,) of each point.

    Points of no island keep -1.
    """
    is_known = islands >= 0
    if not is_known.all():
        joined_islands = islands.copy()
        joined_islands[is_known] = _join_touching(Y[is_known], islands[is_known])
        return joined_islands
    while (count := int(islands.max()) + 1) > 1:
        touching, any_other, reach = contact(Y, islands)
        limit = _most_contact(Y, islands, reach)
        if (any_other <= limit).all():
            break
        joined = touching > limit[:, None]
        rows = np.flatnonzero(any_other > limit)
        # Also join the most touched one: an island may touch several islands, and each of them less than the limit.
        joined[rows, touching[rows].argmax(axis=1)] = True
        islands = connected_components(joined, directed=False)[1][islands].astype(np.int64)
        assert int(islands.max()) + 1 < count
    return islands


def _with_small_islands(Y: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split isolated clumps off the islands that contain them; return the new island (n,) of each point.

    A clump of at least 8 points becomes an island of its own. Points of smaller clumps belong to no island (-1).
    """
    split, count = islands.copy(), int(islands.max()) + 1
    for island in range(count):
        rows = np.flatnonzero(islands == island)
        if len(rows) >= 2 * MIN_ISLAND_POINTS:
            clumps = _grown(Y[rows], clusters_of(Y[rows], MIN_ISLAND_POINTS))
            split[rows] = np.where(clumps >= 0, split.max() + 1 + clumps, -1)
    split = _join_touching(Y, renumbered(split))
    is_large = np.bincount(split[split >= 0]) >= SMALL_ISLAND_SHARE * len(Y)
    is_rest = (split >= 0) & is_large[split]
    return _join_touching(Y, renumbered(np.where(is_rest, islands, np.where(split >= 0, split + count, -1))))


def _grown(Y: NDArray[np.float64], clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Let points without a cluster (-1) join one, the nearest point first; return the new cluster (n,) of each point.

    A chain of points thus joins the cluster at which it begins. A point that is far from all clusters starts a clump,
    which the points near it join, and which becomes a new cluster if it grows to 8 points. Points of smaller clumps
    stay without a cluster. Far means more than `FAR_CLUMP_REACHES` times the reach, a typical distance between near
    points among all of them (`_reach`).
    """
    clusters = clusters.copy()
    if (clusters < 0).all():  # without any cluster, the denser half of the points is one, and the others join it
        core = kneighbors(np.ascontiguousarray(Y), MIN_ISLAND_POINTS - 1)[1][:, -1]
        clusters[core <= np.median(core)] = 0
    is_open = clusters < 0
    limit, count = FAR_CLUMP_REACHES * (_reach(Y, len(Y)) or np.inf), int(clusters.max()) + 1
    rows = np.flatnonzero(is_open)
    distance, nearest = _tree(Y[~is_open]).query(Y[rows])
    joined = clusters[~is_open][nearest]
    while len(rows):
        first = int(np.argmin(distance))
        row, cluster = rows[first], int(joined[first])
        if distance[first] > limit:
            cluster, count = count, count + 1
        clusters[row] = cluster
        rows, distance, joined = (np.delete(each, first) for each in (rows, distance, joined))
        to_row = np.linalg.norm(Y[rows] - Y[row], axis=1)
        is_nearer = to_row < distance
        distance[is_nearer], joined[is_nearer] = to_row[is_nearer], cluster
    clusters[(np.bincount(clusters) < MIN_ISLAND_POINTS)[clusters]] = -1
    return renumbered(clusters)


def isolated(points: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each of m islands is isolated among points (n, d): hardly any of its points touches another one.

    `contact` says when points touch. `islands` (n,) has the island of each point; points of no island (-1) are ignored.
    """
    points, islands = points[islands >= 0], islands[islands >= 0]
    _, touching, reach = contact(points, islands)
    holds = touching <= MAX_ISLAND_CONTACT
    for island in np.flatnonzero(holds & (touching > 0)):
        cut = _cut_contact(points[islands == island], len(points), reach[island])
        holds[island] = touching[island] <= MAX_CUT_CONTACT_RATIO * cut
    return np.asarray(holds)


def _most_contact(
    points: NDArray[np.float64], islands: NDArray[np.int64], reach: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return, for each of m islands, the largest share of its points that may touch other islands if it is isolated.

    Points touch if their distance is at most the island's `reach` (m,), as `contact` returns it.
    """
    cuts = (_cut_contact(points[islands == island], len(points), each) for island, each in enumerate(reach))
    return np.array([min(MAX_ISLAND_CONTACT, MAX_CUT_CONTACT_RATIO * cut) for cut in cuts])


def _cut_contact(points: NDArray[np.float64], n: int, reach: float) -> float:
    """Return the share of an island's points that would touch the other part if the island were cut in two.

    The island is cut across its longest axis in three places, and the result is the median of the three shares. Points
    touch if their distance is at most the island's `reach`, as `contact` returns it. If the number n of the points of
    all islands is above 5,000, `contact` measured the reach in a sample, whose points are farther apart; it is then
    measured again, among all `points` of the island.
    """
    if len(points) < MIN_POINTS_TO_CUT:
        return 0.0
    reach = reach if n <= MAX_COMPARED_POINTS else _reach(points, n)
    centered, shares = points - points.mean(axis=0), []
    along = centered @ np.linalg.svd(centered, full_matrices=False)[2][0]
    for cut in CUT_SHARES:
        is_right = along > np.quantile(along, cut)
        sides = points[is_right], points[~is_right]
        touching = sum(int((_nearest(a, b, reach) <= reach).sum()) for a, b in (sides, sides[::-1]))
        shares.append(touching / len(points))
    return float(np.median(shares))


def contact(
    points: NDArray[np.float64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of g groups' points that touch others, by pairs (g, g) and in all (g,), and the reaches (g,).

    Entry (i, j) of the first array is the share of group i's points that touch group j. The second array has the share
    of each group's points that touch any other group.

    The reach of a group is a typical distance from one of its points to near points of the group (`_reach`). A point
    touches another group if a point of that group lies within the reach of the point's own group. If the other group
    has the larger reach, that reach counts, up to 1.5 times the own reach. Groups of one point touch no group. Of more
    than 5,000 points a random sample is compared, with at least one point of each group.
    """
    if len(points) > MAX_COMPARED_POINTS:
        rng = generator(len(points), 1)
        first = np.unique(groups, return_index=True)[1]
        rows = np.union1d(rng.permutation(len(points))[:MAX_COMPARED_POINTS], first)
        points, groups = points[rows], groups[rows]
    count = int(groups.max()) + 1
    members = [np.flatnonzero(groups == group) for group in range(count)]
    reach = np.array([_reach(points[rows], len(points)) for rows in members])
    limits = np.clip(reach, reach[:, None], MAX_REACH_RATIO * reach[:, None])
    touches = np.zeros((len(points), count), bool)
    for group, rows in enumerate(members):
        limit, of_group = limits[groups, group], points[rows]
        near = np.flatnonzero((groups != group) & _is_in_box(points, of_group, limit.max()))
        if len(near):
            touches[near, group] = _nearest(points[near], of_group, limit.max()) <= limit[near]
    touches[limits[groups, groups] == 0] = False
    shares = np.array([touches[rows].mean(axis=0) for rows in members])
    return shares, np.array([touches[rows].any(axis=1).mean() for rows in members]), reach


def _is_in_box(points: NDArray[np.float64], others: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    """Return whether each of `points` (m,) lies within `limit` of the box around `others`.

    The points for which this is False are farther than `limit` from each of `others`, so that their distances need not
    be computed.
    """
    limit *= 1 + 1e-9  # a margin for rounded distances
    outside = np.maximum(others.min(axis=0) - points, points - others.max(axis=0))
    return np.asarray((outside <= limit).all(axis=1))


def _tree(points: NDArray[np.float64]) -> cKDTree:
    from scipy.spatial import cKDTree  # noqa: PLC0415 # slow, and not needed by API processes

    return cKDTree(points)


def _nearest(points: NDArray[np.float64], others: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Return the distance (m,) of each point to the nearest of `others`; distances above `limit` may be infinite."""
    if points.shape[1] <= MAX_TREE_DIMENSIONS:
        return np.asarray(_tree(others).query(points, distance_upper_bound=np.nextafter(limit, np.inf))[0])
    return kneighbors_to(np.ascontiguousarray(others), points, 1)[1][:, 0]


def _reach(points: NDArray[np.float64], n: int) -> float:
    r"""Return the reach of a cluster: the distance up to which a point of another cluster counts as touching it.

    Let :math:`r` be the median distance to the fifth neighbor, and :math:`D` the dimension that follows from the
    distances to up to 30 neighbors (Levina and Bickel, NeurIPS 2004), limited to the range from 1 to 2. The reach is
    :math:`r (k / 5)^{1 / D}`, about the distance to the k-th neighbor, with
    :math:`k = 5 (D - 1) + 2 (\log n + 3) (2 - D)`.

    On a surface (D = 2), k is 5. On a curve (D = 1), k is :math:`2 (\log n + 3)`, because random points on a curve
    leave gaps of up to :math:`\log n + 3` mean distances by chance (`CHANCE_GAP`), and a point has neighbors on two
    sides. `n` is the number of points in all clusters.
    """
    if len(points) < 2:
        return 0.0
    if len(points) == 2:
        return float(np.linalg.norm(points[0] - points[1]))
    k = min(DIMENSION_NEIGHBORS, len(points) - 1)
    if points.shape[1] <= MAX_TREE_DIMENSIONS:
        distance = _tree(points).query(points, k + 1)[0][:, 1:]
    else:
        distance = kneighbors(np.ascontiguousarray(points), k)[1]
    fifth = min(REACH_NEIGHBOR, k)
    usual = float(np.median(distance[:, fifth - 1]))
    distinct = distance[distance[:, 0] > 0]
    if k < MIN_POINTS_TO_CUT or not len(distinct):
        return usual
    dimension = intrinsic_dimension(distinct) * (k - 2) / (k - 1)  # removes the bias of few neighbors
    # For so few points the estimate is unreliable. It is averaged with the participation ratio of the variances, which
    # is near 1 for a short piece of a curve, because such a piece is nearly straight.
    if len(points) <= DIMENSION_NEIGHBORS:
        squares = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
        dimension = (min(dimension, 2) + squares.sum() ** 2 / (squares**2).sum()) / 2
    dimension = float(np.clip(dimension, 1, 2))
    needed = REACH_NEIGHBOR + (2 - dimension) * max(2 * (np.log(n) + CHANCE_GAP) - REACH_NEIGHBOR, 0.0)
    return float(usual * (needed / REACH_NEIGHBOR) ** (1 / dimension))
