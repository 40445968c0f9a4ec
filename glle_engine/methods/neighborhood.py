"""Neighbourhoods as the methods use them: the k nearest, refused where their graph is not connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.connectivity import components, smallest_connecting_k
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.parameters import MethodSpec, integer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class NeighborSpec(MethodSpec):
    """The parameters of a method on neighbourhoods."""

    n_neighbors: int = integer(10, "k, the number of neighbours of a point.", least=2)


def connected_neighbors(
    X: NDArray[np.float64], n_neighbors: int, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest of each point and their distances, both (n, k), nearest first.

    Raises
    ------
    DisconnectedGraphError
        With the smallest k that connects.

    """
    nearest, distances = kneighbors(X, n_neighbors, on_progress)
    require_connected(X, nearest)
    return nearest, distances


def require_connected(X: NDArray[np.float64], nearest: NDArray[np.int32]) -> None:
    """Raise `DisconnectedGraphError`, with sizes and the smallest k that connects, unless one component."""
    label = components(nearest)
    count = int(label.max()) + 1
    if count == 1:
        return
    k = nearest.shape[1]
    enough = smallest_connecting_k(X, k)
    remedy = (
        f"The smallest n_neighbors that connects it is {enough}."
        if enough
        else "No n_neighbors of reasonable size connects it: embed each component as data of its own."
    )
    raise DisconnectedGraphError(
        f"With n_neighbors={k} the graph falls into {count} components.",
        remedy=remedy,
        details={"n_neighbors": k, "components": count, "smallest_connecting_k": enough},
    )
