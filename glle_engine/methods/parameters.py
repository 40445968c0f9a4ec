"""Parameters that several methods share, and the checks that refuse impossible values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError, TooFewPointsError
from glle_engine.base.parameters import Parameter, boolean, choice, integer, number
from glle_engine.base.spec import (
    Disconnected,
    Metric,
    SpaceSpec,
    Standardize,
    metric_parameter,
    standardize_parameter,
)
from glle_engine.base.texts import Way
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.connectivity import require_connected
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import bridged_graph, neighbor_graph, neighbors_of_others

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.radius import NeighborGraph
    from glle_engine.graph.relations import Data

__all__ = [
    "DistanceSpec",
    "GraphSpec",
    "MethodSpec",
    "NeighborSpec",
    "Parameter",
    "RadiusSpec",
    "RaisingSpec",
    "boolean",
    "choice",
    "integer",
    "number",
    "of_neighborhoods",
    "of_pairs",
    "require_points",
    "require_size",
]

# To connect a graph, the number k of neighbors is raised only if n k^2, the number of pairs of points in all
# neighborhoods, is at most this: the embedding then takes some seconds.
_MAX_NEIGHBORHOOD_PAIRS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class MethodSpec(SpaceSpec):
    """The parameters that every method has; a method with more parameters uses a subclass."""

    n_components: int = integer(2, "p, the dimension of the embedding.", minimum=1)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` with a remedy if n points of d features cannot be embedded with these parameters."""
        self.require_rank(n, d)

    @property
    def uses_labels(self) -> bool:
        """Whether these parameters make the method need labels; False unless a subclass says otherwise."""
        return False

    def most_neighbors(self, n: int) -> int:
        """Return the largest n_neighbors with which n points can be embedded; a larger default is lowered to it."""
        return n - 1

    def require_rank(self, n: int, d: int) -> None:
        """Raise `InvalidParameterError` if there are more components than min(n - 1, d).

        This is the number of dimensions that n centered points of d features can span.
        """
        p, rank = self.n_components, min(n - 1, d)
        if p > rank:
            raise InvalidParameterError(
                f"{Way('n_components', p)} is more than the {rank} dimensions that {n} points of {d} feature(s) span.",
                remedy=f"Give {Way('n_components')} of at most {rank}." if rank else "Give at least two points.",
                details={"n_components": p, "most": rank},
            )

    def require_noise_dimension(self, n: int, d: int, title: str) -> None:
        """Raise `InvalidParameterError` unless there are fewer components than min(n - 1, d).

        A model with noise needs at least one dimension for the noise. `title` is the method's name in the message.
        """
        p, max_components = self.n_components, min(n - 1, d) - 1
        if p > max_components:
            raise InvalidParameterError(
                f"{title} needs at least one dimension more than {Way('n_components', p)} for its noise, but {n} "
                f"points of {d} feature(s) span only {max_components + 1}.",
                remedy=f"Give {Way('n_components')} of at most {max_components}."
                if max_components > 0
                else "Give more points or features, or take PCA.",
                details={"n_components": p, "most": max_components},
            )


@dataclass(frozen=True, kw_only=True)
class DistanceSpec(MethodSpec):
    """Parameters of a method that uses distances between points."""

    standardize: Standardize = standardize_parameter()
    metric: Metric = metric_parameter()


@dataclass(frozen=True, kw_only=True)
class NeighborSpec(DistanceSpec):
    """Parameters of a method that uses the nearest neighbors of each point."""

    n_neighbors: int = integer(10, "k, the number of neighbors of a point.", minimum=2, counts=True)

    def require_possible(self, n: int, d: int) -> None:
        """Raise `TooFewPointsError` if n points are too few for `n_neighbors` and `n_components`."""
        require_enough_points(n, self)

    def require_neighbors(self, title: str, minimum: int, rule: str) -> None:
        """Raise `InvalidParameterError` if `n_neighbors` is below `minimum`.

        The message begins with the method's `title`, and states the bound by `rule`, such as "at least p + 2 = 4".
        """
        if self.n_neighbors < minimum:
            raise InvalidParameterError(
                f"{title} in {self.n_components} dimensions needs {rule} neighbors, not {self.n_neighbors}.",
                remedy=f"Give {Way('n_neighbors')} of at least {minimum}, or fewer components.",
                details={"n_neighbors": self.n_neighbors, "least": minimum},
            )


@dataclass(frozen=True, kw_only=True)
class GraphSpec(MethodSpec):
    """Parameters of a method that needs a connected neighbor graph and can use edges that are added to connect it.

    If the graph falls into parts, the shortest edges between the parts are added, or an error is raised. A method for
    which a few added edges are no help has `RaisingSpec` instead.
    """

    disconnected: str = choice(
        "bridge",
        "What to do if the neighbor graph falls into several parts: join them by the shortest edges between them, with "
        "a note (bridge), or raise an error (error).",
        *get_args(Disconnected),
    )

    def graph(
        self, X: Data, on_progress: OnProgress, n_neighbors: int | None = None
    ) -> tuple[NeighborGraph, list[tuple[int, int]]]:
        """Return the connected neighbor graph of X (n, d), and its bridges: the edges (i, j) added to connect it.

        `n_neighbors`, if not None, replaces the number of neighbors of the specification. Raises
        `DisconnectedGraphError` if the graph falls into several parts and `disconnected` is "error".
        """
        fields = vars(self)  # a subclass has n_neighbors, a number or "all", and may have a radius
        k = fields["n_neighbors"] if n_neighbors is None else n_neighbors
        k = len(X) - 1 if k == "all" else k
        if self.disconnected == "bridge":
            return bridged_graph(X, k, fields.get("radius"), on_progress)
        return neighbor_graph(X, k, fields.get("radius"), on_progress), []


@dataclass(frozen=True, kw_only=True)
class RaisingSpec(NeighborSpec):
    """Parameters of a method that needs a connected neighbor graph, but would gain nothing from a few added edges.

    If the graph falls into parts, the number of neighbors is raised until the graph is connected, or an error is
    raised.
    """

    disconnected: str = choice(
        "neighbors",
        "What to do if the neighbor graph falls into several parts: take the smallest number of neighbors that "
        "connects it, with a note (neighbors), or raise an error (error).",
        "neighbors",
        "error",
    )

    def neighbors(self, X: Data, on_progress: OnProgress) -> NDArray[np.int32]:
        """Return the nearest neighbors (n, k) of each point of X (n, d), nearest first, in a connected graph.

        k is `n_neighbors`, or the smallest larger number that connects the graph.

        Raises
        ------
        DisconnectedGraphError
            If the graph with `n_neighbors` falls into parts, and one of these is true: `disconnected` is "error"; no k
            connects the graph; the k that connects it is so large that n k^2 exceeds 2^24, with which the embedding
            would take too long.

        """
        nearest, _ = kneighbors(X, self.n_neighbors, on_progress)
        try:
            require_connected(X, nearest)
        except DisconnectedGraphError as refusal:
            k = refusal.details["smallest_connecting_k"]
            if self.disconnected == "error" or k is None or len(X) * k**2 > _MAX_NEIGHBORHOOD_PAIRS:
                raise
            nearest, _ = kneighbors(X, k, on_progress)
        return nearest


@dataclass(frozen=True, kw_only=True)
class RadiusSpec(GraphSpec, DistanceSpec):
    """Parameters of a method whose neighbors are the k nearest points, or instead all points within a radius."""

    radius: float | None = number(
        None,
        "Distance within which all points are neighbors, in place of n_neighbors; in units of the data, after "
        "standardize and metric.",
        above=0,
    )

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if a number of neighbors is given in addition to a radius."""
        super().check_together()
        if self.radius is not None:
            self.refuse_unused("radius", "n_neighbors")

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points; with a `radius`, the number of neighbors is not checked."""
        if self.radius is None:
            super().require_possible(n, d)
        else:
            counts: dict[str, Any] = {"radius": None, "n_neighbors": 2}
            replace(self, **counts).require_possible(n, d)

    def graph_to(self, X: NDArray[np.float64], points: NDArray[np.float64]) -> NeighborGraph:
        """Return the neighbors of new points (m, d) among the rows of X: the k nearest, or all within `radius`."""
        return neighbors_of_others(X, points, vars(self)["n_neighbors"], self.radius)


def of_pairs(count: int) -> Callable[[MethodSpec, int], int]:
    """Return the function (spec, n) -> count n^2, for the field `doubles` of a `Method`.

    This field is a lower bound of the float64 numbers that a method holds in memory: here, `count` matrices (n, n).
    """
    return lambda _, n: count * n * n


def of_neighborhoods(count: int) -> Callable[[NeighborSpec, int], int]:
    """Return the function (spec, n) -> count n k^2: the size of `count` arrays (n, k, k), for `Method.doubles`."""
    return lambda spec, n: count * n * spec.n_neighbors**2


def require_points(n: int, min_points: int, reason: str) -> None:
    """Raise `TooFewPointsError` if n is below `min_points`, which `reason`, such as "n_components=2", requires."""
    if n < min_points:
        raise TooFewPointsError(
            f"{reason} needs at least {min_points} points, not {n}.",
            remedy=f"Give at least {min_points} points, or a smaller value.",
            details={"n_points": n, "least": min_points},
        )


def require_size(n: int, max_points: int, title: str, instead: str) -> None:
    """Raise `InvalidParameterError` if n is above `max_points`, the largest number of points for the method `title`.

    The remedy names `instead`, a method that takes more points.
    """
    if n > max_points:
        raise InvalidParameterError(
            f"{title} takes at most {max_points:,} points; the data have {n:,}.",
            remedy=f"Give at most {max_points:,} points, or take {instead}.",
            details={"n_points": n, "most": max_points},
        )
