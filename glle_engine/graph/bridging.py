"""Edges that connect a kNN graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.connectivity import closed_classes, edges
from glle_engine.graph.neighbors import kneighbors_to
from glle_engine.graph.relations import Distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data

_ROUNDS = 64


def bridge(
    X: Data, nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None, list[tuple[int, int]]]:
    """Redirect few edges so that the graph has one closed class, and so one component.

    Adds the shortest edge that leaves each closed class, in place of its start's furthest neighbor, until one class
    remains: every point then reaches it.

    Parameters
    ----------
    X : (n, d) float64, or Distances
    nearest : (n, k) int32
        Nearest first.
    kept : (n, k) bool or None
        The neighbors among the candidates; None if all are.

    Returns
    -------
    nearest, kept
        Copies with bridges at the end of their rows, or in the place of a candidate with the same end.
    bridges : list of (from, to)
        Empty if the graph was connected.

    """
    nearest = nearest.copy()
    kept = None if kept is None else kept.copy()
    held = np.zeros(len(X), np.intp)  # bridges of each point, kept by later ones
    bridges: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        classes = closed_classes(edges(nearest, kept))
        if len(classes) == 1:
            break
        for members in classes:
            free = members[held[members] < nearest.shape[1] - 1]
            outside = np.ones(len(X), bool)
            outside[members] = False
            start, end = _closest_pair(X, free, np.flatnonzero(outside))
            column = np.flatnonzero(nearest[start] == end)  # a dropped candidate
            if not len(column):
                held[start] += 1
                column = nearest.shape[1] - held[start : start + 1]
                nearest[start, column] = end
            if kept is not None:
                kept[start, column] = True
            bridges.append((start, end))
    return nearest, kept, bridges


def _closest_pair(X: Data, a: NDArray[np.intp], b: NDArray[np.intp]) -> tuple[int, int]:
    """Return the closest pair of points of two sets; of several, the one of smallest indices."""
    if isinstance(X, Distances):
        return X.closest(a, b)
    index, distance = kneighbors_to(X[b], X[a], 1)
    best = int(np.argmin(distance))
    return int(a[best]), int(b[index[best, 0]])
