"""What methods by other libraries share: their further metrics, and options that are passed on as they are."""

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

_BINARY = {"jaccard", "dice", "russellrao", "rogerstanimoto", "sokalsneath", "yule"}  # they ask whether a value is 0
_ANGLES = 2  # latitude and longitude, the columns of haversine


@dataclass(frozen=True, kw_only=True)
class FurtherDistanceSpec(DistanceSpec):
    """Parameters of a method that needs the nearest points by any metric."""

    metric: FurtherMetric = metric_parameter(  # type: ignore[assignment] # more metrics than the base has
        FurtherMetric,
        " The other metrics are scikit-learn's; haversine takes latitude and longitude in radians, and "
        f"{', '.join(sorted(_BINARY))} ask of each value whether it is 0.",
    )

    @property
    def is_further(self) -> bool:
        """Whether only scikit-learn's search has the metric, and not the search of this library."""
        return self.metric not in get_args(Metric)

    def require_columns(self, d: int) -> None:
        """Raise `InvalidParameterError` for haversine, unless there are two columns."""
        if self.metric == "haversine" and d != _ANGLES:
            raise InvalidParameterError(
                Text(Way("metric", "haversine"), f" takes latitude and longitude, not {d} features."),
                remedy="Give two columns in radians, or another metric.",
            )


def nearest_points(
    X: Data, k: int, spec: FurtherDistanceSpec, on_progress: OnProgress
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k nearest points of each point and their distances (n, k), by the metric, without the point itself."""
    if not spec.is_further:
        return kneighbors(X, k, on_progress)
    on_progress(0, 1, "neighbors")
    distances, indices = _search(X, spec).kneighbors(n_neighbors=k)
    return indices.astype(np.int32), distances


def nearest_to(
    X: Data, points: NDArray[np.float64], k: int, spec: FurtherDistanceSpec
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the k points of X (n, d) nearest to each of other points (m, d), and their distances (m, k)."""
    if not spec.is_further:
        return kneighbors_to(X, points, k)
    distances, indices = _search(X, spec).kneighbors(_comparable(points, spec), k)
    return indices.astype(np.int32), distances


def _search(X: Any, spec: FurtherDistanceSpec) -> Any:
    """Return scikit-learn's exact search among X (n, d)."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 -- each of the libraries needs it; slow to import

    return NearestNeighbors(metric=spec.metric, algorithm="brute").fit(_comparable(X, spec))


def _comparable(points: Any, spec: FurtherDistanceSpec) -> Any:
    return points != 0 if spec.metric in _BINARY else points


def library_options(
    library: str, maker: Callable[..., Any], spec: Any, taken: Iterable[str], parameters: Mapping[str, str]
) -> dict[str, Any]:
    """Return the options of a specification for the class `maker` of a library.

    The method itself gives the arguments that are `taken`; `parameters` has the names of their parameters where these
    differ.

    Raises
    ------
    InvalidParameterError
        For a name that is none of the arguments of `maker`, with the closest one, and for an argument that is taken.

    """
    options = dict(spec.options or {})
    for name in sorted(options.keys() & set(taken)):
        parameter = parameters.get(name, name)
        is_parameter = parameter in spec.parameters()
        raise InvalidParameterError(
            Text(f"{name} of {library} is none of the ", Way("options"), "."),
            remedy=Text("Give ", Way(parameter), " beside them.") if is_parameter else "Leave it out.",
        )
    known = [name for name in signature(maker).parameters if name not in taken]
    require_known_names(options, known, f"options of {library}")
    return options


@contextmanager
def passed_on(library: str, options: Mapping[str, Any] | None, stopped: Sequence[Exception] = ()) -> Iterator[None]:
    """Turn an error of a library that was given options into an `InvalidParameterError` that names them.

    Errors of the caller's own callbacks, which are in `stopped`, and a lack of memory stay as they are.
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
            remedy="Change them, or leave them out.",
        ) from error
