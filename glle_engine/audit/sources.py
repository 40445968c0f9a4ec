"""Sources of embeddings: what an audit needs to make an embedding again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError, InvalidShapeError
from glle_engine.base.progress import silent
from glle_engine.base.space import Space
from glle_engine.base.validation import checked_matrix, finite_matrix, is_sparse, require_finite
from glle_engine.methods import registry
from glle_engine.posterior.fit import fit
from glle_engine.reliability.embedders import FunctionEmbedder, PosteriorEmbedder
from glle_engine.reliability.refits import MethodEmbedder, shrunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.diagnostics import Note
    from glle_engine.base.spec import FitSpec, SpaceSpec
    from glle_engine.methods.base import Method
    from glle_engine.methods.parameters import MethodSpec
    from glle_engine.posterior.posterior import Posterior
    from glle_engine.reliability.resamples import Embedder

    Function = Callable[[NDArray[np.float64]], ArrayLike]

STRONG = ("t-sne", "symmetric-sne")  # preserve neighborhoods better than most methods; the first that is installed
_SEEDS = 2**63


@dataclass(frozen=True, eq=False)
class Source:
    """A way to make an embedding again.

    Attributes
    ----------
    name : str
        In sentences.
    data : (n, d) float64
    place : callable
        Data to points in the space of the embedding, where Euclidean distances order pairs as its metric does.
    embed : callable
        (data, number) to an embedding of other data by the same method, with the seed `number`.
    embedder, wider : Embedder, optional
        Embed parts of the data, `wider` with one coordinate more; None if only coordinates are given, or if the number
        of coordinates is fixed.
    is_threaded : bool
        Whether threads may embed at the same time: libraries with threads inside do not allow it.
    notes : tuple of Note
        Of the embedding.

    """

    name: str
    data: NDArray[np.float64]
    place: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    embed: Callable[[NDArray[np.float64], int], NDArray[np.float64]]
    embedder: Embedder | None = None
    wider: Embedder | None = None
    is_threaded: bool = False
    notes: tuple[Note, ...] = ()


def source_of_posterior(X: ArrayLike, posterior: Posterior) -> Source:
    """Return the source of a posterior's reference embedding; raises as `PosteriorEmbedder.of`."""
    embedder, spec = PosteriorEmbedder.of(posterior, X), posterior.spec
    _require_columns(X, spec)
    wider = replace(embedder, spec=replace(spec, n_components=spec.n_components + 1), reference=None)
    again = partial(_posterior_again, spec=replace(spec, landmarks=None))
    notes = tuple(note for note in posterior.diagnostics.notes if note.code == "bridged")
    return Source("GLLE", finite_matrix(X), partial(_points, spec=spec), again, embedder, wider, True, notes)  # noqa: FBT003


def source_of_method(
    X: ArrayLike, name: str, parameters: dict[str, Any], labels: NDArray[np.int64] | None
) -> tuple[Source, NDArray[np.float64]]:
    """Return the source of a method of the registry, and its embedding of the data."""
    if registry.canonical(name) == "glle":
        posterior = fit(X, **{"disconnected": "bridge", **parameters})
        return source_of_posterior(X, posterior), posterior.embedding
    method = registry.method(name)
    spec = method.spec(**parameters)
    _require_columns(X, spec)
    data = finite_matrix(X)
    embedder = MethodEmbedder(data, method, spec, labels)
    wider = replace(embedder, spec=replace(spec, n_components=spec.n_components + 1))
    again = partial(_method_again, method=method, spec=spec, labels=labels, n=len(data))
    found = method.embed(data, spec, labels=labels)
    place, is_threaded = partial(_points, spec=spec), not method.libraries
    return Source(method.title, data, place, again, embedder, wider, is_threaded, found.notes), found.Y


def source_of_function(X: ArrayLike, function: Function, Y: ArrayLike | None) -> tuple[Source, NDArray[np.float64]]:
    """Return the source of a function from points to an embedding, and its embedding of the data."""
    data = checked_matrix(X)

    def embed(part: NDArray[np.float64], _: int = 0) -> NDArray[np.float64]:
        return coordinates(function(part), len(part))

    found = embed(data) if Y is None else coordinates(Y, len(data))
    embedder = FunctionEmbedder(embed, data, found.shape[1])
    return Source(getattr(function, "__name__", "the function"), data, np.asarray, embed, embedder), found


def source_of_coordinates(X: ArrayLike, p: int) -> Source:
    """Return the source of given coordinates: permuted data are embedded by a strong method."""
    name = next(name for name in STRONG if _is_available(registry.method(name)))
    method = registry.method(name)
    data = checked_matrix(X)
    perplexity = min(30.0, (len(data) - 2) / 3)  # t-SNE's limit for few points
    spec = method.spec(n_components=p, perplexity=perplexity)
    again = partial(_method_again, method=method, spec=spec, labels=None, n=len(data))
    return Source(method.title, data, np.asarray, again)


def coordinates(Y: ArrayLike, n: int) -> NDArray[np.float64]:
    """Return coordinates (n, p) as finite float64; raises `InvalidShapeError` or `NotFiniteError`."""
    found = np.asarray(Y, np.float64)
    if found.ndim != 2 or len(found) != n or not found.shape[1]:
        raise InvalidShapeError(
            f"The coordinates have shape {found.shape}; the data have {n} points.",
            remedy=f"Give one row of coordinates for each point, in the order of the data: shape ({n}, 2).",
        )
    require_finite(found, "the coordinates")
    return found


def _posterior_again(points: NDArray[np.float64], number: int, *, spec: FitSpec) -> NDArray[np.float64]:  # noqa: ARG001 # LLE has no seed
    k = min(spec.n_neighbors, len(points) - 2)
    return fit(points, replace(spec, n_neighbors=k, disconnected="bridge")).embedding


def _method_again(
    points: NDArray[np.float64],
    number: int,
    *,
    method: Method[Any],
    spec: MethodSpec,
    labels: NDArray[np.int64] | None,
    n: int,
) -> NDArray[np.float64]:
    """Embed other points as many as the data's, or fewer with smaller counts; labels are those of random points."""
    changes = {"seed": (getattr(spec, "seed", 0) + 1 + number) % _SEEDS} if method.random else {}
    kept = None if labels is None else np.random.default_rng(number).permutation(labels)[: len(points)]
    counts = shrunk(spec, len(points) / n)
    try:
        return method.embed(points, replace(spec, **changes, **counts), silent, labels=kept).Y
    except (DisconnectedGraphError, InvalidParameterError):
        return method.embed(points, replace(spec, **changes), silent, labels=kept).Y


def _points(data: NDArray[np.float64], spec: SpaceSpec) -> NDArray[np.float64]:
    return Space.of(data, spec).points(data)


def _require_columns(X: ArrayLike, spec: SpaceSpec) -> None:
    """Raise `InvalidParameterError` for data without columns to permute: sparse data and distances."""
    if is_sparse(X) or "precomputed" in {spec.space[1], getattr(spec, "dissimilarity", "")}:
        raise InvalidParameterError(
            "An audit permutes the columns of the data, which sparse data and distances do not have.",
            remedy="Give dense coordinates, such as the first components of the data.",
        )


def _is_available(method: Method[Any]) -> bool:
    try:
        method.require_available()
    except Exception:  # noqa: BLE001
        return False
    return True
