r"""UMAP and densMAP: a fuzzy graph of nearest neighbors, laid out so that its cross-entropy is small.

.. math::
    \sum_{ij} v_{ij} \log(v_{ij} / w_{ij}) + (1 - v_{ij}) \log((1 - v_{ij}) / (1 - w_{ij})), \quad
    w_{ij} = (1 + a |y_i - y_j|^{2b})^{-1}

where :math:`v` are the symmetrised memberships :math:`\exp(-\max(0, |x_i - x_j| - \rho_i) / \sigma_i)` (McInnes, Healy
and Melville 2018, sections 3 and 4). densMAP also maximises the correlation between the logarithms of the local radii
in the data and in the embedding (Narayan, Berger and Cho 2021). The embedding is computed by umap-learn, in one thread,
with the exact neighbors of this library.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Note, Text, Way
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.neighbors import kneighbors, kneighbors_to
from glle_engine.linalg.threads import numba_loops
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.neighbor_embedding.affinities import initial, noisy, older_seed
from glle_engine.methods.parameters import DistanceSpec, choice, integer, number
from glle_engine.posterior.placement import combine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.neighbor_embedding.affinities import Start

_SMALL = 10_000  # up to this many points, umap-learn makes the larger number of epochs
_EPOCHS, _EPOCHS_OF_MANY, _DENSITY_EPOCHS = 500, 200, 200
_BISECTIONS = 64  # steps to find the width of the memberships, as in umap-learn
_MIN_SIGMA = 1e-3  # relative to the mean distance, as in umap-learn
_EXPECTED = ("precomputed_knn[2]", "n_jobs value")  # in warnings about umap-learn's own neighbor search, not used here


@dataclass(frozen=True, kw_only=True)
class UmapSpec(DistanceSpec):
    """Parameters of UMAP."""

    n_neighbors: int = integer(
        15,
        "Number of neighbors of a point, the point itself among them, as in umap-learn.",
        least=2,
        counts=True,
    )
    min_dist: float = number(0.1, "Least distance of points in the embedding, in units of spread; 0 packs.", least=0)
    spread: float = number(1.0, "Scale of the embedding.", above=0)
    max_iter: int | str = integer(
        "auto",
        "Epochs of the descent; auto is 500 up to 10,000 points and 200 above, and 200 more of densMAP.",
        least=1,
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
    negative_sample_rate: int = integer(5, "Random pairs that are repelled for each attracted one.", least=1)
    seed: int = integer(0, "Of the start and of the sampled pairs.", least=0, most=2**63 - 1)

    def check_together(self) -> None:
        """Refuse a least distance above the scale, for which umap-learn cannot fit the curve of the similarities."""
        if self.min_dist > self.spread:
            raise InvalidParameterError(
                Text(Way("min_dist", self.min_dist), " is more than ", Way("spread", self.spread), "."),
                remedy=Text("Give ", Way("min_dist"), f" of at most {self.spread:g}, or a larger spread."),
            )

    def epochs(self, n: int) -> int:
        """Return the number of epochs for n points."""
        if not isinstance(self.max_iter, str):
            return self.max_iter
        return _EPOCHS if n <= _SMALL else _EPOCHS_OF_MANY

    def density(self) -> dict[str, Any]:
        """Return umap-learn's arguments for preserving local densities; none for plain UMAP."""
        return {}

    def require_possible(self, n: int, d: int) -> None:
        """Refuse too few points, and more principal components than the data span."""
        require_enough_points(n, self)
        if self.init == "pca":
            self.require_rank(n, d)


@dataclass(frozen=True, kw_only=True)
class DensmapSpec(UmapSpec):
    """Parameters of densMAP."""

    density_weight: float = number(2.0, "Weight of the correlation of the local radii; 0 is UMAP.", least=0)
    density_share: float = number(0.3, "Share of the epochs, the last ones, that weigh it.", least=0, most=1)

    def epochs(self, n: int) -> int:
        """Return the number of epochs for n points."""
        return super().epochs(n) + (_DENSITY_EPOCHS if isinstance(self.max_iter, str) else 0)

    def density(self) -> dict[str, Any]:
        """Return umap-learn's arguments for preserving local densities (densMAP)."""
        return {"densmap": True, "dens_lambda": self.density_weight, "dens_frac": self.density_share}


@numba_loops("UMAP")
def _lay_out(X: NDArray[np.float64], spec: UmapSpec, on_progress: OnProgress, start: Start) -> Embedding:
    """Embed by umap-learn."""
    n = len(X)
    nearest, distances = kneighbors(X, spec.n_neighbors - 1, on_progress)
    on_progress(0, 1, "descent")
    # The embedding does not depend on the unit, but umap-learn computes in single precision, whose range is limited.
    unit = float(distances.mean()) or 1.0
    itself = np.arange(n, dtype=np.int32)[:, None]
    neighbors = np.hstack([itself, nearest]), np.hstack([np.zeros((n, 1)), distances / unit]).astype(np.float32)
    epochs = spec.epochs(n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from umap import UMAP as Model  # noqa: N811, PLC0415 -- an extra, slow to import

        model = Model(
            n_neighbors=spec.n_neighbors,
            n_components=spec.n_components,
            min_dist=spec.min_dist,
            spread=spec.spread,
            n_epochs=epochs,
            init=_start(X, spec) if start is None else noisy(start, spec.seed).astype(np.float32),
            learning_rate=spec.learning_rate,
            negative_sample_rate=spec.negative_sample_rate,
            random_state=older_seed(spec.seed),
            n_jobs=1,
            precomputed_knn=(*neighbors, None),
            force_approximation_algorithm=True,
            **spec.density(),
        )
        Y = np.asarray(model.fit_transform((X - X.mean(axis=0)) / unit), np.float64)
    figures = {"iterations": epochs, "a": float(model._a), "b": float(model._b)}  # noqa: SLF001 -- not public
    return Embedding(Y, None, figures, _notes(caught))


def _start(X: NDArray[np.float64], spec: UmapSpec) -> str | NDArray[np.float32]:
    """Return the start of the descent, as coordinates (n, p) or as the name of one of umap-learn's starts."""
    if spec.init == "spectral":
        return "spectral"
    return initial(X, spec.n_components, spec.init, spec.seed).astype(np.float32)


def _notes(caught: list[warnings.WarningMessage]) -> tuple[Note, ...]:
    """Return the warnings of umap-learn about the data as notes."""
    texts = dict.fromkeys(
        " ".join(str(warning.message).split()) for warning in caught if issubclass(warning.category, UserWarning)
    )
    return tuple(Note("umap-learn", f"umap-learn: {text}") for text in texts if not text.startswith(_EXPECTED))


class MembershipMap(NeighborMap):
    """Places a new point at the mean of its nearest points, weighted by their memberships.

    Up to rounding, umap-learn's own transform starts at the same positions, but then continues with a random descent.
    """

    @numba_loops("UMAP")
    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        nearest, distances = kneighbors_to(self.points, points, self.spec.n_neighbors)
        weights = memberships(distances)
        return combine(weights / weights.sum(axis=1, keepdims=True), nearest, self.embedding.Y)


def memberships(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the memberships (m, k) of new points by their distances to the k nearest, positive and ascending.

    They are :math:`\exp(-d_j / \sigma)`, with :math:`\sigma` such that all but the nearest sum to :math:`\log_2 k`, and
    at least a thousandth of the mean distance. For this bound, umap-learn takes the mean over all points that are
    placed together, so that its memberships depend on the other points.
    """
    k = distances.shape[1]
    lengths = distances / distances.mean(axis=1, keepdims=True)
    low, high = np.zeros((len(lengths), 1)), np.full((len(lengths), 1), np.inf)
    sigma = np.ones_like(low)
    for _ in range(_BISECTIONS):
        is_wide = np.exp(-lengths[:, 1:] / sigma).sum(axis=1, keepdims=True) > np.log2(k)
        low, high = np.where(is_wide, low, sigma), np.where(is_wide, sigma, high)
        sigma = np.where(np.isinf(high), 2 * low, (low + high) / 2)
    return np.asarray(np.exp(-lengths / np.maximum(sigma, _MIN_SIGMA)))


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
    neighbor_map=MembershipMap,
)
def umap(X: NDArray[np.float64], spec: UmapSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed by umap-learn."""
    return _lay_out(X, spec, on_progress, start)


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
)
def densmap(X: NDArray[np.float64], spec: DensmapSpec, on_progress: OnProgress, *, start: Start = None) -> Embedding:
    """Embed by umap-learn with densities."""
    return _lay_out(X, spec, on_progress, start)
