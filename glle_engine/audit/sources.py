"""Where an embedding comes from: a posterior, a method, a function, or coordinates, and how to compute it again.

An audit embeds halves of the data and permuted data in the way in which the audited embedding was made.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.pictures.points import coordinates, require_finite_places
from glle_engine.base.space import Space
from glle_engine.base.spec import FitSpec
from glle_engine.base.texts import Way
from glle_engine.base.validation import checked_matrix, finite_data, finite_matrix, is_sparse
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import locate
from glle_engine.methods import registry
from glle_engine.methods.parameters import DistanceSpec
from glle_engine.posterior.findings import scale_figures, scale_notes
from glle_engine.posterior.fit import fit, reference_embedding
from glle_engine.posterior.posterior import Posterior
from glle_engine.reliability.refits import MethodEmbedder, embed_again, require_unlabeled
from glle_engine.reliability.resamples import FunctionEmbedder, PosteriorEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.options import AuditOptions, Function, Transformer
    from glle_engine.base.spec import SpaceSpec
    from glle_engine.base.texts import Note
    from glle_engine.methods.base import Method
    from glle_engine.methods.parameters import MethodSpec
    from glle_engine.reliability.resamples import Embedder


S = TypeVar("S", bound="MethodSpec")
QUICK: dict[str, dict[str, int]] = {"t-sne": {"early_iter": 80, "max_iter": 170}, "umap": {"max_iter": 100}}
"""Fewer iterations for maps of halves of the data, whose errors are as large as with the default iterations."""

# Methods for which the few iterations of `QUICK` are enough for permuted data, too: their maps of such data keep as
# many neighbors as with the default iterations. This does not hold for UMAP.
QUICK_NULLS = ("t-sne",)
# Methods of other libraries whose maps may be computed in several threads at the same time. t-SNE is one, because
# openTSNE starts no threads itself, and other Python threads can run while it computes.
PARALLEL_METHODS = ("t-sne",)
MAX_DENSE_BYTES = 2**31  # sparse data are refused if they need more bytes as dense rows


@dataclass(frozen=True, eq=False)
class Source:
    """The data of an embedding, and functions that embed other data, or parts of the data, in the same way.

    Attributes
    ----------
    name : str
        Name of the method in sentences.
    data : (n, d) float64
    to_points : callable
        Transforms data (m, d) to points whose Euclidean distances order pairs as the metric of the embedding does.
    embed : callable
        Called with (data, number), embeds other data by the same method, with a seed that follows from `number`. None
        for coordinates without a method.
    embedder : Embedder, optional
        Embeds halves of the data; None for coordinates without a method.
    wider : Embedder, optional
        Embeds halves of the data with one more coordinate. None for coordinates without a method, if the number of
        coordinates is fixed, or if the method starts at random, so that its coordinates have no order.
    is_threaded : bool
        Whether several threads may embed at the same time; libraries that use threads themselves do not allow it.
    is_linear : bool
        Whether embeddings are affine functions of the points.
    is_placed_by_chance : bool
        Whether the method places separate groups by chance: it starts at random, or joins the parts of its graph.
    notes : tuple of Note
        Notes on the embedding, such as unequal scales of the features.

    """

    name: str
    data: NDArray[np.float64]
    to_points: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    embed: Callable[[NDArray[np.float64], int], NDArray[np.float64]] | None = None
    embedder: Embedder | None = None
    wider: Embedder | None = None
    is_threaded: bool = False
    is_linear: bool = False
    is_placed_by_chance: bool = False
    notes: tuple[Note, ...] = ()


def source_of(X: ArrayLike, Y: Any, options: AuditOptions) -> tuple[Source, NDArray[np.float64]]:
    """Return a `Source`, with which the embedding to audit can be computed again, and the embedding (n, p) itself.

    `Y` is coordinates, a posterior or a fitted estimator; if it is None, the method in the options embeds `X`. Raises
    `InvalidParameterError` for options that contradict each other, or if there is neither `Y` nor a method.
    """
    Y = getattr(Y, "posterior_", Y)  # the posterior of a fitted estimator
    method, parameters = options.method, options.parameters or {}
    if parameters and not isinstance(method, str):
        raise InvalidParameterError(
            f"`parameters` ({', '.join(map(str, parameters))}) was given without the name of a method.",
            remedy="Give the method by its name, such as method='umap', or leave `parameters` out; set the parameters "
            "of a function or an estimator in itself.",
        )
    space = {
        name: value
        for name, value in (("standardize", options.standardize), ("metric", options.metric))
        if value is not None
    }
    if isinstance(Y, Posterior):
        if space:
            raise InvalidParameterError(
                f"{' and '.join(space)} cannot be given for a posterior, because its fit has fixed "
                f"{'them' if len(space) > 1 else 'it'}.",
                remedy=f"Leave {' and '.join(space)} out, or fit another posterior with these values and audit it.",
            )
        if method is not None:
            raise InvalidParameterError(
                f"Both a posterior and method={method!r:.60} are given, but one map is audited at a time.",
                remedy="Leave `method` out to audit the posterior's map, or leave the posterior out.",
            )
        return source_of_posterior(X, Y), Y.embedding
    X = dense_rows(X)
    if isinstance(method, str):
        if not space.keys() <= registry.method(method).spec.parameters().keys():  # PCA, for example, has no metric
            X, space = points_in_space(X, DistanceSpec.from_dict(space)), {}
        return source_of_method(X, method, parameters | space, Y)
    if method is not None:
        return source_of_function(X, method, Y, DistanceSpec.from_dict(space))
    if Y is None:
        raise InvalidParameterError(
            "Neither coordinates, nor a posterior, nor a method were given, so that there is no map to audit.",
            remedy='Give one of them, for example method="umap".',
        )
    coordinates_of_rows = checked_coordinates(Y, len(np.asarray(X)))
    return source_of_coordinates(X, DistanceSpec.from_dict(space)), coordinates_of_rows


def source_of_posterior(X: ArrayLike, posterior: Posterior) -> Source:
    """Return a `Source` that embeds other data by the method of a posterior: LLE with the posterior's parameters.

    `X` are the data to which the posterior was fitted.

    Raises `InvalidParameterError` if distances are precomputed, and errors as `PosteriorEmbedder.from_posterior` does.
    """
    embedder, spec = PosteriorEmbedder.from_posterior(posterior, X), posterior.spec
    _require_columns(spec)
    wider = replace(embedder, spec=replace(spec, n_components=spec.n_components + 1), reference=None)
    again = partial(_posterior_again, spec=replace(spec, landmarks="all"))
    notes = tuple(note for note in posterior.notes if note.code in {"bridged", "unequal-feature-scales"})
    data = finite_matrix(dense_rows(X))
    to_points = partial(_points, spec=spec)
    return Source(
        "GLLE", data, to_points, again, embedder, wider, is_threaded=True, is_placed_by_chance=_is_joined(notes),
        notes=notes,
    )  # fmt: skip


def source_of_method(
    X: ArrayLike, name: str, parameters: dict[str, Any], Y: ArrayLike | None = None
) -> tuple[Source, NDArray[np.float64]]:
    """Return a `Source` that embeds data by a method of the registry, and the embedding to audit.

    The embedding is `Y`, or the method's map of `X` if `Y` is None.
    """
    if registry.canonical(name) == "glle":
        posterior = fit(X, FitSpec.from_dict(parameters))
        embedding = posterior.embedding if Y is None else checked_coordinates(Y, posterior.n_points)
        return source_of_posterior(X, posterior), embedding
    method = registry.method(name)
    spec = method.spec.from_dict(parameters)
    _require_columns(spec)
    require_unlabeled(method, spec)
    data = finite_matrix(X)
    embedder = MethodEmbedder(data, method, quick_spec(method, spec))
    wider = None if method.random else MethodEmbedder(data, method, replace(spec, n_components=spec.n_components + 1))
    of_null = quick_spec(method, spec) if method.name in QUICK_NULLS else spec
    again = partial(_method_again, method=method, spec=of_null, n=len(data))
    made = method.embed(data, spec) if Y is None else None
    notes = _scale_notes(data, spec) if made is None else made.notes
    source = Source(
        method.title, data, partial(_points, spec=spec), again, embedder, wider,
        is_threaded=not method.libraries or method.name in PARALLEL_METHODS, is_linear=method.linear,
        is_placed_by_chance=method.random or _is_joined(notes), notes=notes,
    )  # fmt: skip
    return source, checked_coordinates(Y, len(data)) if made is None else made.Y


def source_of_function(
    X: ArrayLike, function: Function | Transformer, Y: ArrayLike | None, spec: SpaceSpec
) -> tuple[Source, NDArray[np.float64]]:
    """Return a `Source` that embeds data by a function or an estimator, and the embedding to audit.

    The embedding is `Y`, or the function's map of `X` if `Y` is None. The function gets points that are standardized
    and transformed for the metric of `spec`.
    """
    if isinstance(function, type) and hasattr(function, "fit_transform"):
        name = function.__name__
        raise InvalidParameterError(
            f"method={name} is a class, not an estimator.",
            remedy=f"Give an object of the class: method={name}(n_components=2).",
        )
    if not (callable(function) or hasattr(function, "fit_transform")):
        raise InvalidParameterError(
            f"method={function!r:.60} is not a method.",
            remedy='Give a name such as "umap", a function, or an estimator.',
        )
    data = checked_matrix(X)
    points = _points(data, spec)

    def embed(subset: NDArray[np.float64], _: int = 0) -> NDArray[np.float64]:
        embed_part = copy(function).fit_transform if hasattr(function, "fit_transform") else function
        embedding = coordinates(embed_part(subset))
        if len(embedding) != len(subset) < len(points):
            raise InvalidShapeError(
                f"{name} returned {len(embedding)} rows of coordinates for {len(subset)} points.",
                remedy="An audit embeds parts of the data: give a function that embeds the points that it is called "
                "with. Coordinates that exist already are the second argument: glle.audit(X, Y).",
            )
        return checked_coordinates(embedding, len(subset))

    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    embedding = embed(points) if Y is None else checked_coordinates(Y, len(data))
    embedder = FunctionEmbedder(embed, points, embedding.shape[1])
    to_points = partial(_points, spec=spec)
    again = lambda subset, number: embed(to_points(subset), number)  # noqa: E731 # permuted data are transformed, too
    return Source(name, data, to_points, again, embedder, notes=_scale_notes(data, spec)), embedding


def source_of_coordinates(X: ArrayLike, spec: SpaceSpec) -> Source:
    """Return a `Source` for coordinates of data `X` whose method is unknown; it cannot embed other data."""
    data = checked_matrix(X)
    return Source("coordinates", data, partial(_points, spec=spec), notes=_scale_notes(data, spec))


def dense_rows(X: ArrayLike) -> ArrayLike:
    """Return sparse data as dense rows, because an audit permutes columns; return other data as they are.

    Raises
    ------
    InvalidParameterError
        If the rows would need more than 2 GiB.

    """
    if not is_sparse(X):
        return X
    rows: Any = finite_data(X)
    if (needed := 8 * math.prod(rows.shape)) > MAX_DENSE_BYTES:
        raise InvalidParameterError(
            f"An audit permutes the columns of the data, and sparse data of shape {rows.shape} "
            f"would take {needed / 2**30:,.1f} GiB as a dense array; {MAX_DENSE_BYTES / 2**30:g} GiB are allowed.",
            remedy="Audit a random part of the rows, or 50 components by a truncated SVD.",
        )
    return np.ascontiguousarray(rows.toarray())


def quick_spec(method: Method[Any], spec: S) -> S:
    """Return `spec` for maps of halves of the data: t-SNE and UMAP get fewer iterations, unless the caller set them."""
    default, few = method.spec(), QUICK.get(method.name, {})
    changes: Any = {name: value for name, value in few.items() if getattr(spec, name) == getattr(default, name)}
    return replace(spec, **changes)


def points_in_space(X: ArrayLike, spec: SpaceSpec) -> NDArray[np.float64]:
    """Check data (n, d), and return points that represent them in a Euclidean space.

    The Euclidean distances between the points put pairs in the same order as the metric of `spec` does in the data.
    """
    return _points(checked_matrix(X), spec)


def checked_coordinates(Y: Any, n: int) -> NDArray[np.float64]:
    """Return coordinates (n, p) as float64.

    Raises `InvalidShapeError` unless there are n rows, and `NotFiniteError` for coordinates that are not finite.
    """
    embedding = coordinates(Y)
    require_finite_places(embedding)
    if len(embedding) != n:
        raise InvalidShapeError(
            f"The coordinates have shape {embedding.shape}; the data have {n} points.",
            remedy=f"Give one row of coordinates for each point, in the order of the data: shape ({n}, 2).",
        )
    return embedding


def _is_joined(notes: Iterable[Note]) -> bool:
    return any(note.code in {"bridged", "neighbors-raised"} for note in notes)


def _posterior_again(points: NDArray[np.float64], number: int, *, spec: FitSpec) -> NDArray[np.float64]:  # noqa: ARG001 # LLE has no seed
    k = min(spec.n_neighbors, len(points) - 2)
    bridged = replace(spec, n_neighbors=k, disconnected="bridge")
    data = locate(points, bridged)
    return reference_embedding(data, kneighbors(data, k, search=spec.search)[0], bridged).embedding


def _method_again(
    points: NDArray[np.float64], number: int, *, method: Method[Any], spec: MethodSpec, n: int
) -> NDArray[np.float64]:
    """Embed other points, such as permuted data, by the method that embedded the n points of the data.

    If there are fewer than n points, numbers of neighbors are reduced accordingly. The seed of a random method follows
    from `number`.
    """
    return embed_again(method, spec, points, number, len(points) / n).Y


def _scale_notes(data: NDArray[np.float64], spec: SpaceSpec) -> tuple[Note, ...]:
    points = _points(data, spec)
    return tuple(scale_notes(scale_figures(points), points.shape[1], spec))


def _points(data: NDArray[np.float64], spec: SpaceSpec) -> NDArray[np.float64]:
    return Space.from_data(data, spec).points(data)


def _require_columns(spec: SpaceSpec) -> None:
    """Raise `InvalidParameterError` if the data are a matrix of distances (or the like) between all pairs of points.

    An audit permutes the columns of features to see what chance would show, and such a matrix has no features.
    """
    if name := spec.precomputed:
        raise InvalidParameterError(
            "An audit permutes the columns of the data, but a matrix of all pairs "
            f"({Way(name, 'precomputed')}) has none.",
            remedy="Give coordinates with these distances: embed them by mds with "
            f"{Way('dissimilarity', 'precomputed')} and {Way('n_components', 10)}.",
        )
