"""Fit any method again to random halves of the data, to see how its embedding varies.

A method is fitted to a half with smaller numbers of neighbors (`shrunk`). The other points are then placed by the
method's own map for new points, unless this map uses neighbors; by an affine map, fitted to the half, if a linear
method has no map; and otherwise by LLE weights on the points of the half. LLE weights would be a poor map for a linear
method: they inflate the spread of PCA 1.6 to 2.8 times. For half j, a random method has the seed of its parameters plus
1 + j.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, get_args

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, GlleError, InvalidParameterError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.space import Space
from glle_engine.base.spec import Metric
from glle_engine.base.texts import Way
from glle_engine.base.validation import Unit, finite_matrix
from glle_engine.graph.relations import Distances
from glle_engine.methods.maps import AffineMap, NeighborMap
from glle_engine.methods.parameters import GraphSpec, MethodSpec, RaisingSpec
from glle_engine.methods.registry import method as method_of
from glle_engine.reliability.resamples import Embedder, placed_by_weights, require_enough_for_halves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.graph.relations import Data
    from glle_engine.methods.base import Embedding, Method
    from glle_engine.reliability.resamples import Sample

S = TypeVar("S", bound=MethodSpec)
HALF = 0.5
_MIN_NEIGHBORS = 5  # with fewer neighbors, the graph of points on a plane is often disconnected
_SEEDS = 2**63


@dataclass(frozen=True, eq=False)
class MethodEmbedder(Embedder, Generic[S]):
    """Embeds random halves of the data by any method with its parameters, and places the other points.

    Attributes
    ----------
    X : (n, d) float64
        The data, or distances (n, n) for parameters with "precomputed".
    method : Method
    spec : MethodSpec
        The parameters of the method.

    """

    X: NDArray[np.float64]
    method: Method[S]
    spec: S

    def __reduce__(self) -> tuple[Any, ...]:  # a method has functions that cannot be pickled: pickle its name
        return _embedder_of, (self.X, self.method.name, self.spec, self.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""
        return len(self.X), self.spec.n_components

    @cached_property
    def data(self) -> NDArray[np.float64]:
        """X as a float64 array; raises `NotFiniteError` or `InvalidShapeError` if X is no matrix of finite numbers."""
        return finite_matrix(self.X)

    @cached_property
    def located(self) -> tuple[Data, int]:
        """A pair (points, e): the Euclidean distances of the points, times 2^e, are distances by the method's metric.

        The points are divided by 2^e to keep squares in range. For precomputed distances, the first item is these
        distances divided by 2^e, as `Distances`.
        """
        if self.spec.precomputed:
            exponent = int(np.frexp(float(self.data.max()))[1])
            return Distances.among(np.ldexp(self.data, -exponent)), exponent
        points = Space.from_data(self.data, self.spec).points(self.data)
        unit = Unit.from_data(points)
        return unit.scale(points), unit.exponent

    def require_possible(self) -> None:
        """Raise a `GlleError` if the method cannot embed half of the points; only sizes and parameters are examined."""
        n, d = self.data.shape
        require_resamplable(n, d, self.method, self.spec)

    def _of_rows(self, rows: NDArray[np.intp]) -> Self:
        return replace(self, X=self.X[np.ix_(rows, rows)] if self.spec.precomputed else self.X[rows])

    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:
        """Embed the points of a sample, place the other points, and return the positions (n, p) of all points."""
        embedding = self._refit(sample, on_progress)
        points, _ = self.located
        place, rest = embedding.map, self.data[sample.others]
        place = None if isinstance(place, NeighborMap) else place
        if place is None and self.method.linear and isinstance(points, np.ndarray):
            place, rest = affine_map(np.ascontiguousarray(points[sample.chosen]), embedding.Y), points[sample.others]
        if place is None:
            return placed_by_weights(points, sample, embedding.Y)
        placed = np.empty(self.shape)
        placed[sample.chosen], placed[sample.others] = embedding.Y, place.transform(rest)
        return placed

    def _refit(self, sample: Sample, on_progress: OnProgress) -> Embedding:
        """Return the method's embedding of the points `sample.chosen`, without the other points."""
        chosen = sample.chosen
        data = self.data[np.ix_(chosen, chosen)] if self.spec.precomputed else self.data[chosen]
        return embed_again(self.method, self.spec, data, sample.number, HALF, on_progress)


def embed_again(
    method: Method[S],
    spec: S,
    data: NDArray[np.float64],
    number: int,
    share: float,
    on_progress: OnProgress = silent,
) -> Embedding:
    """Embed `data`, which are a `share` of all points, with smaller numbers of neighbors (`shrunk`).

    A random method gets the seed of `spec` plus 1 + `number`. The numbers of neighbors stay as they are if the method
    refuses the smaller values, or if the smaller neighbor graph is disconnected. A disconnected graph with the original
    numbers is then treated as `spec` says.
    """
    if method.random:
        spec = replace(spec, seed=(getattr(spec, "seed", 0) + 1 + number) % _SEEDS)  # type: ignore[call-arg] # random methods have a seed
    is_joining = isinstance(spec, GraphSpec | RaisingSpec) and spec.disconnected in {"bridge", "neighbors"}
    changes = shrunk(spec, share) | ({"disconnected": "error"} if is_joining else {})
    try:
        return method.embed(data, replace(spec, **changes), on_progress)
    except (DisconnectedGraphError, InvalidParameterError):
        return method.embed(data, spec, on_progress)


def _embedder_of(
    X: NDArray[np.float64],
    name: str,
    spec: MethodSpec,
    blocks: NDArray[np.int64] | None,
) -> MethodEmbedder[Any]:
    return MethodEmbedder(X, method_of(name), spec, blocks=blocks)


def shrunk(spec: MethodSpec, share: float = HALF) -> dict[str, Any]:
    r"""Return the parameters that have to be smaller for a fit to a share of the points, as a dictionary of new values.

    Perplexity and numbers of neighbors and of landmarks are divided by :math:`\sqrt 2` for half of the points, and by
    :math:`\sqrt{1 / \varphi}` for a share phi; integers are rounded up. For halves this is a compromise. If k were
    divided by 2, neighborhoods would reach as far as in the data, but the graph of a sheet with k = 10 would tear. If k
    were unchanged, neighborhoods would reach to the next turn of a rolled sheet. No value falls below 5, and values
    below 5 do not change.
    """
    changes = {}
    for name, parameter in spec.parameters().items():
        value = getattr(spec, name)
        if parameter.counts and isinstance(value, (int, float)) and value > 0:
            less = value * math.sqrt(share)
            changes[name] = max(less if isinstance(value, float) else math.ceil(less), min(value, _MIN_NEIGHBORS))
    return changes


def require_unlabeled(method: Method[S], spec: S) -> None:
    """Raise `InvalidParameterError` for a method that uses labels, because an audit embeds samples without labels."""
    if method.needs_labels(spec):
        raise InvalidParameterError(
            f"{method.title} uses labels, but an audit has no labels for the other samples that it would embed.",
            remedy=f"Audit the coordinates of the map by {method.title} together with the data: that shows where the "
            "map tears the data.",
        )


def require_resamplable(n: int, d: int, method: Method[Any], spec: MethodSpec) -> None:
    """Raise a `GlleError` if a method with parameters `spec` cannot be fitted to half of n points with d features.

    Only sizes and parameters are examined.
    """
    require_unlabeled(method, spec)
    if (name := spec.precomputed) in {"kernel", "weights"}:
        raise InvalidParameterError(
            f"With {name}='precomputed' halves of the data cannot be embedded, because such a matrix gives no "
            "distances between the points.",
            remedy=f"Give the points with another {name}, or the distances of all pairs with "
            f"{Way('metric', 'precomputed')} and another method.",
        )
    if spec.space[1] not in get_args(Metric):
        raise InvalidParameterError(
            f"With {Way('metric', spec.space[1])} halves of the data cannot be embedded and compared; with "
            f"{', '.join(get_args(Metric))} they can.",
            remedy=f"Use one of these metrics, or give the distances of all pairs with {Way('metric', 'precomputed')}.",
        )
    half = n // 2
    features = half if spec.precomputed else d
    method.require_possible(n, d, spec)
    require_enough_for_halves(n)
    with suppress(GlleError):
        method.require_possible(half, features, replace(spec, **shrunk(spec)))
        return
    try:
        method.require_possible(half, features, spec)
    except GlleError as refusal:
        raise InvalidParameterError(
            f"{method.title} cannot be refitted to half of the {n} points. " + refusal.message,
            remedy=refusal.remedy,
            details=refusal.details,
        ) from refusal


def affine_map(points: NDArray[np.float64], Y: NDArray[np.float64]) -> AffineMap:
    """Return the affine map from points (m, d) to positions Y (m, p) by least squares.

    If several maps fit equally well, the result is the one with the smallest coefficients.
    """
    mean, center = points.mean(axis=0), Y.mean(axis=0)
    components = np.linalg.lstsq(points - mean, Y - center, rcond=None)[0].T
    shift = np.linalg.lstsq(components, center, rcond=None)[0]
    return AffineMap(mean - shift, components)
