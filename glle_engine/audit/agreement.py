"""Agreement of an embedding with the data: shared neighbors, points that the embedding folds together, and distances.

An embedding that another sample reproduces can still be wrong: if a method lays two sheets on top of each other, it
does so in every sample. An audit therefore also compares the embedding with the data. If the data have many features,
noise hides neighbors and distances. The embedding is then also compared with the first ten principal components, and
the larger agreement counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.audit.fidelity import COMPONENTS, Fidelity
from glle_engine.base.progress import silent
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.linalg.distances import nearest_rows
from glle_engine.methods.linear.pca import principal_axes
from glle_engine.reliability.thresholds import FAR_RANK_RATIO, FAR_RATIO_IN_DATA

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPARED_POINTS = 1000  # at most this many random points are compared


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of an embedding with the data, measured on at most 1,000 random points.

    Attributes
    ----------
    kept : float in [0, 1]
        Share of each point's k nearest neighbors in the data that are among its k nearest in the embedding.
    by_chance : float
        The value of `kept` that is expected for random positions.
    near : float in [0, 1]
        Share of each point's k nearest neighbors in the embedding that are not far from it in the data (as
        `far_neighbors` defines far).
    straight, along : float
        Rank correlation of distances in the embedding with Euclidean distances in the data, and with distances along
        the data: the lengths of shortest paths over nearest neighbors.

    """

    kept: float
    by_chance: float
    near: float
    straight: float
    along: float

    __repr__ = brief


def measure_agreement(points: NDArray[np.float64], Y: NDArray[np.float64], k: int, seed: int = 0) -> Agreement:
    """Measure how an embedding Y (n, p) agrees with the data (n, d): in k nearest neighbors, and in distances."""
    rows = generator(seed, len(Y)).permutation(len(Y))
    rows = np.sort(rows[:COMPARED_POINTS])
    points, Y = points[rows], np.ascontiguousarray(Y[rows])
    k = min(k, len(rows) // 5)
    near, everything = kneighbors(Y, k)[0], np.arange(len(rows))
    spaces = spaces_of(points)
    kept = max(float(shared(kneighbors(space, k)[0], near).mean()) for space in spaces)
    is_near = float(1 - far_neighbors(spaces, near, everything, k).mean())
    layouts = [Fidelity.from_points(space, seed).layout(Y) for space in spaces]
    straight, along = (max(each) for each in zip(*layouts, strict=True))
    return Agreement(kept, k / (len(rows) - 1), is_near, straight, along)


def far_neighbors(
    spaces: list[NDArray[np.float64]],
    near: NDArray[np.int32],
    rows: NDArray[np.intp],
    k: int,
    least: float = 0.0,
) -> NDArray[np.bool_]:
    """Return a mask (n, m): which of each point's neighbors `near` (n, m) in an embedding are far from it in the data.

    `spaces` are the data (n, d) and, of many features, their principal components (`spaces_of`). A neighbor has to be
    far from the point in each of these spaces.

    In a space, two points are far from each other if neither is among the 3 k nearest neighbors of the other, and their
    distance exceeds 1.5 times the distance of each of the two to its k-th neighbor. These neighbors are searched only
    among the points `rows`. Ranks alone would not do: in groups that fill many dimensions all distances are about
    equal, and most pairs would count as far.

    `least` is for callers who only ask which points have more than this share of far neighbors. All entries of the
    other points are then False, which saves the search for their neighbors in the data.
    """
    is_far, points, others = np.ones(near.shape, bool), np.arange(len(near)), np.unique(near).astype(np.intp)
    width = min(FAR_RANK_RATIO * k, len(rows) - 2)
    last = min(k, width) - 1
    for space in spaces:
        in_data, distances = nearest_among(space, rows, width, others)
        limit, place = np.zeros(len(near)), np.full(len(near), -1)
        limit[others], place[others] = distances[:, last], np.arange(len(others))
        apart = distances_between(space[points], space, near[points])
        is_far[points] &= apart > FAR_RATIO_IN_DATA * limit[near[points]]
        is_open = is_far[points].mean(axis=1) > least
        points, apart = points[is_open], apart[is_open]
        unknown = points[place[points] < 0]
        if len(unknown):
            more, distances = nearest_among(space, rows, width, unknown)
            limit[unknown], place[unknown] = distances[:, last], len(in_data) + np.arange(len(unknown))
            in_data = np.concatenate([in_data, more])
        for column, others_of_points in enumerate(near[points].T):
            is_near = (in_data[place[points]] == others_of_points[:, None]).any(axis=1)
            is_near |= (in_data[place[others_of_points]] == points[:, None]).any(axis=1)
            is_far[points, column] &= ~is_near & (apart[:, column] > FAR_RATIO_IN_DATA * limit[points])
        points = points[is_far[points].mean(axis=1) > least]
    is_kept = np.zeros(len(near), bool)
    is_kept[points] = True
    return is_far & is_kept[:, None]


def spaces_of(points: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the spaces in which neighbors are compared: the points (n, d), and ten components of them if d > 10."""
    points = np.ascontiguousarray(points)
    if points.shape[1] <= COMPONENTS or len(points) <= COMPONENTS + 1:
        return [points]
    return [points, np.ascontiguousarray(principal_axes(points, COMPONENTS, silent).scores)]


def nearest_among(
    points: NDArray[np.float64], rows: NDArray[np.intp], k: int, chosen: NDArray[np.intp] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """For each point (n, d), find the k nearest points among `rows`, other than itself; return row numbers, distances.

    Both results are (n, k). With `chosen` (m,), only the neighbors of these rows of `points` are found, and both
    results are (m, k).
    """
    points = np.ascontiguousarray(points)
    if len(rows) == len(points) and (chosen is None or len(chosen) == len(points)):
        return kneighbors(points, k)
    own_row = np.full(len(points), -1)
    own_row[rows] = np.arange(len(rows))
    searched = points if chosen is None else points[chosen]
    near, distances = nearest_rows(points[rows], searched, own_row if chosen is None else own_row[chosen], k)
    return rows.astype(np.int32)[near], distances


def shared(first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the share (n,) of each point's neighbors `first` (n, k) that are also in its neighbors `second` (n, k)."""
    return np.asarray((first[:, :, None] == second[:, None, :]).any(axis=2).mean(axis=1))


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of values; 0 for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
