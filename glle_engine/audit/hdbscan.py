r"""Clusters by HDBSCAN.

Campello, Moulavi and Sander, "Density-based clustering based on hierarchical density estimates", PAKDD 2013: single
linkage of the mutual reachability distances :math:`\max(d_{ij}, c_i, c_j)`, :math:`c` the distance to the m-th
neighbor, is cut where clusters of at least m points part, and the clusters with the largest excess of mass are
selected. The selection is made here and not by scikit-learn, because audits have to work without that extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray


def clusters_of(Y: NDArray[np.float64], min_size: int) -> NDArray[np.int64]:
    """Return each point's HDBSCAN cluster (n,) of at least `min_size` points, or -1 for points in no cluster."""
    core = kneighbors(np.ascontiguousarray(Y), min_size - 1)[1][:, -1]  # `min_size` counts the point itself
    clusters = _select_clusters(*_condense(_single_linkage(Y, core), min_size))
    return renumbered(clusters)


def renumbered(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber the groups (n,) of points from 0 without gaps, in the order of their numbers; -1 (no group) stays -1."""
    return np.searchsorted(np.unique(groups[groups >= 0]), groups) - (groups < 0)


def _single_linkage(points: NDArray[np.float64], core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the merges (n - 1, 4) as scipy does: two nodes, their distance, and the number of points of both.

    The distance of two of the points (n, d) is at least the core distance (n,) of each of them: mutual reachability.
    """
    from scipy.cluster.hierarchy import linkage  # noqa: PLC0415 # slow, and not needed by API processes
    from scipy.spatial.distance import pdist  # noqa: PLC0415

    n, distances, first = len(points), pdist(points), 0
    for row in range(n - 1):
        of_row = distances[first : (first := first + n - 1 - row)]
        np.maximum(of_row, np.maximum(core[row], core[row + 1 :]), out=of_row)
    return np.asarray(linkage(distances, "single"))


def _condense(linked: NDArray[np.float64], min_size: int) -> tuple[list[int], list[float], NDArray[np.int64]]:
    """Condense the merges `linked` of single linkage to clusters of at least `min_size` points, as HDBSCAN does.

    Returns the parent and the stability of each cluster, and the smallest cluster (n,) to which each point belongs.

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
    """Select the most stable clusters that do not contain each other; return each point's cluster (n,), or -1.

    `parents` has the smallest cluster that contains each cluster, and `stability` how long each cluster persists while
    the density rises, summed over its points (its excess of mass). `fallen` (n,) has the smallest cluster to which each
    point belongs. `_condense` returns all three. The root, cluster 0, is never selected.
    """
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
