"""Helpers for methods that other libraries compute: scikit-learn's metrics, and options passed on to a library."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.parameters import require_known_names
from glle_engine.base.spec import FurtherMetric, Metric, metric_parameter
from glle_engine.base.texts import Text, Way
from glle_engine.graph.neighbors import kneighbors, kneighbors_to
from glle_engine.methods.parameters import DistanceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data

# For these metrics, only whether a value is 0 matters.
_BINARY = {"jaccard", "dice", "russellrao", "rogerstanimoto", "sokalsneath", "yule"}
_HAVERSINE_COLUMNS = 2  # number of columns for haversine: latitude and longitude


@dataclass(frozen=True, kw_only=True)
class FurtherDistanceSpec(DistanceSpec):
    """Parameters of a method whose `metric` may also be one of scikit-learn's, such as "manhattan" or "jaccard"."""

    metric: FurtherMetric = metric_parameter(  # type: ignore[assignment] # more metrics than the base has
        FurtherMetric,
        " The other metrics are scikit-learn's; haversine takes latitude and longitude in radians, and "
        f"{', '.join(sorted(_BINARY))} ask of each value whether it is 0.",
    )

    @property
    def is_further(self) -> bool:
        """Whether scikit-learn must search the neighbors, because the engine's own search lacks the metric."""
        return self.metric not in get_args(Metric)

    def require_columns(self, d: int) -> None:
        """Raise `InvalidParameterError` if the metric is haversine and d, the number of features, is not two."""
        if self.metric == "haversine" and d != _HAVERSINE_COLUMNS:
            raise InvalidParameterError(
                Text(Way("metric", "haversine"), f" takes latitude and longitude, not {d} features."),
                remedy="Give two columns in radians, or another metric.",
            )


def nearest_points(
    X: Data, k: int, spec: FurtherDistanceSpec, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest other points of each point (n, k), by the metric of `spec`, and their distances (n, k)."""
    if not spec.is_further:
        return kneighbors(X, k, on_progress)
    on_progress(0, 1, "neighbors")
    distances, indices = _search(X, spec).kneighbors(n_neighbors=k)
    return indices.astype(np.int32), distances


def nearest_to(
    X: Data, points: NDArray[np.float64], k: int, spec: FurtherDistanceSpec
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k rows of X (n, d) that are nearest to each new point (m, d), and their distances, both (m, k)."""
    if not spec.is_further:
        return kneighbors_to(X, points, k)
    distances, indices = _search(X, spec).kneighbors(_comparable(points, spec), k)
    return indices.astype(np.int32), distances


def _search(X: Any, spec: FurtherDistanceSpec) -> Any:
    """Return scikit-learn's exact neighbor search with the metric of `spec`, fitted to X (n, d)."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 -- installed with the libraries; slow to import

    return NearestNeighbors(metric=spec.metric, algorithm="brute").fit(_comparable(X, spec))


def _comparable(points: Any, spec: FurtherDistanceSpec) -> Any:
    return points != 0 if spec.metric in _BINARY else points


def library_options(
    library: str, maker: Callable[..., Any], spec: Any, taken: Iterable[str], parameters: Mapping[str, str]
) -> dict[str, Any]:
    """Check the `options` of a specification, and return them as keyword arguments of a library's class `maker`.

    `taken` are arguments of `maker` that cannot be given as options, because the method sets them or they would have no
    effect. If the method has a parameter for such an argument, the error tells the user to give it instead;
    `parameters` maps the argument's name to the parameter's name where the two differ.

    Raises
    ------
    InvalidParameterError
        If an option is not an argument of `maker` (the message suggests the closest one), or if it is `taken`.

    """
    options = dict(spec.options or {})
    for name in sorted(options.keys() & set(taken)):
        parameter = parameters.get(name, name)
        is_parameter = parameter in spec.parameters()
        raise InvalidParameterError(
            Text(f"{name} of {library} cannot be given in ", Way("options"), "."),
            remedy=Text("Give the parameter ", Way(parameter), " instead.") if is_parameter else "Leave it out.",
        )
    known = [name for name in signature(maker).parameters if name not in taken]
    require_known_names(options, known, f"options of {library}")
    return options


@contextmanager
def passed_on(library: str, options: Mapping[str, Any] | None, stopped: Sequence[Exception] = ()) -> Iterator[None]:
    """In the with-block, turn an error of a library into an `InvalidParameterError` about `options`, if any are given.

    Three kinds of error are raised unchanged: a `GlleError`, a `MemoryError`, and an error in `stopped`, the errors
    that a progress callback has raised.
    """
    try:
        yield
    except (GlleError, MemoryError):
        raise
    except Exception as error:
        if not options or any(error is one for one in stopped):
            raise
        raise InvalidParameterError(
            Text(f"{library} fails with these ", Way("options"), f": {str(error)[:500].rstrip('.')}."),
            remedy="Change these options, or leave them out.",
        ) from error
