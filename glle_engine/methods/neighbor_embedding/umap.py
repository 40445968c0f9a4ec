r"""UMAP and densMAP: a fuzzy graph of nearest neighbors, laid out so that its cross-entropy is small.

.. math::
    \sum_{ij} v_{ij} \log(v_{ij} / w_{ij}) + (1 - v_{ij}) \log((1 - v_{ij}) / (1 - w_{ij})), \quad
    w_{ij} = (1 + a |y_i - y_j|^{2b})^{-1}

where :math:`v` are the symmetrized memberships :math:`\exp(-\max(0, |x_i - x_j| - \rho_i) / \sigma_i)` (McInnes, Healy
and Melville 2018, sections 3 and 4). densMAP also maximizes the correlation between the logarithms of the local radii
in the data and in the embedding (Narayan, Berger and Cho 2021). The embedding is computed by umap-learn, in one thread,
with exact neighbors.
"""

from __future__ import annotations

import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from glle_engine.base.errors import InvalidParameterError, OutOfRangeError
from glle_engine.base.parameters import mapping
from glle_engine.base.progress import silent
from glle_engine.base.space import require_restorable
from glle_engine.base.texts import Note, Text, Way
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.relations import Distances
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import power_of_two
from glle_engine.linalg.threads import numba_loops
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.neighbor_embedding.affinities import initial, noisy, older_seed
from glle_engine.methods.neighbor_embedding.libraries import (
    FurtherDistanceSpec,
    library_options,
    nearest_points,
    nearest_to,
    passed_on,
)
from glle_engine.methods.parameters import choice, integer, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from scipy.spatial import Delaunay

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.methods.neighbor_embedding.affinities import Start

_MAX_POINTS_OF_MORE_EPOCHS = 10_000  # up to this many points, umap-learn makes the larger number of epochs
_EPOCHS, _EPOCHS_OF_MANY, _DENSITY_EPOCHS = 500, 200, 200
# A new point gets the position of its nearest training point if the distance between the two is below this share of the
# new point's mean distance to its neighbors.
_SAME = 1e-3
# Patterns of warnings that are not shown: they concern umap-learn's own neighbor search, and other ways to fit.
_EXPECTED = (r"precomputed_knn\[2\]", "n_jobs value", "inverse_transform will be unavailable")
_MAX_INVERTED_COMPONENTS = 7  # embeddings with more components have no inverse, because umap-learn warns of them
# Larger values are scaled down. Single precision ends at 2^128, and the margin of 2^28 is for sums over values.
_MAX_SINGLE_PRECISION = 2.0**100
_LIBRARY = "umap-learn"
_DENSMAP_ARGUMENTS = {"densmap", "dens_lambda", "dens_frac"}  # arguments that only densMAP sets
# Arguments of umap-learn's neighbor search. They are refused: the engine gives umap-learn the neighbors of each point,
# so that there is no such search, and these arguments would have no effect.
_OF_SEARCH = {"metric_kwds", "low_memory", "angular_rp_forest", "transform_queue_size"}
# Arguments of umap-learn, and the parameters of this method that set them, where the names differ.
_PARAMETERS = {
    "n_epochs": "max_iter",
    "random_state": "seed",
    "dens_lambda": "density_weight",
    "dens_frac": "density_share",
}


@dataclass(frozen=True, kw_only=True)
class UmapSpec(FurtherDistanceSpec):
    """Parameters of UMAP."""

    n_neighbors: int = integer(
        15,
        "Number of neighbors of a point, the point itself among them, as in umap-learn.",
        minimum=2,
        counts=True,
    )
    min_dist: float = number(
        0.1, "Distance up to which points count as wholly similar, at most spread; 0 packs the points.", minimum=0
    )
    spread: float = number(
        1.0, "Scale of the embedding: the distance over which the similarity falls by a factor of e.", above=0
    )
    max_iter: int | str = integer(
        "auto",
        "Epochs of the descent; auto is 500 up to 10,000 points and 200 above, and 200 more for densMAP.",
        minimum=1,
        words=("auto",),
    )
    init: str = choice(
        "spectral",
        "Where the descent starts: eigenvectors of the graph, principal components, or noise.",
        "spectral",
        "pca",
        "random",
    )
    learning_rate: float = number(1.0, "First step of the descent.", above=0)
    negative_sample_rate: int = integer(5, "Random pairs that are repelled for each attracted one.", minimum=1)
    seed: int = integer(0, "Seed of the start and of the sampled pairs.", minimum=0, maximum=2**63 - 1)
    target_weight: float | None = number(
        None,
        "Weight of the labels: 0 is the data alone, 1 the labels alone; null: no labels are used. A label of -1 means "
        "that the class of the point is not known.",
        minimum=0,
        maximum=1,
    )
    options: dict[str, Any] | None = mapping("Further arguments of `umap.UMAP` by name, passed on as they are.")

    @property
    def uses_labels(self) -> bool:
        """Whether `target_weight` is not None, so that the method needs labels."""
        return self.target_weight is not None

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if min_dist is above spread: umap-learn could not fit its similarity curve."""
        if self.min_dist > self.spread:
            raise InvalidParameterError(
                Text(Way("min_dist", self.min_dist), " is more than ", Way("spread", self.spread), "."),
                remedy=Text("Give ", Way("min_dist"), f" of at most {self.spread:g}, or a larger spread."),
            )

    def epochs(self, n: int) -> int:
        """Return the number of epochs of the descent for n points: `max_iter`, or umap-learn's default for "auto"."""
        if not isinstance(self.max_iter, str):
            return self.max_iter
        return _EPOCHS if n <= _MAX_POINTS_OF_MORE_EPOCHS else _EPOCHS_OF_MANY

    def density(self) -> dict[str, Any]:
        """Return umap-learn's arguments for preserving local densities: none, unless the method is densMAP."""
        return {}

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for more principal components than the data span."""
        require_enough_points(n, self)
        self.require_columns(d)
        if self.init == "pca":
            self.require_rank(n, d)


@dataclass(frozen=True, kw_only=True)
class DensmapSpec(UmapSpec):
    """Parameters of densMAP."""

    density_weight: float = number(2.0, "Weight of the correlation of the local radii; 0 is UMAP.", minimum=0)
    density_share: float = number(
        0.3, "Share of the epochs, the last ones, that use this correlation.", minimum=0, maximum=1
    )

    def epochs(self, n: int) -> int:
        """Return the number of epochs of the descent for n points; for "auto", 200 more than UMAP makes."""
        return super().epochs(n) + (_DENSITY_EPOCHS if isinstance(self.max_iter, str) else 0)

    def density(self) -> dict[str, Any]:
        """Return umap-learn's arguments for preserving local densities (densMAP)."""
        return {"densmap": True, "dens_lambda": self.density_weight, "dens_frac": self.density_share}


@numba_loops("UMAP")
def _lay_out(
    X: Data, spec: UmapSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None, start: Start
) -> Embedding:
    """Embed by UMAP or densMAP, as `spec` says, with umap-learn's warnings as notes."""
    neighbors = _Neighbors.among(X, spec, on_progress)
    on_progress(0, 1, "descent")
    epochs = spec.epochs(len(X))
    init: Any = spec.init
    if start is not None:
        init = noisy(start, spec.seed).astype(np.float32)
    elif init != "spectral":  # umap-learn computes the spectral start
        init = initial(X, spec.n_components, init, spec.seed).astype(np.float32)
    with _caught() as caught:
        model = _model(
            neighbors,
            spec,
            metric=spec.metric if spec.is_further or isinstance(X, Distances) else "euclidean",
            n_epochs=epochs,
            init=init,
        )
        with passed_on(_LIBRARY, spec.options):
            Y = np.asarray(model.fit_transform(neighbors.scaled(X), labels), np.float64)
    is_placed = np.isfinite(Y).all(axis=1)
    if not is_placed.all():
        row = int(is_placed.argmin())
        raise InvalidParameterError(
            f"umap-learn gives {len(Y) - is_placed.sum():,} of {len(Y):,} points no position, because they are too far "
            f"from all others; the first is row {row}, counted from 0.",
            remedy="Leave these points out, or give a larger disconnection distance, the parameter of umap-learn "
            f"with that name, in {Way('options')}.",
            details={"row": row},
        )
    figures = {"iterations": epochs, "a": float(model._a), "b": float(model._b)}  # noqa: SLF001 -- not public
    return Embedding(Y, None, figures, _notes(caught))


@dataclass(frozen=True, eq=False)
class _Neighbors:
    """The k nearest points of each point (n, k), the point itself first, and their distances divided by `unit`.

    `unit` is the mean distance between a point and its neighbors. The division does not change the embedding, but
    umap-learn computes in single precision, whose range is limited. `is_further` says that the metric is one that only
    scikit-learn has.
    """

    indices: NDArray[np.int32]
    distances: NDArray[np.float32]
    unit: float
    is_further: bool

    @classmethod
    def among(cls, X: Data, spec: UmapSpec, on_progress: OnProgress = silent) -> Self:
        """Find the nearest points of each point of X, by the metric of `spec`."""
        nearest, distances = nearest_points(X, spec.n_neighbors - 1, spec, on_progress)
        unit = float(distances.mean()) or 1.0
        itself = np.arange(len(X), dtype=np.int32)[:, None]
        scaled = np.hstack([np.zeros((len(X), 1)), distances / unit]).astype(np.float32)
        return cls(np.hstack([itself, nearest]), scaled, unit, spec.is_further)

    def scaled(self, X: Data) -> Any:
        """Return the data as umap-learn takes them: centered points, sparse rows or distances, divided by `unit`.

        If only scikit-learn has the metric, points are not centered, and are scaled only if a value exceeds 2^100.
        """
        if isinstance(X, Distances):
            return X.known / self.unit
        if isinstance(X, SparsePoints):
            return csr_matrix(X.rows / self.unit)
        # Of the metrics that only scikit-learn has, most depend on the origin, such as canberra, and haversine takes
        # radians. Points are therefore not centered, and divided only if they would exceed single precision.
        if self.is_further:
            return X / max(1.0, power_of_two(float(np.abs(X).max())) / _MAX_SINGLE_PRECISION)
        return (X - X.mean(axis=0)) / self.unit


def _model(neighbors: _Neighbors, spec: UmapSpec, **arguments: Any) -> Any:
    """Return an unfitted estimator `umap.UMAP` with these neighbors and parameters, and with further `arguments`."""
    from umap import UMAP as Model  # noqa: N811, PLC0415 -- an extra, slow to import

    named = {
        "n_neighbors": spec.n_neighbors,
        "n_components": spec.n_components,
        "min_dist": spec.min_dist,
        "spread": spec.spread,
        "learning_rate": spec.learning_rate,
        "negative_sample_rate": spec.negative_sample_rate,
        "target_weight": 0.5 if spec.target_weight is None else spec.target_weight,
        "random_state": older_seed(spec.seed),
        "n_jobs": 1,
        "precomputed_knn": (neighbors.indices.copy(), neighbors.distances.copy(), None),
        "force_approximation_algorithm": True,
        "transform_mode": "embedding",
        "unique": False,
        "output_dens": False,
        "verbose": False,
        "tqdm_kwds": None,
        **spec.density(),
        **arguments,
    }
    named |= library_options(_LIBRARY, Model, spec, {*named, *_DENSMAP_ARGUMENTS, *_OF_SEARCH}, _PARAMETERS)
    with passed_on(_LIBRARY, spec.options):
        return Model(**named)


@contextmanager
def _caught() -> Iterator[list[warnings.WarningMessage]]:
    """Collect all warnings of the with-block in the list that is yielded, and do not show them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def _notes(caught: list[warnings.WarningMessage]) -> tuple[Note, ...]:
    """Return umap-learn's warnings as notes, each once, without those on features that are not used (`_EXPECTED`)."""
    texts = dict.fromkeys(
        " ".join(str(warning.message).split()) for warning in caught if issubclass(warning.category, UserWarning)
    )
    is_expected = re.compile("|".join(_EXPECTED))
    return tuple(Note("umap-learn", f"umap-learn: {text}") for text in texts if not is_expected.search(text))


class UmapMap(NeighborMap):
    """Map that places new points by umap-learn's transform, and takes positions back to the data by its inverse.

    The transform starts a new point at the mean of its nearest points, weighted by their memberships, and then
    descends; the training points do not move. A new point gets the position of its nearest training point if the
    distance between the two is below a thousandth of the new point's mean distance to its neighbors.

    The position of a new point must not depend on the other points of a call. Its random numbers follow from its start,
    but umap-learn also uses three properties of all points of a call together. This class keeps these properties fixed:
    a copy of a training point is added, so that the largest membership is 1; the distances of each point are divided by
    their mean, so that the mean distance is 1; and a second copy is added if the number of points would otherwise equal
    the number of training points.
    """

    @cached_property
    def _neighbors(self) -> _Neighbors:
        return _Neighbors.among(self.points, self.spec)

    def _fitted(self, data: Any, metric: str) -> Any:
        """Return an estimator `umap.UMAP` fitted to `data`, with the embedding of this map in place of its own.

        The fit skips the descent, which would only compute another embedding.
        """
        Y = self.embedding.Y.astype(np.float32)
        with _caught():
            model = _model(self._neighbors, self.spec, metric=metric, n_epochs=0, init=Y).fit(data)
        model.embedding_ = Y
        return model.set_params(n_epochs=self.spec.epochs(len(Y)))

    @cached_property
    def _placing(self) -> Any:
        """A fitted `umap.UMAP` that places new points, given their distances to their nearest training points."""
        n = len(self.data)
        return self._fitted(csr_matrix((n, n), dtype=np.float32), "precomputed")

    @cached_property
    def _inverting(self) -> Any:
        return self._fitted(self._neighbors.scaled(self.points), "euclidean")

    @numba_loops("UMAP")
    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        m, n, k = len(points), len(self.data), self.spec.n_neighbors
        nearest, distances = nearest_to(self.points, points, k, self.spec)
        distances = distances / np.maximum(distances.mean(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        is_same, first = distances[:, 0] < _SAME, nearest[:, 0]
        copies = 1 if m + 1 != n else 2
        nearest = np.concatenate([nearest, np.tile(self._neighbors.indices[:1], (copies, 1))])
        itself = np.eye(1, k) == 0
        distances = np.concatenate([distances, np.tile(itself * k / (k - 1), (copies, 1))]).astype(np.float32)
        graph = csr_matrix((distances.ravel(), nearest.ravel(), np.arange(m + copies + 1) * k), shape=(m + copies, n))
        with _caught():
            places = np.asarray(self._placing.transform(graph)[:m], np.float64)
        return np.where(is_same[:, None], self.embedding.Y[first], places)

    def _row_entries(self) -> int:
        return int(max(self.n_features, self.spec.n_neighbors))

    @cached_property
    def _hull(self) -> Delaunay:
        """The Delaunay triangulation of the embedding, in single precision as umap-learn has it, for `inverse`."""
        from scipy.spatial import Delaunay  # noqa: PLC0415 -- slow to import; the API does not need it

        return Delaunay(self.embedding.Y.astype(np.float32), qhull_options="QJ")

    @numba_loops("UMAP")
    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return points (m, d) for positions `places` (m, p), by umap-learn's inverse transform; `ridge` has no effect.

        The random numbers for a position depend on the positions before it.

        Raises
        ------
        InvalidParameterError
            If the metric is not Euclidean, or if the embedding does not have from 2 to 7 dimensions, the range that
            umap-learn inverts well.
        OutOfRangeError
            For a position outside the convex hull of the embedding.

        """
        require_restorable(self.spec.metric)
        if not 2 <= (p := self.embedding.Y.shape[1]) <= _MAX_INVERTED_COMPONENTS:
            raise InvalidParameterError(
                f"UMAP has no inverse with {Way('n_components', p)}.",
                remedy=f"Give {Way('n_components')} from 2 to {_MAX_INVERTED_COMPONENTS}.",
            )
        places = places.astype(np.float32)
        outside = np.flatnonzero(self._hull.find_simplex(places) < 0)
        if len(outside):
            raise OutOfRangeError(
                f"{len(outside)} of {len(places)} positions, the first in row {outside[0]} (counted from 0), are "
                "outside the embedding.",
                remedy="Give positions between the embedded points: nothing is known about the data beyond them.",
            )
        with _caught():
            inverted = np.asarray(self._inverting.inverse_transform(places), np.float64)
        return self.space.restore(inverted * self._neighbors.unit + self.points.mean(axis=0))


@Method(
    spec=UmapSpec,
    title="Uniform manifold approximation and projection",
    about="Lays out the fuzzy graph of nearest neighbors so that the cross-entropy of the memberships in the data and "
    "of the similarities in the embedding is small.",
    source="McInnes, Healy and Melville 2018, arXiv 1802.03426, sections 3 and 4; umap-learn",
    growth="n k an epoch, and n^2 d to find neighbors among many features",
    libraries=("umap",),
    extra="umap",
    compiles=True,
    neighbor_map=UmapMap,
    by_distances=True,
    sparse=True,
)
def umap(
    X: Data,
    spec: UmapSpec,
    on_progress: OnProgress,
    labels: NDArray[np.int64] | None = None,
    *,
    start: Start = None,
) -> Embedding:
    """Embed by umap-learn in one thread, with exact neighbors."""
    return _lay_out(X, spec, on_progress, labels, start)


@Method(
    spec=DensmapSpec,
    title="Density-preserving UMAP",
    about="UMAP whose objective also rewards local radii in the embedding that correlate with those in the data: dense "
    "regions stay dense.",
    source="Narayan, Berger and Cho 2021, Nature Biotechnology 39; umap-learn",
    growth="n k an epoch, and n^2 d to find neighbors among many features",
    libraries=("umap",),
    extra="umap",
    compiles=True,
    by_distances=True,
    sparse=True,
)
def densmap(
    X: Data,
    spec: DensmapSpec,
    on_progress: OnProgress,
    labels: NDArray[np.int64] | None = None,
    *,
    start: Start = None,
) -> Embedding:
    """Embed by umap-learn's densMAP in one thread, with exact neighbors."""
    return _lay_out(X, spec, on_progress, labels, start)
