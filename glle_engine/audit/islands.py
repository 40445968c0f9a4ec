r"""Islands of an embedding: its clusters that do not touch each other.

HDBSCAN finds the clusters (Campello, Moulavi and Sander, "Density-based clustering based on hierarchical density
estimates", PAKDD 2013): single linkage of the mutual reachability distances :math:`\max(d_{ij}, c_i, c_j)`, :math:`c`
the distance to the m-th neighbor, is cut where clusters of at least m points part, and the clusters with the largest
excess of mass are selected. A first pass looks for clusters of 8 points and 2 % of all points; a second pass looks for
smaller clumps within these, of at least 8 points. The linkage is scipy's; the selection is made here and not by
scikit-learn, because audits have to work without that extra.

A cluster is not yet an island: HDBSCAN cuts even a uniform disc, and random points on a curve have gaps. A gap is more
than chance if points of a distribution without the gap would hardly leave it open. Random points of density
:math:`\lambda` on a curve have a gap of length :math:`\delta` somewhere with a probability of about
:math:`n e^{-\lambda \delta}`, so that the gap has to be :math:`\log n + 3` times as long as the mean distance between
consecutive points. In two dimensions and more, points without a gap would lie on all sides of a cluster, and a gap as
wide as the distance to the fifth neighbor is enough. The *reach* of a cluster is the median distance to the fifth
neighbor in two dimensions and more, the longer gap on a curve, and a width in between for dimensions between one and
two.

A point touches another cluster if one of that cluster's points lies within the reach of the point's own cluster. If the
other cluster has the larger reach, that reach counts, up to 1.5 times the own one. A cluster is *isolated* if at most
2 % of its points touch another cluster, and at most a tenth of the share that would touch if the cluster itself were
cut in two. Clusters that touch are merged into one island, so that the islands of an embedding are isolated. Points
that lie far from every island, in clumps of fewer than 8, belong to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from glle_engine.base.randomness import generator
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors, kneighbors_to
from glle_engine.reliability.thresholds import (
    CHANCE_GAP,
    CUT_CONTACT,
    FAR_CLUMP,
    ISLAND_CONTACT,
    SMALL_ISLAND,
    WIDER_REACH,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_ISLAND_POINTS = 8  # points of the smallest island
INNER_NEIGHBOR = 5  # the distance to this neighbor is the reach in two dimensions and more
TREE_DIMENSIONS = 10  # up to here a k-d tree is faster than computing all distances
MANY = 5000  # above this number of points a random sample is compared
DIMENSION_NEIGHBORS = 30  # neighbors from which the dimension of a cluster is estimated
CUTS = (0.25, 0.5, 0.75)  # shares of the points on one side of cuts
MIN_CUT = 4  # fewest points that can be cut


def find_islands(Y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the island (n,) of each point of an embedding (n, p): 0 is the largest, and -1 is no island.

    Clumps of fewer than 8 points that lie far from every island belong to none. If no cluster is isolated, all other
    points belong to island 0. Of more than 5,000 points, a random sample is clustered.
    """
    n = len(Y)
    if n > MANY:
        rows = generator(n, 0).permutation(n)[:MANY]
        return np.asarray(find_islands(Y[rows])[cKDTree(Y[rows]).query(Y)[1]])
    if n < 2 * MIN_ISLAND_POINTS:
        return np.zeros(n, np.int64)
    islands = _with_small_islands(Y, _large_islands(Y))
    of_islands = islands[islands >= 0]
    order = np.argsort(-np.bincount(of_islands), kind="stable")
    islands[islands >= 0] = np.argsort(order)[of_islands]
    return islands


def _large_islands(Y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the island (n,) of each point, of islands with at least 8 points and 2 % of all points.

    A point without a cluster belongs to the island of the nearest point that has a cluster.
    """
    min_size = max(MIN_ISLAND_POINTS, int(SMALL_ISLAND * len(Y)))
    clusters = _clusters(Y, min_size) if len(Y) >= 2 * min_size else np.full(len(Y), -1)
    if not (is_known := clusters >= 0).any():
        return np.zeros(len(Y), np.int64)
    return _join_touching(Y, clusters[is_known][cKDTree(Y[is_known]).query(Y)[1]])


def _join_touching(Y: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join islands that touch until each is isolated; return the new island (n,) of each point, where -1 stays -1."""
    is_known = islands >= 0
    if not is_known.all():
        joined_islands = islands.copy()
        joined_islands[is_known] = _join_touching(Y[is_known], islands[is_known])
        return joined_islands
    while (count := int(islands.max()) + 1) > 1:
        touching, any_other = contact(Y, islands)
        limit = _most_contact(Y, islands)
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
    """Separate isolated clumps from the islands that contain them; return the new island (n,) of each point.

    A clump of at least 8 points becomes an island of its own. Points of smaller clumps belong to no island (-1).
    """
    split, count = islands.copy(), int(islands.max()) + 1
    for island in range(count):
        rows = np.flatnonzero(islands == island)
        if len(rows) >= 2 * MIN_ISLAND_POINTS:
            clumps = _grown(Y[rows], _clusters(Y[rows], MIN_ISLAND_POINTS))
            split[rows] = np.where(clumps >= 0, split.max() + 1 + clumps, -1)
    split = _join_touching(Y, numbered(split))
    is_large = np.bincount(split[split >= 0]) >= SMALL_ISLAND * len(Y)
    is_rest = (split >= 0) & is_large[split]
    return _join_touching(Y, numbered(np.where(is_rest, islands, np.where(split >= 0, split + count, -1))))


def _grown(Y: NDArray[np.float64], clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Let points without a cluster (-1) join one, the nearest point first; return the new cluster (n,) of each point.

    A chain of points thus joins the cluster at which it begins. A point that is farther from all clusters than
    `FAR_CLUMP` times the reach of all points starts a new clump, which becomes a cluster if it grows to 8 points.
    Points of smaller clumps stay without a cluster.
    """
    clusters = clusters.copy()
    if (clusters < 0).all():  # all points are one cluster, which grows from the denser half of its points
        core = kneighbors(np.ascontiguousarray(Y), MIN_ISLAND_POINTS - 1)[1][:, -1]
        clusters[core <= np.median(core)] = 0
    is_open = clusters < 0
    limit, count = FAR_CLUMP * (_reach(Y, len(Y)) or np.inf), int(clusters.max()) + 1
    rows = np.flatnonzero(is_open)
    distance, nearest = cKDTree(Y[~is_open]).query(Y[rows])
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
    return numbered(clusters)


def _clusters(Y: NDArray[np.float64], min_size: int) -> NDArray[np.int64]:
    """Return the cluster (n,) of each point by HDBSCAN, or -1, for clusters of at least `min_size` points."""
    core = kneighbors(np.ascontiguousarray(Y), min_size - 1)[1][:, -1]  # `min_size` counts the point itself
    return numbered(_select_clusters(*_condense(_single_linkage(Y, core), min_size)))


def numbered(islands: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return islands with numbers from 0 on without gaps; -1 stays -1."""
    return np.searchsorted(np.unique(islands[islands >= 0]), islands) - (islands < 0)


def isolated(points: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each island (m,) is isolated among points (n, d); points of no island (-1) are ignored."""
    points, islands = points[islands >= 0], islands[islands >= 0]
    touching = contact(points, islands)[1]
    holds = touching <= ISLAND_CONTACT
    for island in np.flatnonzero(holds & (touching > 0)):
        holds[island] = touching[island] <= CUT_CONTACT * _cut_contact(points[islands == island], len(points))
    return np.asarray(holds)


def _most_contact(points: NDArray[np.float64], islands: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest share (m,) of each island's points that may touch others while the island is isolated."""
    members = (points[islands == island] for island in range(int(islands.max()) + 1))
    return np.array([min(ISLAND_CONTACT, CUT_CONTACT * _cut_contact(each, len(points))) for each in members])


def _cut_contact(points: NDArray[np.float64], n: int) -> float:
    """Return the share of an island's points that would touch if the island were cut across its longest axis.

    The share is the median over three cuts.
    """
    if len(points) < MIN_CUT:
        return 0.0
    centered, reach, shares = points - points.mean(axis=0), _reach(points, n), []
    along = centered @ np.linalg.svd(centered, full_matrices=False)[2][0]
    for cut in CUTS:
        is_right = along > np.quantile(along, cut)
        sides = points[is_right], points[~is_right]
        touching = sum(int((_nearest(a, b, reach) <= reach).sum()) for a, b in (sides, sides[::-1]))
        shares.append(touching / len(points))
    return float(np.median(shares))


def contact(points: NDArray[np.float64], groups: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the share (g, g) of group i's points that touch group j, and the share (g,) that touch any group but i.

    Groups of one point touch no group. Of more than 5,000 points a random sample is compared, with at least one point
    of each group.
    """
    if len(points) > MANY:
        rng = generator(len(points), 1)
        first = np.unique(groups, return_index=True)[1]
        rows = np.union1d(rng.permutation(len(points))[:MANY], first)
        points, groups = points[rows], groups[rows]
    count = int(groups.max()) + 1
    members = [np.flatnonzero(groups == group) for group in range(count)]
    reach = np.array([_reach(points[rows], len(points)) for rows in members])
    limits = np.clip(reach, reach[:, None], WIDER_REACH * reach[:, None])
    touches = np.zeros((len(points), count), bool)
    for group, rows in enumerate(members):
        limit = limits[groups, group]
        touches[:, group] = _nearest(points, points[rows], limit.max()) <= limit
    touches[limits[groups, groups] == 0] = False
    touches[np.arange(len(points)), groups] = False
    shares = np.array([touches[rows].mean(axis=0) for rows in members])
    return shares, np.array([touches[rows].any(axis=1).mean() for rows in members])


def _nearest(points: NDArray[np.float64], others: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Return the distance (m,) of each point to the nearest of `others`; distances above `limit` may be infinite."""
    if points.shape[1] <= TREE_DIMENSIONS:
        return np.asarray(cKDTree(others).query(points, distance_upper_bound=np.nextafter(limit, np.inf))[0])
    return kneighbors_to(np.ascontiguousarray(others), points, 1)[1][:, 0]


def _reach(points: NDArray[np.float64], n: int) -> float:
    r"""Return the reach of a cluster: another cluster's point touches it within this distance of one of its points.

    Let :math:`r` be the median distance to the fifth neighbor, and :math:`D` the dimension that follows from the
    distances to up to 30 neighbors (Levina and Bickel, NeurIPS 2004), limited to the range from 1 to 2. The reach is
    :math:`r (k / 5)^{1 / D}`, about the distance to the k-th neighbor, with
    :math:`k = 5 + (2 - D) (2 \log n + 2 \cdot 3 - 5)`. The factors 2 are there because a point on a curve has
    neighbors on two sides.
    """
    if len(points) < 2:
        return 0.0
    if len(points) == 2:
        return float(np.linalg.norm(points[0] - points[1]))
    k = min(DIMENSION_NEIGHBORS, len(points) - 1)
    if points.shape[1] <= TREE_DIMENSIONS:
        distance = cKDTree(points).query(points, k + 1)[0][:, 1:]
    else:
        distance = kneighbors(np.ascontiguousarray(points), k)[1]
    fifth = min(INNER_NEIGHBOR, k)
    usual = float(np.median(distance[:, fifth - 1]))
    distinct = distance[distance[:, 0] > 0]
    if k < MIN_CUT or not len(distinct):
        return usual
    dimension = intrinsic_dimension(distinct) * (k - 2) / (k - 1)  # removes the bias of few neighbors
    if len(points) <= DIMENSION_NEIGHBORS:  # too few for this estimate: a piece of a curve is nearly straight
        squares = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
        dimension = (min(dimension, 2) + squares.sum() ** 2 / (squares**2).sum()) / 2
    dimension = float(np.clip(dimension, 1, 2))
    needed = INNER_NEIGHBOR + (2 - dimension) * max(2 * (np.log(n) + CHANCE_GAP) - INNER_NEIGHBOR, 0.0)
    return float(usual * (needed / INNER_NEIGHBOR) ** (1 / dimension))


def _single_linkage(points: NDArray[np.float64], core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the merges (n - 1, 4) of single linkage, as scipy does: two nodes, their distance, and their joint size.

    Distances are at least the core distances (n,) of both points: mutual reachability.
    """
    n, distances, first = len(points), pdist(points), 0
    for row in range(n - 1):
        of_row = distances[first : (first := first + n - 1 - row)]
        np.maximum(of_row, np.maximum(core[row], core[row + 1 :]), out=of_row)
    return np.asarray(linkage(distances, "single"))


def _condense(linked: NDArray[np.float64], min_size: int) -> tuple[list[int], list[float], NDArray[np.int64]]:
    """Return parent and stability of each cluster of `min_size` points or more, and each point's smallest cluster (n,).

    Cluster 0 is the root. The stability is the excess of mass: the sum, over the cluster's points, of the range of
    densities at which the point belongs to the cluster.
    """
    merges = [(int(left), int(right), length) for left, right, length, _ in linked.tolist()]
    n = len(merges) + 1
    sizes = [1] * n + linked[:, 3].astype(int).tolist()
    shortest = 1e-12 * (merges[-1][2] or 1.0)
    parents, births, stability = [-1], [0.0], [0.0]
    fallen = np.zeros(n, np.int64)
    waiting = [(2 * n - 2, 0)]
    while waiting:
        node, cluster = waiting.pop()
        left, right, length = merges[node - n]
        density = 1 / max(length, shortest)
        gain = density - births[cluster]
        children = (left, right)
        if min(sizes[left], sizes[right]) >= min_size:
            stability[cluster] += gain * sizes[node]
            for child in children:
                parents.append(cluster)
                births.append(density)
                stability.append(0.0)
                waiting.append((child, len(parents) - 1))
            continue
        for child in children:
            if sizes[child] >= min_size:
                waiting.append((child, cluster))
                continue
            stability[cluster] += gain * sizes[child]
            leaves = [child]
            while leaves:
                leaf = leaves.pop()
                if leaf < n:
                    fallen[leaf] = cluster
                else:
                    leaves += merges[leaf - n][:2]
    return parents, stability, fallen


def _select_clusters(parents: list[int], stability: list[float], fallen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the selected cluster of each point, or -1; the root is never selected."""
    children: list[float] = [0.0] * len(parents)
    is_selected = [False] * len(parents)
    for cluster in range(len(parents) - 1, 0, -1):  # children have larger numbers
        is_selected[cluster] = stability[cluster] >= children[cluster]
        children[parents[cluster]] += max(stability[cluster], children[cluster])
    chosen = [-1] * len(parents)
    for cluster in range(1, len(parents)):
        above = chosen[parents[cluster]]
        chosen[cluster] = above if above >= 0 else cluster if is_selected[cluster] else -1
    return np.array(chosen)[fallen]
