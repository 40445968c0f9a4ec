"""Fit a posterior over LLE's reconstruction weights to data (`fit`), or only embed data at the mean of the weights."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError
from glle_engine.base.parameters import require_known_names
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.base.results import Diagnostics
from glle_engine.base.space import Space
from glle_engine.base.spec import MAX_EXACT_FLOPS, FitParameters, FitSpec
from glle_engine.base.texts import Way
from glle_engine.base.validation import (
    RESOLVED,
    Unit,
    digest,
    finite_data,
    in_unit,
    require_enough_points,
    require_resolved,
    restore_distances,
)
from glle_engine.eigen.eigenproblem import Eigenproblem, scale_embedding
from glle_engine.eigen.pattern import TooCostlyError, is_cheaper
from glle_engine.graph.adaptive import kept_candidates
from glle_engine.graph.connectivity import bridge, closed_classes, edges, require_connected
from glle_engine.graph.given import checked_neighbors, nearest_first
from glle_engine.graph.neighbors import kneighbors, search_figures
from glle_engine.graph.relations import Distances, coordinates, locate, require_differing
from glle_engine.graph.sparse import SparsePoints, require_possible
from glle_engine.linalg.nearest.landmarks import chosen_landmarks
from glle_engine.posterior.findings import diagnose, given_figures, landmark_note, of_chosen_noise
from glle_engine.posterior.placement import attach
from glle_engine.posterior.posterior import Posterior
from glle_engine.weights.constrained import NoiseModel, constrained_distribution, distribution_at
from glle_engine.weights.gaussian import WeightDistribution
from glle_engine.weights.lle import MeanWeights, lle_weights, tangent_frames
from glle_engine.weights.published import published_distribution

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csr_array

    from glle_engine.eigen.eigenpairs import Eigenpairs
    from glle_engine.graph.given import GivenNeighbors
    from glle_engine.graph.relations import Data

_SEPARATE = "Or leave disconnected at 'bridge', or fit each component as a separate data set."
_BLOCK_ENTRIES = 1 << 22  # points are placed in blocks whose covariance factors have this many entries: 32 MB
EXPECTED_DRAWS = 64  # the search for an elimination order may take as much time as it saves in this many draws


def fit(
    X: ArrayLike,
    spec: FitSpec | None = None,
    *,
    neighbors: GivenNeighbors | None = None,
    on_progress: OnProgress = silent,
    **parameters: Unpack[FitParameters],
) -> Posterior:
    r"""Fit a posterior over LLE's reconstruction weights, from which embeddings are then drawn.

    Computes the kNN graph; LLE's weights :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` (GLLE Eq. 9); the reference
    embedding, the p bottom eigenvectors of :math:`(I - W)^T (I - W)` other than the constant (Eq. 37-43); and the
    posterior of the weights by Algorithm 1 (em) or 2 (direct), with the constraint 1^T w = 1
    (`glle_engine.weights.constrained`) or as published (`glle_engine.weights.published`).

    Landmarks are a subset of points that covers the data. With landmarks, only the landmarks are fitted in this way,
    and the other points are placed by weights on their nearest landmarks (`glle_engine.posterior.placement`). By
    default (``landmarks="auto"``) a fit uses landmarks if a draw of all points is expected to take more than a second
    (`glle_engine.base.spec.FitSpec.choices`); the specification of the result then has the number of landmarks. With
    ``noise="auto"`` both noise models are fitted, and the specification of the result names the better model
    (`glle_engine.posterior.findings`).

    Parameters
    ----------
    X : (n, d) array-like, or sparse
        Finite numbers, in one unit or scaled to one; computed in float64. The constrained variant takes any unit: data
        multiplied by a power of two have the same posterior, bit for bit, up to the largest double. A matrix or array
        of scipy.sparse stays sparse (`glle_engine.graph.sparse`). It has the same neighbors as the dense data, and the
        same numbers up to rounding. Sparse data work with the metrics euclidean, cosine and correlation, but not with
        standardization, the published variant, tangent noise, adaptive neighborhoods, landmarks or approximate search.
    spec : FitSpec, optional
        Defaults to ``FitSpec()``.
    neighbors : optional
        Neighbors of each point, in place of the search: indices (n, k), (indices, distances), or a sparse graph (n, n),
        as explained in `glle_engine.graph.given.checked_neighbors`. `n_neighbors` is then k. The distances among
        neighbors, which the weights need, are still computed from X.
    on_progress : callable
        Called with (done, total, stage) between blocks of work. The stages are "neighbors", "weights", "embedding",
        "posterior" and "diagnostics"; with landmarks, "landmarks" comes first, and "placing" last. An exception that
        the callable raises cancels the fit.
    **parameters
        Fields of `FitSpec` by name, which override the fields of `spec`.

    Returns
    -------
    Posterior

    Raises
    ------
    InvalidParameterError
        A parameter is unknown, outside its domain, or contradicts another parameter.
    InvalidShapeError, NotFiniteError, OutOfRangeError
        X is not a finite matrix of numbers. OutOfRangeError if squared distances leave the range of floating-point
        numbers: in the published variant as computed in the unit of the data, in the constrained variant if some
        neighborhood is smaller than 2^-490 of the largest coordinate.
    TooFewPointsError
        k >= n, or p > n - 2.
    DegenerateDataError
        All points are equal.
    DisconnectedGraphError
        With disconnected="error": the graph has several components. The message names their sizes and the smallest k
        that connects the graph.
    ConvergenceError
        No solver found the embedding.
    MissingLibraryError
        search="approximate", but faiss is not installed.

    Examples
    --------
    >>> from glle_engine import fit, manifolds
    >>> sheet = manifolds.make("swiss_roll", 1000, seed=0)
    >>> posterior = fit(sheet.X, n_neighbors=10)
    >>> posterior.draw(731, seed=1).embedding.shape
    (1000, 2)

    """
    data = finite_data(X)
    n = data.shape[0]
    indices = None
    if neighbors is not None:
        indices = checked_neighbors(neighbors, n)
        spec = with_neighbors(spec, parameters, indices.shape[1])
    else:
        spec = _merge(spec, parameters)
    if not isinstance(data, np.ndarray):
        require_possible(spec)
        spec, space = replace(spec, landmarks="all"), Space(spec.metric)
    require_enough_points(n, spec.of_points(n))
    if isinstance(data, np.ndarray):
        space = Space.from_data(data, spec)
    described = given_figures(data)
    *costly, last = spec.choices(n)
    for choice in costly:
        with contextlib.suppress(TooCostlyError):
            fitted = _fit_choice(data, space, choice, on_progress, described, indices, MAX_EXACT_FLOPS)
            break
    else:
        fitted = _fit_choice(data, space, last, on_progress, described, indices)
    if fitted.landmarks is not None:
        note = landmark_note(fitted.diagnostics.figures, is_auto=spec.landmarks == "auto")
        diagnostics = replace(fitted.diagnostics, notes=(*fitted.notes, note))
        fitted = replace(fitted, diagnostics=diagnostics)
    return replace(fitted, data_sha256=digest(data), center=space.center, scale=space.scale)


def _fit_choice(
    data: NDArray[np.float64] | csr_array,
    space: Space,
    spec: FitSpec,
    on_progress: OnProgress,
    described: dict[str, Any],
    indices: NDArray[np.int32] | None,
    max_flops: float = math.inf,
) -> Posterior:
    """Fit a posterior to `data` (n, d) by a specification with a fixed number of landmarks, or without landmarks.

    `space` maps the data to points whose Euclidean distances are the distances of the metric. `described` has numbers
    about the data, which become part of the diagnostics. `indices` (n, k) are neighbors that the caller passed, or None
    to search. Raises `TooCostlyError` if a factorization needs more than `max_flops` floating-point operations.
    """
    if spec.has_landmarks:
        assert isinstance(data, np.ndarray)
        return _fit_on_landmarks(space.points(data), spec, on_progress, described, max_flops)
    try:
        return _fit_located(locate(data, spec, space), spec, on_progress, described, indices, max_flops)
    except DisconnectedGraphError as error:
        if indices is None:
            raise
        remedy = "Give more neighbors of each point, or leave disconnected at 'bridge'."
        raise DisconnectedGraphError(error.message, remedy=remedy, details=error.details) from error


def _fit_on_landmarks(
    placed: NDArray[np.float64], spec: FitSpec, on_progress: OnProgress, described: dict[str, Any], max_flops: float
) -> Posterior:
    """Choose landmarks among the points `placed` (n, c), fit a posterior to them, and place the other points.

    `described` has numbers about the data, which become part of the diagnostics. Raises `DisconnectedGraphError` if the
    graph of the landmarks is not connected (with disconnected="error"), and `TooCostlyError` if a factorization needs
    more than `max_flops` floating-point operations.
    """
    assert isinstance(spec.landmarks, int)
    landmarks = chosen_landmarks(Unit.from_data(placed).scale(placed), spec.landmarks, on_progress)
    alone = replace(spec, landmarks="all")
    try:
        fitted = _fit_located(in_unit(placed[landmarks], alone), alone, on_progress, described, max_flops=max_flops)
    except DisconnectedGraphError as error:
        raise DisconnectedGraphError(
            f"The graph of the {len(landmarks):,} landmarks is not connected. " + error.message,
            remedy=error.remedy + " More landmarks may connect it, too.",
            details={**error.details, "landmarks": len(landmarks)},
        ) from error
    spec = replace(spec, noise=fitted.spec.noise)  # the noise model that was chosen for "auto"
    return _place_others(replace(fitted, spec=spec), placed, landmarks, on_progress)


def _place_others(
    fitted: Posterior, all_data: NDArray[np.float64], landmarks: NDArray[np.int32], on_progress: OnProgress
) -> Posterior:
    r"""Extend a posterior that was fitted to landmarks (a subset of the points) to all points.

    A point that is not a landmark has its k nearest landmarks as neighbors, and the mean weights that a new point would
    have. Its weights have a Gaussian distribution on the plane :math:`1^T w = 1`
    (`glle_engine.weights.constrained`), which follows from the noise that was estimated for the landmarks. A duplicate
    of a landmark has the landmark's position in every draw. In addition to the result, the function needs memory for
    one block of points.

    Parameters
    ----------
    fitted : Posterior
        The posterior of the landmarks.
    all_data : (n, d) float64
        All points, in the space of the fit.
    landmarks : (m,) int32
        The rows of the landmarks in `all_data`, ascending.
    on_progress : callable
        Called with (points done, n - m, "placing").

    """
    n, spec, diagnosed = len(all_data), fitted.spec, fitted.diagnostics
    k = spec.n_neighbors
    unit = Unit.from_data(all_data)
    data = unit.shift(all_data[landmarks])
    directions = diagnosed.figures["residual_dimension"]
    noise = NoiseModel.from_fit(data, fitted.neighbors, fitted.embedding, spec, directions, fitted.distribution.kept)
    neighbors, embedding = np.empty((n, k), np.int32), np.empty((n, spec.n_components))
    mean, factor, prior = np.empty((n, k)), np.empty((n, k, k)), np.empty(n)
    kept = None if fitted.distribution.kept is None else np.empty((n, k), bool)
    neighbors[landmarks], embedding[landmarks] = landmarks[fitted.neighbors], fitted.embedding
    mean[landmarks], factor[landmarks], prior[landmarks] = (
        fitted.distribution.mean,
        fitted.distribution.factor,
        fitted.distribution.prior_factor,
    )
    if kept is not None:
        kept[landmarks] = fitted.distribution.kept
    others = np.setdiff1d(np.arange(n), landmarks, assume_unique=True)
    distances = np.empty(len(others))
    on_progress(0, len(others), "placing")
    for rows in blocks(len(others), max(1, _BLOCK_ENTRIES // (k * k)), "placing", on_progress):
        points, rows_of_data = unit.shift(all_data[others[rows]]), others[rows]
        attached = attach(data, points, spec, fitted.flatness)
        extension = attached.extension()
        places = extension.embed(fitted.embedding)
        distribution, _ = distribution_at(data, attached, fitted.embedding, spec, noise, points=points, places=places)
        equal: NDArray[np.bool_] = np.any(attached.same, axis=1)
        neighbors[rows_of_data], embedding[rows_of_data], distances[rows] = (
            landmarks[extension.neighbors],
            places,
            extension.distances,
        )
        mean[rows_of_data] = np.where(equal[:, None], extension.weights, distribution.mean)
        factor[rows_of_data] = np.where(equal[:, None, None], 0.0, distribution.factor)
        prior[rows_of_data] = distribution.prior_factor
        if kept is not None:
            kept[rows_of_data] = attached.kept
    away = restore_distances(distances, unit.exponent)
    figures = {
        "n_points": n,
        "landmarks": len(landmarks),
        "landmark_distance": [float(np.median(away)), float(away.max())],
        "points_on_landmarks": int((distances == 0).sum()),
    }
    return replace(
        fitted,
        neighbors=neighbors,
        distribution=WeightDistribution(
            mean, factor, fitted.distribution.prior_mean, prior, constrained=True, sigma=None, kept=kept
        ),
        embedding=embedding,
        diagnostics=Diagnostics({**diagnosed.figures, **figures}, diagnosed.notes),
        landmarks=landmarks,
    )


def with_neighbors(spec: FitSpec | None, parameters: FitParameters, k: int) -> FitSpec:
    """Return the specification of a fit to which the caller passes k neighbors of each point.

    The specification is `spec` with `parameters`, with k as `n_neighbors`, and without landmarks. Raises
    `InvalidParameterError` if a parameter contradicts the neighbors, such as another `n_neighbors`.
    """
    asked = _merge(spec, parameters)
    n_neighbors = k if asked.has_auto_neighbors else asked.n_neighbors
    merged = replace(asked, n_neighbors=k)
    for is_wrong, option, needed in (
        (n_neighbors != k, f"n_neighbors={n_neighbors}", f"n_neighbors={k}, the number given,"),
        (merged.has_landmarks, f"landmarks={merged.landmarks}", Way("landmarks", "all")),
        (
            merged.noise != "isotropic",
            f"noise={merged.noise!r}, which searches 3 k neighbors,",
            Way("noise", "isotropic"),
        ),
        (merged.search == "approximate", "search='approximate'", Way("search", "exact")),
    ):
        if is_wrong:
            raise InvalidParameterError(
                f"{option} cannot be combined with `neighbors`, which already say who the neighbors are.",
                remedy=f"Use {needed} together with `neighbors`, or leave `neighbors` out.",
            )
    return replace(merged, landmarks="all")


def _require_fixed_candidates(spec: FitSpec) -> None:
    """Raise `InvalidParameterError` if an option of `spec` needs the same number of neighbors for every point.

    Only the options are examined: call this if the user passed fewer neighbors for some points than for others.
    """
    for is_wrong, option, needed in (
        (spec.variant != "constrained", f"variant={spec.variant!r}", Way("variant", "constrained")),
        (spec.neighborhoods == "adaptive", "neighborhoods='adaptive'", Way("neighborhoods", "fixed")),
    ):
        if is_wrong:
            raise InvalidParameterError(
                f"With {option}, every point needs the same number of neighbors, but `neighbors` has fewer for some "
                "points.",
                remedy=f"Give equally many neighbors for every point, or use {needed}.",
            )


def _fit_located(
    data: Data,
    spec: FitSpec,
    on_progress: OnProgress,
    described: dict[str, Any],
    indices: NDArray[np.int32] | None = None,
    max_flops: float = math.inf,
) -> Posterior:
    """Fit a posterior to all points of `data`, without landmarks.

    Parameters
    ----------
    data : (n, c) float64, Distances or SparsePoints
        Points, scaled for the computation, or their distances (`glle_engine.graph.relations.locate`).
    spec : FitSpec
    on_progress : callable
    described : dict
        Numbers about the data (`given_figures`), which become part of the diagnostics.
    indices : (n, k) int32, optional
        The neighbors that the caller passed, in place of a search; rows of points with fewer than k end with -1.
    max_flops : float

    Raises
    ------
    TooCostlyError
        If a factorization of the graph needs more than `max_flops` floating-point operations.

    """
    kept: NDArray[np.bool_] | None = None
    if indices is None:
        nearest, distances = kneighbors(data, spec.n_neighbors, on_progress, spec.search)
    else:
        nearest, distances, kept = nearest_first(data, indices)
        if kept is not None:
            _require_fixed_candidates(spec)
        described = {**described, "given_neighbors": True}
    if not distances.any():
        require_differing(data)
    if isinstance(data, SparsePoints):
        data.require_resolved(nearest, distances, RESOLVED)
    elif not isinstance(data, Distances):
        require_resolved(data, nearest, distances)
    if max_flops < math.inf and len(closed_classes(edges(nearest, kept))) > 1 and not is_cheaper(nearest, max_flops):
        # This is known before the edges that connect the closed classes (bridges) are searched for, which takes long:
        # added edges would not make a factorization cheaper.
        raise TooCostlyError
    described = {**search_figures(spec.search, data, distances, on_progress), **described}

    def on_graph(option: FitSpec) -> Posterior:
        return _on_graph(data, nearest, distances, option, on_progress, described, kept, max_flops)

    return of_chosen_noise(data, spec, on_graph) if spec.noise == "auto" else on_graph(spec)


def _on_graph(
    data: Data,
    nearest: NDArray[np.int32],
    distances: NDArray[np.float64],
    spec: FitSpec,
    on_progress: OnProgress,
    described: dict[str, Any],
    kept: NDArray[np.bool_] | None,
    max_flops: float,
) -> Posterior:
    """Fit a posterior on a known neighbor graph: everything that comes after the search for neighbors.

    `nearest` and `distances` (n, k) are the neighbors of each point and their distances, the nearest first. If the
    caller passed fewer than k neighbors for some points, `kept` (n, k) is False for the entries of `nearest` that are
    not neighbors; otherwise it is None. `described` has numbers about the data and the search, which become part of the
    diagnostics. Raises `TooCostlyError` if a factorization needs more than `max_flops` floating-point operations.
    """
    mean = reference_embedding(
        data, nearest, spec, on_progress, factorizations=EXPECTED_DRAWS, max_flops=max_flops, kept=kept
    )
    if spec.variant == "constrained":
        distribution, facts = constrained_distribution(data, mean, mean.embedding, spec, on_progress)
    else:
        distribution, facts = published_distribution(
            coordinates(data), mean.neighbors, mean.embedding, spec, on_progress
        )
    on_progress(0, 1, "diagnostics")
    facts = {**facts, **described}
    diagnostics = diagnose(
        data, mean.neighbors, distances, mean.classes, mean.bridges, mean.pairs, distribution, facts, spec
    )
    on_progress(1, 1, "diagnostics")
    return Posterior(
        spec=spec,
        neighbors=mean.neighbors,
        distribution=distribution,
        embedding=mean.embedding,
        eigenvalues=mean.pairs.values,
        order=mean.problem.pattern.order,
        pins=mean.problem.pins if distribution.constrained else mean.problem.pins[:0],
        diagnostics=diagnostics,
        flatness=mean.flatness,
    )


@dataclass(frozen=True, eq=False)
class Reference(MeanWeights):
    """The embedding at the mean weights, and everything that a fit computed for it.

    Attributes
    ----------
    classes : list of int arrays
        The points of each closed class of the neighbor graph (a set of points that no edge leaves).
    bridges : list of (int, int)
        The edges (start, end) that were added to connect the graph.
    flatness : (k + 1,) float64 or None
        The thresholds of adaptive neighborhoods (`glle_engine.graph.adaptive.kept_candidates`), which new points need;
        None for fixed neighborhoods.
    problem : Eigenproblem
        The eigenproblem on this graph, which draws solve for other weights.
    pairs : Eigenpairs
        The p + 1 bottom eigenpairs for the mean weights; one more than the embedding has columns.
    embedding : (n, p) float64

    """

    classes: list[NDArray[np.intp]]
    bridges: list[tuple[int, int]]
    flatness: NDArray[np.float64] | None
    problem: Eigenproblem
    pairs: Eigenpairs
    embedding: NDArray[np.float64]


def reference_embedding(
    data: Data,
    nearest: NDArray[np.int32],
    spec: FitSpec,
    on_progress: OnProgress = silent,
    *,
    factorizations: int = 1,
    max_flops: float = math.inf,
    kept: NDArray[np.bool_] | None = None,
) -> Reference:
    """Embed data at the mean of the weights: by LLE, or with ``noise="tangent"`` by weights in the tangent plane.

    Parameters
    ----------
    data : (n, c) float64, Distances or SparsePoints
    nearest : (n, k) int32
        The nearest points of each point, the nearest first.
    spec : FitSpec
    on_progress : callable
    factorizations : int
        How many factorizations on this graph are expected. The more they are, the longer a cheaper elimination order is
        searched for.
    max_flops : float
        The largest number of floating-point operations that one factorization may need.
    kept : (n, k) bool, optional
        Which entries of `nearest` are neighbors; by default all.

    Raises
    ------
    DisconnectedGraphError
        If the graph has several components, unless ``disconnected="bridge"``.
    ConvergenceError
        If no solver finds the embedding.
    TooCostlyError
        If a factorization needs more than `max_flops` operations.
    InvalidParameterError
        For ``noise="auto"``; only `fit` chooses a noise model.

    """
    if spec.noise == "auto":
        raise InvalidParameterError(
            f"{Way('noise', 'auto')} is not a noise model yet, because a fit chooses the model.",
            remedy="Give the specification of a fitted posterior, which names its noise model.",
        )
    flatness: NDArray[np.float64] | None = None
    if spec.neighborhoods == "adaptive":
        kept, flatness = kept_candidates(coordinates(data), nearest, spec.n_components, on_progress)
    bridges: list[tuple[int, int]] = []
    if spec.disconnected == "bridge":
        nearest, kept, bridges = bridge(data, nearest, kept)
    graph = edges(nearest, kept)
    adaptive = "" if kept is None else "(With neighborhoods='fixed'; adaptive ones may need more.) "
    require_connected(data, graph, spec.search, instead=adaptive + _SEPARATE)
    # Each row is sorted by index, because rounding may change the order of nearly equal distances.
    ascending = np.argsort(nearest, axis=1)
    neighbors = np.take_along_axis(nearest, ascending, axis=1)
    if kept is not None:
        kept = np.take_along_axis(kept, ascending, axis=1)
    del ascending  # the eigenproblem needs the memory
    frames = None
    if spec.noise == "tangent":
        frames = tangent_frames(coordinates(data), spec.n_neighbors, spec.n_components, on_progress, spec.search)
    weights = lle_weights(data, neighbors, spec.reg, on_progress, kept, frames=frames)
    on_progress(0, 1, "embedding")
    classes = closed_classes(graph)
    problem, pairs = Eigenproblem.prepare(neighbors, weights, classes, spec.n_components + 1, factorizations, max_flops)
    embedding = scale_embedding(pairs.vectors[:, : spec.n_components])
    on_progress(1, 1, "embedding")
    return Reference(neighbors, weights, frames, kept, classes, bridges, flatness, problem, pairs, embedding)


def _merge(spec: FitSpec | None, parameters: FitParameters) -> FitSpec:
    """Return `spec`, or the default specification if `spec` is None, with `parameters` in place of its fields.

    Raises `InvalidParameterError` for names that are not fields, or if `spec` is not a `FitSpec`.
    """
    if not isinstance(spec, FitSpec | None):
        raise InvalidParameterError(
            f"spec={spec!r:.60} is not a FitSpec.",
            remedy=f"Give parameters by name, such as {Way('n_neighbors', 10)}.",
        )
    require_known_names(parameters, FitSpec.parameters())
    values: dict[str, Any] = {**parameters}  # "auto" is a value that the types of the fields do not have
    return replace(spec or FitSpec(), **values)
