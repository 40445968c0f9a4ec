"""Advice on n_neighbors and n_components: curves over a range, and a suggestion with its rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import Note, brief
from glle_engine.base.spec import FitSpec
from glle_engine.base.validation import finite_matrix
from glle_engine.eigen.eigenpairs import relative_gap
from glle_engine.eigen.eigenproblem import Eigenproblem, scale_embedding
from glle_engine.graph.connectivity import closed_classes, components
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import locate
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import disparity
from glle_engine.metrics.ranks import continuity, trustworthiness
from glle_engine.weights.lle import lle_weights, neighborhoods

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.graph.relations import Data

DEFAULT_RANGE = (5, 6, 7, 8, 10, 12, 15, 20, 25, 30)
PROBES = 2000
SMALL_GAP = 0.1


@dataclass(frozen=True)
class NeighborsRow:
    """Scores of one value of n_neighbors.

    Attributes
    ----------
    n_neighbors : int
    components : int
        Number of components of the graph. With several components, or several closed classes, LLE has more than one
        null vector.
    closed_classes : int
        Number of closed classes of the graph, read as a Markov chain.
    reconstruction_error : float
        Mean over points of |x_i - X_i w_i|^2 / tr(G_i) * k, the squared error relative to the squared distance of a
        neighbor.
    trustworthiness, continuity : float or None
        Scores of the LLE embedding; None if the graph has several components.
    instability : float or None
        Mean Procrustes disparity to the embeddings of the next smaller and next larger k of the range.

    """

    n_neighbors: int
    components: int
    closed_classes: int
    reconstruction_error: float
    trustworthiness: float | None
    continuity: float | None
    instability: float | None


@dataclass(frozen=True)
class ComponentsRow:
    """Spectral gap after one n_components.

    Attributes
    ----------
    n_components : int
    eigenvalue : float
        lambda_p of M at LLE's weights.
    relative_gap : float
        (lambda_{p+1} - lambda_p) / lambda_{p+1}: near 0, coordinates p and p + 1 can swap.

    """

    n_components: int
    eigenvalue: float
    relative_gap: float


@dataclass(frozen=True)
class Advice:
    """Curves and suggestions; JSON-able through `to_dict`.

    Attributes
    ----------
    n_neighbors : int or None
        The value with the highest (trustworthiness + continuity) / 2 - instability / 10 among the values whose graph is
        connected and has one closed class; None if there is none.
    n_components : int or None
        The intrinsic dimension, rounded, and at most the number of eigenvalues examined; None if n_neighbors is None.
        The largest relative gap does not tell how many coordinates the data need: for a long sheet it comes after the
        first coordinate.
    intrinsic_dimension : float
        Maximum-likelihood estimate from neighbor distances (Levina and Bickel 2004), averaged as MacKay and
        Ghahramani suggest.
    neighbors_curve : tuple of NeighborsRow
    components_curve : tuple of ComponentsRow
    notes : tuple of Note
        Notes, which explain the suggested n_components in words.

    """

    n_neighbors: int | None
    n_components: int | None
    intrinsic_dimension: float
    neighbors_curve: tuple[NeighborsRow, ...]
    components_curve: tuple[ComponentsRow, ...]
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as a JSON-able dictionary."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def advise(
    X: ArrayLike,
    *,
    n_neighbors: Sequence[int] = DEFAULT_RANGE,
    n_components: int = 2,
    max_components: int = 10,
    reg: float = 1e-3,
    standardize: Standardize = "none",
    metric: Metric = "euclidean",
    on_progress: OnProgress = silent,
) -> Advice:
    """Evaluate a range of n_neighbors, and the n_components for the best of them.

    Parameters
    ----------
    X : (n, d)
    n_neighbors : sequence of int
        The range; values of n or more are left out of the curve.
    n_components : int
        p of the embeddings that are scored.
    max_components : int
        The number of eigenvalues examined.
    reg : float
    standardize, metric
        As for `FitSpec`.
    on_progress
        Called with (done, total, "advice").

    Raises
    ------
    GlleError
        As `glle_engine.posterior.fit` does, and if no k of the range is below n.

    """
    if not hasattr(n_neighbors, "__iter__") or isinstance(n_neighbors, str):
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors!r:.60} is no range.", remedy="Give several numbers, such as [8, 10, 15]."
        )
    ks = sorted({check_integer("n_neighbors", k, 2) for k in n_neighbors})
    max_components = check_integer("max_components", max_components, 1)
    spec = FitSpec(
        n_neighbors=ks[0] if ks else 2, n_components=n_components, reg=reg, standardize=standardize, metric=metric
    )
    given = finite_matrix(X)
    data = locate(given, spec)
    ks = [k for k in ks if k < len(data)]
    if not ks:
        raise InvalidParameterError("The range of n_neighbors is empty.", remedy="Give at least one k below n.")
    nearest, distances = kneighbors(data, ks[-1])
    points = np.random.default_rng(0).permutation(len(data))[:PROBES]
    embeddings: dict[int, NDArray[np.float64]] = {}
    rows = []
    for done, k in enumerate(ks):
        neighbors = np.sort(nearest[:, :k], axis=1)
        weights = lle_weights(data, neighbors, reg)
        n_parts, classes = int(components(neighbors).max()) + 1, closed_classes(neighbors)
        connected = n_parts == 1
        if connected:
            _, pairs = Eigenproblem.prepare(neighbors, weights, classes, n_components)
            embeddings[k] = scale_embedding(pairs.vectors)
        quality_k = min(10, (len(data) - 1) // 2)
        rows.append(
            NeighborsRow(
                n_neighbors=k,
                components=n_parts,
                closed_classes=len(classes),
                reconstruction_error=_reconstruction_error(data, neighbors, weights),
                trustworthiness=trustworthiness(data, embeddings[k], quality_k, points) if connected else None,
                continuity=continuity(data, embeddings[k], quality_k, points) if connected else None,
                instability=None,
            )
        )
        on_progress(done + 1, len(ks) + 1, "advice")
    rows = [_with_instability(row, embeddings) for row in rows]
    best = _best(rows)
    spectrum = _spectrum(data, nearest, best, max_components, reg) if best is not None else ()
    on_progress(len(ks) + 1, len(ks) + 1, "advice")
    dimension = intrinsic_dimension(distances[:, : max(3, min(20, ks[-1]))])
    suggested = min(max(round(dimension), 1), len(spectrum)) if spectrum else None
    return Advice(
        n_neighbors=best,
        n_components=suggested,
        intrinsic_dimension=dimension,
        neighbors_curve=tuple(rows),
        components_curve=spectrum,
        notes=() if suggested is None else tuple(_notes(suggested, dimension, spectrum)),
    )


def _notes(suggested: int, dimension: float, spectrum: tuple[ComponentsRow, ...]) -> Iterator[Note]:
    """Yield the reason for the suggested n_components, and what fewer components show."""
    examined = len(spectrum)
    if round(dimension) > examined:
        yield Note(
            "dimension",
            f"The data have some {dimension:.1f} dimensions, more than the {examined} that were examined. Raise "
            f"max_components to examine more, or take n_components={examined} as the best of these.",
        )
    else:
        yield Note(
            "dimension",
            f"The data have some {dimension:.1f} dimensions, so that n_components={suggested} keeps their local "
            "structure."
            + (" A picture of two shows the two smoothest coordinates, and loses the rest." if suggested > 2 else ""),
        )
    gap = spectrum[suggested - 1].relative_gap
    if gap < SMALL_GAP:
        apart = max(spectrum[suggested - 1 :], key=lambda row: row.relative_gap)
        yield Note(
            "small-gap",
            f"Eigenvalues {suggested} and {suggested + 1} differ by {gap:.2g} of the latter: these coordinates can "
            "change places between draws."
            + (
                f" n_components={apart.n_components}, with a gap of {apart.relative_gap:.2g}, does not separate them."
                if apart.n_components > suggested
                else ""
            ),
        )


def intrinsic_dimension(distances: NDArray[np.float64]) -> float:
    r"""Estimate the dimension of the data from sorted neighbor distances T_1 <= ... <= T_k (n, k).

    :math:`1 / \hat m = \frac{1}{n (k - 1)} \sum_i \sum_{j<k} \log(T_k / T_j)` (Levina and Bickel 2004, Eq. 8, with the
    inverses averaged over points). Neighbors at distance 0 are left out.
    """
    last = distances[:, -1:]
    inside = distances[:, :-1]
    counted = inside > 0
    total = dense.logs(np.where(counted, last / np.where(counted, inside, 1.0), 1.0)).sum()
    return float(counted.sum() / total) if total > 0 else 0.0


def _reconstruction_error(X: Data, neighbors: NDArray[np.int32], weights: NDArray[np.float64]) -> float:
    k, total = neighbors.shape[1], 0.0
    for block in neighborhoods(X, neighbors):
        w = weights[block.rows]
        error = ((block.gram * w[:, None, :]).sum(axis=2) * w).sum(axis=1)
        total += float((error / np.where(block.trace > 0, block.trace, 1.0)).sum())
    return float(k * total / len(X))


def _with_instability(row: NeighborsRow, embeddings: dict[int, NDArray[np.float64]]) -> NeighborsRow:
    ks = sorted(embeddings)
    if row.n_neighbors not in embeddings or len(ks) < 2:
        return row
    at = ks.index(row.n_neighbors)
    beside = [ks[i] for i in (at - 1, at + 1) if 0 <= i < len(ks)]
    mean = sum(disparity(embeddings[row.n_neighbors], embeddings[k]) for k in beside) / len(beside)
    return NeighborsRow(**{**vars(row), "instability": mean})


def goodness(row: NeighborsRow) -> float:
    """Return the score by which values of n_neighbors are compared, if their graph has one component."""
    assert row.trustworthiness is not None
    assert row.continuity is not None
    return float((row.trustworthiness + row.continuity) / 2 - (row.instability or 0.0) / 10)


def _best(rows: list[NeighborsRow]) -> int | None:
    connected = [row for row in rows if row.components == 1 and row.closed_classes == 1]
    return max(connected, key=goodness).n_neighbors if connected else None


def _spectrum(
    X: Data, nearest: NDArray[np.int32], k: int, max_components: int, reg: float
) -> tuple[ComponentsRow, ...]:
    neighbors = np.sort(nearest[:, :k], axis=1)
    weights = lle_weights(X, neighbors, reg)
    count = min(max_components, len(X) - 3)
    _, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(neighbors), count + 1)
    values = pairs.values
    return tuple(ComponentsRow(p, float(values[p - 1]), relative_gap(values, p)) for p in range(1, count + 1))
