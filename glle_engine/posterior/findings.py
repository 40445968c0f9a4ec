"""Diagnostics of a fit: numbers and warnings about the data and the solution, and the choice between two noise models.

``noise="auto"`` chooses the noise model whose draws keep neighbors better. Both models are fitted on the same neighbor
graph. For each, the trustworthiness (`glle_engine.metrics.ranks`) of `TRUST_POINTS` points at 10 neighbors is averaged
over `NOISE_DRAWS` draws with the seed `FINDING_SEED` at scale 1. The choice therefore depends only on data and
parameters. Neither model is better for all data, and the noise in the data alone does not decide
(docs/explanation/posterior.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import ConvergenceError
from glle_engine.base.results import Diagnostics, dimension_notes
from glle_engine.base.texts import FEATURE, Note, Way
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.graph.neighbors import search_notes
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints, constant_columns
from glle_engine.linalg import dense
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.weights.lle import neighborhoods
from glle_engine.weights.published import MIN_GRADIENT_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from glle_engine.base.spec import FitSpec, Noise, SpaceSpec
    from glle_engine.eigen.eigenpairs import Eigenpairs
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.posterior import Posterior
    from glle_engine.weights.gaussian import WeightDistribution

# If the relative gap between the last eigenvalue of the embedding and the next one is smaller, a note warns that their
# coordinates may change places between draws.
MAX_SMALL_GAP = 0.1
FAR_RATIO = 1000  # outliers are more than this many times as far from the middle of the data as the median point
_SHOWN_ROWS = 5  # a note names at most this many outliers
# A nearest neighbor closer than this share of the median distance counts as a near-duplicate.
MAX_NEAR_DUPLICATE_RATIO = 1e-6
MIN_EIGENVALUE_SHARE = 1e-12  # smaller eigenvalues of a neighborhood, relative to the largest, count as 0
# A note warns if the standard deviations of features differ by this factor: the smaller feature then contributes about
# 1/1000 of the larger one's share to squared distances.
MAX_DEVIATION_RATIO = 30.0
MOST_VARIANCE_SHARE = 0.99  # the figure `features_of_most_variance` counts the features that hold this share
NOISE_MODELS: tuple[Noise, ...] = ("isotropic", "tangent")
TRUST_POINTS = 300  # trustworthiness is averaged over this many points
NOISE_DRAWS = 8  # the trustworthiness of a noise model is averaged over this many draws
# The seed of the draws by which the noise model is chosen. Users hardly give this seed, so that the model is not chosen
# by the very draws that they see.
FINDING_SEED = 2**63


def diagnose(
    X: Data,
    neighbors: NDArray[np.int32],
    distances: NDArray[np.float64],
    classes: list[NDArray[np.intp]],
    bridges: list[tuple[int, int]],
    pairs: Eigenpairs,
    distribution: WeightDistribution,
    facts: dict[str, Any],
    spec: FitSpec,
) -> Diagnostics:
    """Return the diagnostics of a fit: numbers (`figures`) about data and solution, and warnings as text (`notes`).

    Parameters
    ----------
    X : (n, c) float64, Distances or SparsePoints
        The points, scaled for the computation (`glle_engine.base.validation.in_unit`).
    neighbors : (n, k) int32
        The neighbors of each point, ascending.
    distances : (n, k) float64
        The distances from each point to its neighbors, ascending.
    classes
        The points of each closed class of the neighbor graph (a set of points that no edge leaves).
    bridges
        The edges (start, end) that were added to connect the graph.
    pairs : Eigenpairs
        The p + 1 bottom eigenpairs for the mean weights.
    distribution : WeightDistribution
        The fitted distribution of the weights.
    facts : dict
        More numbers, about the data (`given_figures`) and about the weights, which are copied into the figures.
    spec : FitSpec

    """
    n, d = len(X), facts["n_features"]
    p = spec.n_components
    if isinstance(X, Distances):
        count, share = X.shortfall(neighbors)
        of_distances = {"non_euclidean_neighborhoods": count, "non_euclidean_share": share}
    else:
        of_distances = scale_figures(X)
    figures: dict[str, Any] = {
        "n_points": n,
        "points_with_duplicates": int((distances[:, 0] == 0).sum()),
        "points_buried_in_duplicates": int((distances[:, -1] == 0).sum()),
        "points_with_near_duplicates": _near_duplicates(distances),
        **of_distances,
        "flat_neighborhoods": _flat_neighborhoods(X, neighbors, min(p, d)),
        "closed_classes": [len(members) for members in classes],
        "bridges": [list(pair) for pair in bridges],
        "n_bridges": len(bridges),
        "eigenvalues": [float(value) for value in pairs.values],
        "relative_gap": relative_gap(pairs.values, p),
        "solver": pairs.diagnostics["solver"],
        "elimination": pairs.diagnostics.get("elimination", {}),
        **facts,
        **_kept_figures(distribution),
    }
    if spec.variant == "published":
        sums = distribution.mean.sum(axis=1)
        figures["row_sums_of_mean"] = [float(sums.min()), float(sums.max())]
    is_given = facts.get("given_neighbors", False)
    searched = [] if isinstance(X, Distances | SparsePoints) or is_given else search_notes(figures)
    notes = [*bridge_notes(figures["n_bridges"]), *_data_notes(figures, spec), *searched, *_spectrum_notes(figures, p)]
    if spec.variant == "published":
        notes += _published_notes(figures, spec)
    return Diagnostics(figures, tuple(notes))


def given_figures(X: NDArray[np.float64] | csr_array) -> dict[str, Any]:
    """Return numbers about the data X (n, d) as the user passed them, before any scaling.

    They are `n_features`, the indices of `constant_features`, and, for sparse data, the number of `stored_entries`.
    Empty columns of sparse data do not count as constant.
    """
    if isinstance(X, np.ndarray):
        constant, stored = X.max(axis=0) == X.min(axis=0), {}
    else:
        used = np.bincount(X.indices, minlength=X.shape[1]) > 0
        constant, stored = constant_columns(X) & used, {"stored_entries": int(X.nnz)}
    return {"n_features": X.shape[1], "constant_features": np.flatnonzero(constant).tolist(), **stored}


def landmark_note(figures: dict[str, Any], *, is_auto: bool) -> Note:
    """Return the note that tells the user what a posterior on landmarks (a subset of the points) does not show.

    `figures` are the numbers of the fit's diagnostics. With `is_auto`, the fit chose the number of landmarks, and the
    note says why, and how to fit all points.
    """
    n, m = figures["n_points"], figures["landmarks"]
    reason = f"The posterior was fitted to {m:,} landmarks."
    if is_auto:
        reason = (
            f"A draw of all {n:,} points is expected to take more than a second, so the posterior was fitted to "
            f"{m:,} landmarks. {Way('landmarks', 'all')} fits all points, which takes longer, and more memory."
        )
    return Note(
        "landmarks",
        f"{reason} The other {n - m:,} points are placed by drawn weights on their nearest landmarks. Graph, spectrum "
        "and figures describe the landmarks. Detail that is finer than their distances is lost, and the spread differs "
        "from the spread with all points, often by a factor of 3: compare it within one posterior.",
    )


def _kept_figures(distribution: WeightDistribution) -> dict[str, Any]:
    """Return numbers about neighborhoods of different sizes, or an empty dictionary if every point has k neighbors.

    `kept_neighbors` are the minimum, median and maximum number of neighbors of a point, and `reduced_neighborhoods` is
    the number of points with fewer than k neighbors.
    """
    if distribution.kept is None:
        return {}
    count = distribution.kept.sum(axis=1)
    return {
        "kept_neighbors": [int(count.min()), float(np.median(count)), int(count.max())],
        "reduced_neighborhoods": int((count < distribution.kept.shape[1]).sum()),
    }


def _near_duplicates(distances: NDArray[np.float64]) -> int:
    """Count the points whose nearest neighbor is at a positive distance of less than 1e-6 of the median.

    The median is over the distances of all points to their nearest neighbors. `distances` (n, k) are the distances to
    the neighbors of each point, ascending.
    """
    nearest = distances[:, 0]
    typical = np.median(nearest[nearest > 0]) if nearest.any() else 0.0
    return int(((nearest > 0) & (nearest < MAX_NEAR_DUPLICATE_RATIO * typical)).sum())


def scale_figures(X: NDArray[np.float64] | SparsePoints) -> dict[str, Any]:
    """Return numbers about the scales of the features and about outliers, for the notes of `scale_notes`.

    `feature_scale_ratio` is the largest standard deviation of a feature over the smallest, `features_of_most_variance`
    is the number of features that hold 99 % of the variance, and `feature_of_most_variance` is the index of the feature
    with the largest variance. If there are outliers, there is also an entry `far_points` with their row numbers, as
    the function `far_points` finds them.
    """
    if isinstance(X, SparsePoints):
        deviation = X.deviations()
        varying, variance = deviation[deviation > 0], deviation**2
    else:
        apart = X - X[0]  # these differences, and so the results, are the same if the data are shifted
        variance = apart.var(axis=0)
        varying = np.sqrt(variance)[np.ptp(apart, axis=0) > 0]
    largest = np.sort(variance)[::-1]
    return {
        "feature_scale_ratio": float(varying.max() / varying.min()) if varying.size and varying.min() > 0 else 1.0,
        "features_of_most_variance": int(np.searchsorted(np.cumsum(largest), MOST_VARIANCE_SHARE * largest.sum())) + 1,
        "feature_of_most_variance": int(np.argmax(variance)),
        **({"far_points": far} if isinstance(X, np.ndarray) and (far := far_points(X)) else {}),
    }


def far_points(X: NDArray[np.float64]) -> list[int]:
    """Return the rows of outliers: points that lie more than 1,000 times as far from the middle as the median point.

    The middle is the median of each feature, and a point's distance from the middle is its largest difference in any
    feature. If more than 1 % of the points lie so far away, the list is empty: such data have distances on many scales,
    and no outliers.
    """
    with np.errstate(over="ignore"):
        away = np.abs(X - np.median(X, axis=0)).max(axis=1)
    rows = np.flatnonzero(away > FAR_RATIO * np.median(away))
    return rows.tolist() if len(rows) <= max(1, len(X) // 100) else []


def far_text(rows: list[int]) -> str:
    """Return a sentence for the user that names the outliers, by their `rows` in the data, and says what to do."""
    some = ", ".join(map(str, rows[:_SHOWN_ROWS])) + (", ..." if len(rows) > _SHOWN_ROWS else "")
    one = len(rows) == 1
    lie, their, them = (f"Point {some} lies", "its", "it") if one else (f"Points {some} lie", "their", "them")
    return (
        f"{lie} more than {FAR_RATIO:,} times as far from the middle of the data as points usually do (rows count "
        "from 0): "
        f"check {their} values, and correct {them} or leave {them} out."
    )


def scale_notes(figures: dict[str, Any], d: int, spec: SpaceSpec) -> Iterator[Note]:
    """Yield a note if there are outliers, and a note if a few of the d features determine all Euclidean distances.

    `figures` are the numbers from `scale_figures`.
    """
    if rows := figures.get("far_points"):
        yield Note("far-points", far_text(rows))
    is_of_points = spec.space[1] == "euclidean" and not spec.precomputed
    if is_of_points and figures["feature_scale_ratio"] >= MAX_DEVIATION_RATIO:
        way = f"use {Way('standardize', 'zscore')}" if hasattr(spec, "standardize") else "standardize them"
        count, largest = figures["features_of_most_variance"], Way(FEATURE, figures["feature_of_most_variance"])
        yield Note(
            "unequal-feature-scales",
            f"The standard deviations of features differ by a factor of {figures['feature_scale_ratio']:,.0f}; "
            f"{count:,} of {d:,} features hold 99 % of the variance, most of it {largest}, and determine the "
            f"neighbors. If the features have different units, {way}; features in one unit, such as pixels, can stay.",
        )


def _flat_neighborhoods(X: Data, neighbors: NDArray[np.int32], needed: int) -> int:
    """Count the points whose differences to their `neighbors` (n, k) span fewer than `needed` dimensions."""
    if needed > min(X.shape[1], neighbors.shape[1]):
        return len(X)
    flat = 0
    for block in neighborhoods(X, neighbors, "diagnostics"):
        if needed == 1:
            flat += int((block.trace == 0).sum())
        elif needed == 2:  # a Gram matrix G has rank 1 if (tr G)^2 = tr G^2
            unit = np.where(block.trace > 0, block.trace, 1.0)[:, None, None]
            flat += int(
                (1 - ((block.gram / unit) ** 2).sum(axis=(1, 2)) <= MIN_EIGENVALUE_SHARE).sum()
                + (block.trace == 0).sum()
            )
        else:
            values, _ = dense.eigh(block.gram)
            flat += int((values[:, -needed] <= MIN_EIGENVALUE_SHARE * values[:, -1]).sum())
    return flat


def bridge_notes(count: int) -> Iterator[Note]:
    """Yield a note if a fit has added edges (bridges) to connect the parts of the neighbor graph: `count` is not 0."""
    if count:
        added = (
            "edge that joins no nearest neighbors was" if count == 1 else "edges that join no nearest neighbors were"
        )
        yield Note(
            "bridged",
            f"The neighbor graph falls into {count + 1:,} parts; {count:,} {added} added between them (the "
            "figure bridges). The distance between those parts in the embedding means little. Raise "
            f"{Way('n_neighbors')} to join them by neighbors, fit each part as a separate data set, or use "
            f"{Way('disconnected', 'error')} to refuse such data.",
        )


def _data_notes(figures: dict[str, Any], spec: FitSpec) -> Iterator[Note]:
    if constant := figures["constant_features"]:
        shown = ", ".join(map(str, constant[:20])) + (", ..." if len(constant) > 20 else "")
        yield Note(
            "constant-features",
            f"{len(constant)} of {figures['n_features']} features are constant (columns {shown}, counted from 0). "
            "They are accepted and change nothing.",
        )
    if duplicated := figures["points_with_duplicates"]:
        buried = figures["points_buried_in_duplicates"]
        yield Note(
            "duplicates",
            f"{duplicated} points have an exact duplicate among their neighbors"
            + (
                f", and {buried} have only duplicates: any weights reconstruct these, so their posterior is the prior."
                if buried
                else "."
            ),
        )
    if near := figures["points_with_near_duplicates"]:
        yield Note(
            "near-duplicates",
            f"{near} points have a neighbor a million times nearer than is typical. Their weights depend on rounding "
            "errors or measurement noise: merge such points, or add the noise that repeated measurements would have.",
        )
    if figures.get("given_neighbors"):
        yield Note(
            "given-neighbors",
            "The fit uses the given neighbors, without a search. New points have the nearest points of the data as "
            "neighbors; the scale cannot be calibrated.",
        )
    if bent := figures.get("non_euclidean_neighborhoods"):
        yield Note(
            "non-euclidean-distances",
            f"No points of a Euclidean space have the distances of {bent:,} of {figures['n_points']:,} neighborhoods "
            f"(negative eigenvalues are up to {figures['non_euclidean_share']:.2g} of the total). The nearest "
            "distances that points can have replace them. Where that share is large, try the roots of the distances.",
        )
    yield from scale_notes(figures, figures["n_features"], spec)
    if flat := figures["flat_neighborhoods"]:
        yield Note(
            "flat-neighborhoods",
            f"{flat} neighborhoods span fewer than {min(spec.n_components, figures['n_features'])} dimensions "
            "(collinear or duplicated points): they say nothing about the other directions. Raise "
            f"{Way('n_neighbors')}.",
        )
    yield from dimension_notes(figures["n_features"], spec.n_components, spec.metric)
    if spec.n_components >= spec.n_neighbors:
        yield Note(
            "more-components-than-neighbors",
            f"{Way('n_components', spec.n_components)} is not below {Way('n_neighbors', spec.n_neighbors)}: "
            f"neighborhoods cannot span the embedding. Raise {Way('n_neighbors')}.",
        )


def _spectrum_notes(figures: dict[str, Any], p: int) -> Iterator[Note]:
    if (reduced := figures.get("reduced_neighborhoods")) and not figures.get("given_neighbors"):
        smallest, median, _ = figures["kept_neighbors"]
        yield Note(
            "reduced-neighborhoods",
            f"{reduced} of {figures['n_points']} points lost candidates that lie off their tangent plane; "
            f"neighborhoods have {smallest} points at least and {median:g} in the median.",
        )
    classes = figures["closed_classes"]
    if len(classes) > 1:
        yield Note(
            "closed-classes",
            f"The directed graph has {len(classes)} closed classes, of {', '.join(map(str, classes[:5]))} points: "
            f"{min(len(classes) - 1, p)} of the {p} coordinates only separate the classes, with eigenvalue 0. Raise "
            f"{Way('n_neighbors')} until one class is left, or leave disconnected at 'bridge'.",
        )
    if figures["relative_gap"] < MAX_SMALL_GAP:
        yield Note(
            "small-gap",
            f"Eigenvalues {p} and {p + 1} differ by {figures['relative_gap']:.2g} of eigenvalue {p + 1}: the last "
            f"coordinate can change places with the next one between draws. Look at {Way('n_components')} one higher.",
        )
    if figures["solver"] == "shift-invert":
        yield Note(
            "fallback-solver",
            "The reference embedding comes from the last solver of the chain and is accurate to some 1e-6 only.",
        )


def _published_notes(figures: dict[str, Any], spec: FitSpec) -> Iterator[Note]:
    n, d, k, p = figures["n_points"], figures["n_features"], spec.n_neighbors, spec.n_components
    smallest, largest = figures["row_sums_of_mean"]
    yield Note(
        "published-not-invariant",
        "The published equations change when the data are shifted or rescaled, and draws do not sum to one: rows "
        f"of the mean sum to between {smallest:.4g} and {largest:.4g}.",
    )
    if negative := figures.get("negative_variances"):
        yield Note(
            "negative-variances",
            f"The M-step gave {negative} of {n} points a negative variance (Eq. 22 lacks the outer product of the "
            "mean). Draws use the absolute value.",
        )
    if figures.get("converged") is False and spec.tol > 0:  # tol=0 means exactly max_iter iterations
        yield Note(
            "not-converged",
            f"em stopped at {Way('max_iter', spec.max_iter)} before reaching {Way('tol', spec.tol)}.",
        )
    if (left := max(figures.get("descent_gradients", [0.0]))) > MIN_GRADIENT_SHARE:
        yield Note(
            "not-converged",
            f"A gradient descent along Eq. 26 stopped after {max(figures['descent_steps']):,} steps, with {left:.2g} "
            f"of its first gradient left. {Way('covariance', 'full')} has its limit in closed form.",
        )
    if exact := figures.get("exact_reconstructions"):
        yield Note(
            "linear-projection",
            f"The {d} features are fewer than the {k} neighbors: draws reconstruct {exact} of {n} centered points "
            "exactly, so that the bottom eigenvectors are linear projections of the data.",
        )
    if full := figures.get("full_rank_neighborhoods"):
        yield Note(
            "zero-covariance",
            f"{full} of {n} neighborhoods have full column rank ({d} features, {k} neighbors): their posterior "
            "covariance is exactly 0" + (", and every draw is the same embedding." if full == n else "."),
        )
    if singular := figures.get("singular_precisions"):
        yield Note(
            "singular-precision",
            f"The precision of Eq. 35 is singular for {singular} of {n} points (d + p = {d + p}, k = {k}); the "
            "pseudo-inverse replaces the inverse.",
        )


def trust_of(X: Data, Y: NDArray[np.float64]) -> float:
    """Return the trustworthiness of an embedding Y (n, q) of data X (n, d) at 10 neighbors, averaged over 300 points.

    The 300 points are a random sample, always the same for n points, so that embeddings of the same data can be
    compared. With fewer than 300 points, all are used, and with fewer than 21, fewer neighbors.
    """
    n = len(Y)
    points = np.random.default_rng(0).permutation(n)[:TRUST_POINTS]
    return trustworthiness(X, np.ascontiguousarray(Y), min(10, (n - 1) // 2), points)


def trust_of_draws(X: Data, posterior: Posterior) -> float:
    """Return the trustworthiness (`trust_of`) averaged over 8 draws of a posterior at scale 1.

    X is the data of the fit. The result is 0 if the solver finds no solution for a draw.
    """
    try:
        return float(np.mean([trust_of(X, draw.embedding) for draw in posterior.draws(NOISE_DRAWS, seed=FINDING_SEED)]))
    except ConvergenceError:
        return 0.0


def of_chosen_noise(X: Data, spec: FitSpec, fitted: Callable[[FitSpec], Posterior]) -> Posterior:
    """Resolve ``noise="auto"``: fit both noise models, and return the posterior whose draws keep neighbors better.

    Parameters
    ----------
    X : (n, d) float64, Distances or SparsePoints
        The data, scaled as for the fit.
    spec : FitSpec
        Specification with ``noise="auto"``.
    fitted : callable
        Called with a copy of `spec` that names a noise model in place of "auto"; returns the fitted posterior.

    Returns
    -------
    Posterior
        The posterior of a fit with the chosen noise model, which its specification names. Its diagnostics also have the
        trustworthiness of both models, as the figure `noise`, and a note on the choice.

    """
    posteriors = {noise: fitted(replace(spec, noise=noise)) for noise in NOISE_MODELS}
    kept = {noise: trust_of_draws(X, posterior) for noise, posterior in posteriors.items()}
    noise: Noise = "tangent" if kept["tangent"] > kept["isotropic"] else "isotropic"
    note = Note(
        "noise-chosen",
        f"{Way('noise', noise)} was chosen, because {NOISE_DRAWS} draws at scale 1 keep neighbors better: "
        f"trustworthiness {kept['isotropic']:.3f} isotropic, {kept['tangent']:.3f} tangent.",
    )
    known = posteriors[noise].diagnostics
    diagnostics = Diagnostics({**known.figures, "noise": {"model": noise, **kept}}, (*known.notes, note))
    return replace(posteriors[noise], diagnostics=diagnostics)
