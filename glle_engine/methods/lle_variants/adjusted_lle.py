r"""Four variants of LLE: automatic k, automatic ridge, outliers set apart, and points added one by one.

LLE with an automatic number of neighbors: of a range of k, the one whose embedding keeps the most neighbors
(`glle_engine.metrics.neighbor_count`). Only graphs of one component with one closed class are candidates.

LLE with an automatic ridge at each point.

The weights are :math:`w_i = A_i^{-1} 1 / (1^T A_i^{-1} 1)` with :math:`A_i = G_i + r_i I`. The ridge :math:`r_i` is the
mean of the k - p smallest eigenvalues of the local Gram matrix,
:math:`r_i = \frac{1}{k - p} \sum_{j > p} \lambda_j(G_i)`. This is the variance off a plane of p dimensions, as in
probabilistic PCA (de Ridder and Duin 2002, *Locally linear embedding for classification*; survey arXiv 2011.10925).
Generalized cross-validation (Golub, Heath and Wahba 1979) takes larger ridges. The trustworthiness of its embeddings
was lower on five of seven data sets (.89 in place of .94 on digits, .85 in place of .98 on a roll).

:math:`r_i / \mathrm{tr}(G_i)` is kept between two bounds. If they are equal, the result is LLE's with this reg.

Robust LLE: an embedding of the inliers, with the outliers placed among them.

Robust PCA of the k nearest neighbors of each point finds the plane of p dimensions that minimizes
:math:`\sum_j a_j e_j^2`, where :math:`e_j` is the distance from the plane, with Huber's weights

.. math:: a_j = \min(1, c / e_j),\quad c = \tfrac{1}{2}\, \mathrm{mean}_j\, e_j,

by iterative reweighting (Chang and Yeung 2006; survey arXiv 2011.10925, "robust LLE using least squares"). The
reliability of a point is the sum of its normalized weights, :math:`s_j = \sum_i a_{ij} / \sum_l a_{il}`, over the
neighborhoods that contain it. It is 1 on average, and 0 for a point in no neighborhood. Points below `min_reliability`
are outliers, which may include the corners of a sheet.

The inliers are embedded by LLE with neighbors among themselves, and each outlier is placed by its LLE weights on its k
nearest inliers. If `min_reliability` is 0, there are no outliers, and the result is LLE.

Incremental LLE: some points are embedded, and the others are placed one by one.

An added point is placed by its weights on the initial points, :math:`y = \sum_j w_j y_j` (Saul and Roweis 2003). The
coordinates of the other points do not change, and each addition takes the same time. If all points are initial, the
result is LLE. The placement that keeps the eigenvalues constant (Kouropteva, Okun and Pietikainen 2005) is not offered:
on sheets with and without noise and on digits, its trustworthiness differs by at most .003, and its time grows as
n^2 d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError, TooFewPointsError
from glle_engine.base.progress import block_size, blocks
from glle_engine.base.spec import FitSpec
from glle_engine.base.texts import Note, Way
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.radius import BRIDGE_INSTEAD
from glle_engine.linalg import dense
from glle_engine.methods.base import Embedding, Method, note_bridges
from glle_engine.methods.parameters import DistanceSpec, GraphSpec, NeighborSpec, choice, integer, number
from glle_engine.methods.spectral.lle import LleGraphSpec, LleSpec, embedding_of, lle_neighbor_count, lle_of
from glle_engine.posterior.placement import attach
from glle_engine.weights.lle import (
    Neighborhoods,
    neighborhoods,
    normalized_precision,
    principal_directions,
    ridge_factor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_TRIED = 7  # a range with more values of k than this is tried at this many values only
_SETTLED = 1e-3  # robust PCA of a neighborhood ends if an iteration changes no weight, from 0 to 1, by more than this
_ADDED = 1024  # points are placed in blocks of this many


@dataclass(frozen=True, kw_only=True)
class AutoKLleSpec(GraphSpec, DistanceSpec):
    """Parameters of LLE with automatic k."""

    k_least: int = integer(5, "The smallest number of neighbors that is tried.", minimum=2, counts=True)
    k_most: int = integer(30, "The largest number of neighbors that is tried.", minimum=2, counts=True)
    reg: float = number(1e-3, "Ridge of the weights, relative to the trace of the local Gram matrix.", above=0)

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if k_least is above k_most."""
        if self.k_least > self.k_most:
            raise InvalidParameterError(
                f"{Way('k_least', self.k_least)} is above {Way('k_most', self.k_most)}.",
                remedy=f"Give {Way('k_least')} of at most {Way('k_most')}.",
            )

    def candidates(self) -> list[int]:
        """Return the values of k to try, ascending: all from k_least to k_most, or at most seven if there are more."""
        every = list(range(self.k_least, self.k_most + 1))
        few = {round(k) for k in np.geomspace(self.k_least, self.k_most, _TRIED)}
        return every if len(every) <= _TRIED else sorted(few)

    def at(self, k: int) -> LleGraphSpec:
        """Return the specification of LLE with k neighbors."""
        return LleGraphSpec(n_components=self.n_components, n_neighbors=k, reg=self.reg, disconnected=self.disconnected)

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if n points are too few for k_most neighbors, or for the components."""
        if self.k_most >= n and self.n_components <= n - 2:
            raise InvalidParameterError(
                f"{Way('k_most', self.k_most)} needs more than {n} points.",
                remedy=f"Give {Way('k_most')} of at most {n - 1}.",
            )
        require_enough_points(n, self.at(max(2, min(self.k_most, n - 1))))


@Method(
    spec=AutoKLleSpec,
    title="LLE with automatic k",
    about="LLE with the k of a range whose embedding keeps the most neighbors of the data.",
    source="survey arXiv 2011.10925, on the number of neighbors",
    growth="as LLE, and as seven LLE of at most 1,500 points",
    reproducible=True,
)
def auto_k_lle(X: NDArray[np.float64], spec: AutoKLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by LLE with the k, from k_least to k_most, whose embedding keeps the most neighbors of the data."""
    instead = f"Raise {Way('k_most')}. {BRIDGE_INSTEAD}"
    neighbor_count = lle_neighbor_count(X, spec.at(spec.k_most), spec.candidates(), on_progress, instead=instead)
    chosen = spec.at(neighbor_count.figures["n_neighbors"])
    graph, bridges = chosen.graph(X, on_progress)
    embedding = lle_of(X, graph.nearest, chosen, on_progress)
    return note_bridges(embedding.extended(neighbor_count.figures, neighbor_count.notes()), bridges)


@dataclass(frozen=True, kw_only=True)
class AutoRegLleSpec(GraphSpec, NeighborSpec):
    """Parameters of LLE with automatic regularization."""

    reg_least: float = number(1e-6, "The least ridge, relative to the trace of the local Gram matrix.", above=0)
    reg_most: float = number(1.0, "The greatest ridge, relative to the trace of the local Gram matrix.", above=0)

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if reg_least is above reg_most, or n_components is not below n_neighbors."""
        if self.reg_least > self.reg_most:
            raise InvalidParameterError(
                f"{Way('reg_least', self.reg_least)} is above {Way('reg_most', self.reg_most)}.",
                remedy=f"Give {Way('reg_least')} of at most {Way('reg_most')}.",
            )
        if self.n_components >= self.n_neighbors:
            raise InvalidParameterError(
                f"{Way('n_components', self.n_components)} and {self.n_neighbors} neighbors leave no residual from "
                "which the ridge could be estimated.",
                remedy=f"Give {Way('n_neighbors')} of more than {self.n_components}.",
            )


def residual_ridge(block: Neighborhoods, p: int) -> NDArray[np.float64]:
    """Return the ridge of each point of a block (m,), relative to the trace of the point's Gram matrix (k, k).

    The ridge is the mean of the k - p smallest eigenvalues of this matrix.
    """
    values = np.maximum(np.linalg.eigvalsh(block.gram), 0.0)
    return np.asarray(values[:, :-p].mean(axis=1) / np.where(block.trace > 0, block.trace, 1.0))


@Method(
    spec=AutoRegLleSpec,
    title="LLE with automatic regularization",
    about="LLE whose ridge is, at each point, the variance off its tangent plane.",
    source="de Ridder and Duin 2002; survey arXiv 2011.10925",
    growth="as LLE, and k^3 a point",
)
def auto_reg_lle(X: NDArray[np.float64], spec: AutoRegLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by LLE with a ridge for each point, estimated from the variance off the point's tangent plane."""
    graph, bridges = spec.graph(X, on_progress)
    neighbors = np.sort(graph.nearest, axis=1)
    weights, ridge = np.empty(neighbors.shape), np.empty(len(X))
    for block in neighborhoods(X, neighbors, "weights", on_progress):
        ridge[block.rows] = chosen = residual_ridge(block, spec.n_components)
        reg = np.clip(chosen, spec.reg_least, spec.reg_most)[:, None]
        root = ridge_factor(normalized_precision(block.gram, block.trace, reg)[0])
        weights[block.rows] = dense.affine_solution(root)[0]
    embedding = embedding_of(neighbors, weights, spec, on_progress)
    at_least, at_most = int((ridge <= spec.reg_least).sum()), int((ridge >= spec.reg_most).sum())
    used = np.clip(ridge, spec.reg_least, spec.reg_most)
    figures = {
        "reg_05": float(np.quantile(used, 0.05)),
        "reg_median": float(np.median(used)),
        "reg_95": float(np.quantile(used, 0.95)),
        "at_reg_least": at_least,
        "at_reg_most": at_most,
    }
    return note_bridges(embedding.extended(figures, _bound_notes(at_least + at_most, len(X), spec)), bridges)


def _bound_notes(bounded: int, n: int, spec: AutoRegLleSpec) -> Iterator[Note]:
    """Yield a note if more than half of the n ridges were set to a bound; `bounded` counts these ridges."""
    if bounded > n // 2 and spec.reg_least < spec.reg_most:
        yield Note(
            "ridge-at-bound",
            f"At {bounded} of {n} points the ridge is at a bound, not at the value of the rule. Lower "
            f"{Way('reg_least')} or raise {Way('reg_most')}, or take LLE with a fixed reg.",
        )


@dataclass(frozen=True, kw_only=True)
class RobustLleSpec(GraphSpec, LleSpec):
    """Parameters of robust LLE."""

    min_reliability: float = number(
        0.3,
        "Points of lower reliability are outliers. The mean reliability of all points is 1; with 0 there are no "
        "outliers.",
        minimum=0,
        below=1,
    )
    max_iter: int = integer(30, "Largest number of iterations of the robust PCA of a neighborhood.", minimum=1)


def reliability(
    X: NDArray[np.float64],
    nearest: NDArray[np.int32],
    n_components: int,
    max_iter: int,
    on_progress: OnProgress,
) -> tuple[NDArray[np.float64], int]:
    """Return the reliability (n,) of each point by robust local PCA, and how many neighborhoods did not converge.

    Robust PCA gives the points of a neighborhood weights, which are low far from its plane and sum to one. The
    reliability of a point is the sum of its weights in all neighborhoods that contain the point: 1 on average.

    Parameters
    ----------
    X : (n, d) float64
    nearest : (n, k) int32
        The neighbors of each point.
    n_components : int
        p, the dimension of the plane that is fitted to each neighborhood.
    max_iter : int
        Largest number of iterations. A neighborhood has converged if the last one changed no weight by more than .001.

    """
    n, k = nearest.shape
    total, unsettled = np.zeros(n), 0
    for rows in blocks(n, block_size(k * max(k, X.shape[1])), "reliability", on_progress):
        weights, moving = _robust_weights(X[nearest[rows]], n_components, max_iter)
        weights /= weights.sum(axis=1, keepdims=True)
        total += np.bincount(nearest[rows].ravel(), weights.ravel(), minlength=n)
        unsettled += moving
    return total, unsettled


def _robust_weights(points: NDArray[np.float64], p: int, max_iter: int) -> tuple[NDArray[np.float64], int]:
    """Return Huber's weights (m, k) of points (m, k, d) in m neighborhoods, and how many of the m did not converge.

    The weight of a point is 1 up to half the mean distance of the points from the neighborhood's plane of p dimensions,
    and then falls with the inverse of the point's distance.
    """
    weights = np.ones(points.shape[:2])
    moving = np.arange(len(points))
    for _ in range(max_iter):
        errors = _distances_from_plane(points[moving], weights[moving], p)
        limit = 0.5 * errors.mean(axis=1, keepdims=True)
        # If all points lie on the plane, their distances from it are rounding errors, and all weights stay 1.
        flat = limit <= 1e-7 * np.linalg.norm(np.ptp(points[moving], axis=1), axis=1)[:, None]
        update = np.where(flat | (errors <= limit), 1.0, limit / np.where(errors > 0, errors, 1.0))
        change = np.abs(update - weights[moving]).max(axis=1)
        weights[moving] = update
        moving = moving[change > _SETTLED]
        if not len(moving):
            break
    return weights, len(moving)


def _distances_from_plane(points: NDArray[np.float64], weights: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """Return the distances (m, k) of the points (m, k, d) of m neighborhoods from each neighborhood's plane.

    The plane is spanned by the p leading principal axes of the neighborhood with the `weights` (m, k).
    """
    share = weights / weights.sum(axis=1, keepdims=True)
    offset = points - np.einsum("mk,mkd->md", share, points)[:, None, :]
    axes = principal_directions(np.sqrt(share)[:, :, None] * offset, p)
    along = dense.matmul(offset, np.ascontiguousarray(axes.transpose(0, 2, 1)))
    squares = np.einsum("mkd,mkd->mk", offset, offset) - np.einsum("mkp,mkp->mk", along, along)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


@Method(
    spec=RobustLleSpec,
    title="Robust LLE",
    about="LLE of the points that robust local PCA finds reliable; outliers are placed by their weights on these.",
    source="Chang and Yeung 2006, Pattern Recognition 39; survey arXiv 2011.10925",
    growth="as LLE, and k min(d, k)^2 for each point and iteration",
)
def robust_lle(X: NDArray[np.float64], spec: RobustLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed the inliers, and place the outliers by their weights on the inliers."""
    n, k, p = len(X), spec.n_neighbors, spec.n_components
    nearest, _ = kneighbors(X, k, on_progress)
    reliable, unsettled = reliability(X, nearest, p, spec.max_iter, on_progress)
    outlier = reliable < spec.min_reliability
    outliers, inliers = np.flatnonzero(outlier), np.flatnonzero(~outlier)
    if len(inliers) <= max(k, p + 1):
        raise TooFewPointsError(
            f"{len(outliers)} of {n} points are outliers, too many to embed the others.",
            remedy=f"Lower {Way('min_reliability')} or {Way('n_neighbors')}.",
            details={"outliers": len(outliers)},
        )
    try:
        graph, bridges = spec.graph(X[inliers], on_progress)
    except DisconnectedGraphError as error:
        raise DisconnectedGraphError(
            f"After {len(outliers)} outliers were set aside, the other points were to be embedded. " + error.message,
            remedy=error.remedy + f" A lower {Way('min_reliability')} finds fewer outliers.",
            details={**error.details, "outliers": len(outliers)},
        ) from error
    embedding = lle_of(X[inliers], graph.nearest, spec, on_progress)
    Y = np.empty((n, p))
    Y[inliers] = embedding.Y
    Y[outliers] = attach(X[inliers], X[outliers], FitSpec(n_neighbors=k, reg=spec.reg)).extension().embed(embedding.Y)
    figures = {
        "n_outliers": len(outliers),
        "outliers": [int(i) for i in outliers],
        "least_reliability": float(reliable.min()),
        "unsettled": unsettled,
    }
    embedding = replace(embedding, embedding=Y).extended(figures, _outlier_notes(len(outliers), n, unsettled, spec))
    return note_bridges(embedding, bridges, inliers)


def _outlier_notes(outliers: int, n: int, unsettled: int, spec: RobustLleSpec) -> Iterator[Note]:
    """Yield a note if `outliers` > 0, and a note if `unsettled` > n / 10.

    `outliers` is the number of outliers among n points, and `unsettled` the number of neighborhoods whose plane did not
    converge.
    """
    if outliers:
        yield Note(
            "outliers-placed",
            f"{outliers} of {n} points are outliers: the embedding is of the others, and they are placed by "
            f"their weights on their nearest inliers. With {Way('min_reliability', 0)} they take part.",
        )
    if unsettled > n // 10:
        message = (
            f"{unsettled} of {n} planes did not converge within {spec.max_iter} iterations. Raise {Way('max_iter')}."
        )
        yield Note("planes-unsettled", message)


@dataclass(frozen=True, kw_only=True)
class IncrementalLleSpec(GraphSpec, LleSpec):
    """Parameters of incremental LLE."""

    initial_share: float = number(0.5, "The share of the points that is embedded first.", above=0, maximum=1)
    order: str = choice(
        "random",
        "The order in which points are added: random, by the seed, or the order of the rows (given).",
        "random",
        "given",
    )
    seed: int = integer(0, "The seed of a random order.", minimum=0)

    def most_neighbors(self, n: int) -> int:
        """Return the largest n_neighbors with which n points can be embedded.

        It is one less than the number of initial points, the points that LLE embeds before the others are added.
        """
        return initial_points(n, self) - 1

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` if the initial points, which LLE embeds before the others are added, are too few."""
        super().require_possible(n, d)
        min_points = max(self.n_neighbors + 1, self.n_components + 2)
        if initial_points(n, self) < min_points:
            raise TooFewPointsError(
                f"{Way('initial_share', self.initial_share)} of {n} points are {initial_points(n, self)} "
                f"initial points; LLE needs {min_points}.",
                remedy=f"Use {Way('initial_share')} >= {min_points / n:.3g}, or give more points.",
                details={"n_points": n, "least": min_points},
            )


def initial_points(n: int, spec: IncrementalLleSpec) -> int:
    """Return how many of n points are embedded first: n times `spec.initial_share`, rounded."""
    return min(n, round(spec.initial_share * n))


@Method(
    spec=IncrementalLleSpec,
    title="Incremental LLE",
    about="LLE of some points; the others are added by their weights on these.",
    source="Saul and Roweis 2003; survey arXiv 2011.10925",
    growth="as LLE of the initial points, and n for the others; n^2 d for many features",
)
def incremental_lle(X: NDArray[np.float64], spec: IncrementalLleSpec, on_progress: OnProgress) -> Embedding:
    """Embed a share of the points, the initial points, by LLE, and place each other point by its weights on these."""
    n, k = len(X), spec.n_neighbors
    count = initial_points(n, spec)
    arrival = np.random.default_rng(spec.seed).permutation(n) if spec.order == "random" else np.arange(n)
    first, rest = np.sort(arrival[:count]), arrival[count:]
    graph, bridges = spec.graph(X[first], on_progress)
    embedding = lle_of(X[first], graph.nearest, spec, on_progress)
    Y = np.empty((n, spec.n_components))
    Y[first] = embedding.Y
    weights = FitSpec(n_neighbors=k, reg=spec.reg)
    for rows in blocks(len(rest), _ADDED, "additions", on_progress):
        Y[rest[rows]] = attach(X[first], X[rest[rows]], weights).extension().embed(embedding.Y)
    return note_bridges(replace(embedding, embedding=Y).extended({"n_initial": count}), bridges, first)
