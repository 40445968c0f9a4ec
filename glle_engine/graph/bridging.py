"""Edges that make a kNN graph whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.graph.connectivity import closed_classes, edges
from glle_engine.graph.neighbors import kneighbors_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS = 64


def bridge(
    X: NDArray[np.float64], nearest: NDArray[np.int32], kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.bool_] | None, list[tuple[int, int]]]:
    """Redirect as few edges as it takes for the graph to have one closed class, and so one component.

    From every closed class the shortest edge that leaves it is added, in place of its start's furthest
    neighbour, until one class is left: every point then reaches it.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        Nearest first.
    kept : (n, k) bool or None
        Which of them are neighbours, where not all are.

    Returns
    -------
    nearest : (n, k) int32
        A copy; bridges stand at the end of their rows, or where their end was a candidate already.
    kept : (n, k) bool or None
        A copy, bridges included.
    bridges : list of (from, to)
        Empty when the graph was whole.

    """
    nearest = nearest.copy()
    kept = None if kept is None else kept.copy()
    held = np.zeros(len(X), np.intp)  # bridges of each point, which later ones must not undo
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
            known = np.flatnonzero(nearest[start] == end)  # a candidate that was dropped
            if not len(known):
                held[start] += 1
                known = nearest.shape[1] - held[start : start + 1]
                nearest[start, known] = end
            if kept is not None:
                kept[start, known] = True
            bridges.append((start, end))
    return nearest, kept, bridges


def _closest_pair(X: NDArray[np.float64], a: NDArray[np.intp], b: NDArray[np.intp]) -> tuple[int, int]:
    """Return the closest pair of points of two sets, one of each; of several the one of smallest indices."""
    index, distance = kneighbors_to(X[b], X[a], 1)
    best = int(np.argmin(distance))
    return int(a[best]), int(b[index[best, 0]])
