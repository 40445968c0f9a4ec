"""The result of `fit`: a distribution of LLE's weights, from which weights and embeddings are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError, StorageError
from glle_engine.base.parameters import check_integer, check_positive
from glle_engine.base.results import Diagnostics, PointResult
from glle_engine.base.space import Space, require_restorable
from glle_engine.base.spec import FitSpec
from glle_engine.base.validation import (
    finite_matrix,
    is_sparse,
    numbers_of,
    require_enough_points,
    require_training_data,
)
from glle_engine.base.version import __version__
from glle_engine.eigen.eigenproblem import Eigenproblem, require_pairs
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.connectivity import closed_classes, edges
from glle_engine.graph.relations import Distances
from glle_engine.posterior import npz
from glle_engine.posterior.placement import Extension, extend, reconstruct
from glle_engine.posterior.sampler import Draw, DrawKey, Placement, Sampler
from glle_engine.posterior.summary import Summary, summarize
from glle_engine.weights.gaussian import WeightDistribution

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.spec import Align, Source
    from glle_engine.base.texts import Note
    from glle_engine.eigen.batched.solver import LaneSolver
    from glle_engine.graph.relations import Data

# Names of a posterior's arrays in files, and the attributes of `Posterior` with these arrays.
_ARRAYS = {
    "neighbors": "neighbors",
    "mean": "distribution.mean",
    "covariance_factor": "distribution.factor",
    "prior_factor": "distribution.prior_factor",
    "sigma": "distribution.sigma",
    "kept": "distribution.kept",
    "scatter": "distribution.scatter",
    "second_moment": "distribution.second_moment",
    "gradient": "distribution.gradient",
    "flatness": "flatness",
    "embedding": "embedding",
    "eigenvalues": "eigenvalues",
    "order": "order",
    "pins": "pins",
    "landmarks": "landmarks",
    "center": "center",
    "scale": "scale",
}
_REQUIRED = {"neighbors", "mean", "covariance_factor", "embedding", "eigenvalues", "order", "pins"}
_SUM_TOLERANCE = 1e-6  # sums of weights in a file may deviate from 1 by this, relative to the largest weight
_MAX_WEIGHT = 2.0**480  # weights in a file may be this large: sums of their squares, near 2^960, stay below 2^1024
_MAX_DEVIATION = 1e-2  # an embedding in a file may deviate from (1/n) Y^T Y = I by this; fits deviate by 1e-6 at most


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior(PointResult):
    """Fitted posterior over LLE's reconstruction weights; draws are embeddings for weights drawn from it.

    `glle_engine.fit` returns posteriors. Their arrays are read-only.

    Attributes
    ----------
    spec : FitSpec
        The parameters of the fit. In place of "auto" they have the values that the fit chose.
    neighbors : (n, k) int32
        The kNN graph, each row ascending. If points have different numbers of neighbors, as with adaptive
        neighborhoods, only the entries for which `distribution.kept` is True are neighbors.
    distribution : WeightDistribution
        Mean, covariance factor and prior of the weights.
    embedding : (n, p) float64
        The reference: the LLE embedding of the data, (1/n) Y^T Y = I, 1^T Y = 0 (GLLE Eq. 37-43). Most libraries
        return eigenvectors of unit norm; the columns of this embedding are sqrt(n) times as long.
    eigenvalues : (p + 1,) float64, ascending
        Eigenvalues of M = (I - W)^T (I - W) at LLE's weights, without the eigenvalue of the constant vector. The last
        eigenvalue has no coordinate in the embedding; it shows the gap to the next eigenvector.
    order : (n,) int32
        The fill-reducing order in which the solver eliminates the points.
    pins : (c,) int32
        One point of each closed class (a set of points that no edge of the graph leaves). The solver makes I - W
        nonsingular by adding 1 to the diagonal at these points (`glle_engine.eigen.eigenproblem`). Empty for the
        published variant, whose I - W is nonsingular.
    diagnostics : Diagnostics
        Numbers that describe the fit, and notes as text.
    flatness : (k + 1,) float64, optional
        Thresholds that select the neighbors of new points with adaptive neighborhoods (`glle_engine.graph.adaptive`);
        None with fixed neighborhoods.
    version : str
        The version of the engine that computed the fit.
    data_sha256 : str
        The digest of the training data (`glle_engine.base.validation.digest`).
    landmarks : (m,) int32, optional
        The rows of the landmarks, ascending; None if all points were fitted. With landmarks, all `neighbors` are
        landmarks; `order`, `pins` and `eigenvalues` belong to the eigenproblem of the m landmarks; and `embedding` has
        (1/m) Y^T Y = I over the landmarks.
    center, scale : (d,) float64, optional
        To standardize the data, the fit subtracted `center` from each feature, and divided the feature by `scale`. Both
        are None without standardization.

    """

    spec: FitSpec
    neighbors: NDArray[np.int32]
    distribution: WeightDistribution
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    order: NDArray[np.int32]
    pins: NDArray[np.int32]
    diagnostics: Diagnostics
    flatness: NDArray[np.float64] | None = None
    version: str = __version__
    data_sha256: str = ""
    landmarks: NDArray[np.int32] | None = None
    center: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.flags.writeable = False

    def __repr__(self) -> str:
        spec = ", ".join(f"{name}={getattr(self.spec, name)!r}" for name in ("method", "n_neighbors", "n_components"))
        landmarks = "" if self.landmarks is None else f", landmarks={len(self.landmarks)}"
        return f"Posterior(n={self.n_points}, {spec}{landmarks})"

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean (n, k) of the weights on the `neighbors`."""
        return self.distribution.mean

    @property
    def covariance_factor(self) -> NDArray[np.float64]:
        """F (n, k, k): the covariance of the weights of point i at scale 1 is F_i F_i^T."""
        return self.distribution.factor

    @property
    def sigma(self) -> NDArray[np.float64] | None:
        """The prior variance sigma_i (n,) of the weights of each point by GLLE Eq. 29, which may be negative.

        None unless the fit had variant="published", method="em" and covariance="spherical".
        """
        return self.distribution.sigma

    @property
    def notes(self) -> tuple[Note, ...]:
        """Warnings and remarks about the data, the graph and the solution of the fit, as text."""
        return self.diagnostics.notes

    @property
    def n_points(self) -> int:
        """The number of points, n."""
        return len(self.neighbors)

    @cached_property
    def eigenproblem(self) -> Eigenproblem:
        """The eigenproblem that each draw solves for its weights; with landmarks, it is of the landmarks only."""
        neighbors = self.neighbors if self.placement is None else self.placement.positions(self.placement.landmarks)
        return Eigenproblem(Pattern(neighbors, self.order), self.pins)

    @cached_property
    def placement(self) -> Placement | None:
        """Places the points that are not landmarks in a draw of the landmarks; None if all points were fitted."""
        return None if self.landmarks is None else Placement(self.distribution, self.neighbors, self.landmarks)

    @cached_property
    def lane_solver(self) -> LaneSolver | None:
        """The solver that computes four draws at once; None if draws are solved one by one.

        It is None for at most 80 points, and if the kNN graph has several closed classes (sets of points that no edge
        leaves).
        """
        return self.eigenproblem.lane_solver(self._reference)

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler that draws weights and embeddings from this posterior; made when a method first needs it."""
        distribution = self.distribution if self.placement is None else self.distribution.at(self.placement.landmarks)
        return Sampler(distribution, self.eigenproblem, self.lane_solver, self._reference, self.placement)

    @cached_property
    def _reference(self) -> NDArray[np.float64]:
        """The embedding at the mean weights; if there are landmarks, only their rows."""
        return self.embedding if self.landmarks is None else self.embedding[self.landmarks]

    def weights(
        self, index: int, *, seed: int = 0, scale: float = 1.0, source: Source = "posterior"
    ) -> NDArray[np.float64]:
        r"""Draw the reconstruction weights of all points, from the posterior or from the prior.

        :math:`w_i = m_i + \sqrt{a} F_i z_i` with z_i standard normal from a Philox stream keyed by (seed, index)
        and a the scale (GLLE Eq. 31 and 36; Fig. 4 varies a). For the prior, mean and factor are the prior's (Eq. 30).

        Parameters
        ----------
        index, seed : int
            The key of the random numbers; both in [0, 2^64).
        scale : float
            The factor a >= 0 on the covariance; 0 gives the mean.
        source : {"posterior", "prior"}
            The distribution to draw from.

        Returns
        -------
        (n, k) float64
            Entry (i, j) is the weight of point i on ``neighbors[i, j]``. Rows sum to 1 for the constrained variant.

        Raises
        ------
        InvalidParameterError
            For a number outside its range, or for the prior after a fit with variant="published" and method="direct",
            which has none.

        """
        return self.sampler.weights(DrawKey(index, seed, scale), source)

    def draw(
        self,
        index: int,
        *,
        seed: int = 0,
        scale: float = 1.0,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> Draw:
        """Draw one embedding: the bottom eigenvectors of M at drawn weights (GLLE Eq. 37-43).

        The draw is a pure function of the posterior and the arguments: it has the same bits alone, in a batch, and on
        every x86-64 processor.

        Parameters
        ----------
        index, seed : int
            The key of the random numbers; both in [0, 2^64).
        scale : float
            The factor >= 0 on the covariance of the weights; 0 gives the mean of the weights.
        source : {"posterior", "prior"}
            The distribution from which the weights are drawn.
        align : {"procrustes", "none"}
            Rotate the draw to the reference embedding, or keep the eigenvectors, signed so that the entry of largest
            absolute value is positive.

        Raises
        ------
        InvalidParameterError
            For a number outside its range, or for the prior after a fit with variant="published" and method="direct",
            which has none.
        ConvergenceError
            If the eigenvectors of every solver fail the accuracy test.

        """
        return next(self.sampler.draws([DrawKey(index, seed, scale)], source, align))

    def draws(
        self,
        n_draws: int,
        *,
        first: int = 0,
        seed: int = 0,
        scale: float = 1.0,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> Iterator[Draw]:
        """Return the draws with index first, ..., first + n_draws - 1, with the same bits as from `draw`, but faster.

        The result is an iterator, which computes four draws at a time. Several threads may compute parts of a range at
        the same time if each thread calls this method for its part. Other arguments and errors are as for `draw`.
        """
        n_draws, first = check_integer("n_draws", n_draws, 0), check_integer("first", first, 0)
        keys = (DrawKey(index, seed, scale) for index in range(first, first + n_draws))
        return self.sampler.draws(keys, source, align)

    def draws_of(
        self,
        keys: Iterable[DrawKey],
        *,
        source: Source = "posterior",
        align: Align = "procrustes",
    ) -> Iterator[Draw]:
        """Return an iterator over the draws with these keys (index, seed, scale), with the same bits as from `draw`."""
        return self.sampler.draws(keys, source, align)

    def summary(
        self,
        n_draws: int = 100,
        *,
        first: int = 0,
        seed: int = 0,
        scale: float = 1.0,
        source: Source = "posterior",
    ) -> Summary:
        """Return the mean position, spread and stability of each point over `n_draws` draws.

        `draws` returns the same draws for these arguments. Raises `InvalidParameterError` for fewer than two draws.
        """
        draws = self.draws(n_draws, first=first, seed=seed, scale=scale, source=source)
        return summarize(draws, self.embedding, self.spec.n_neighbors)

    def extend(self, X: ArrayLike, new: ArrayLike) -> Extension:
        """Return the weights of new points (m, d) on the fit's data X (n, d), which place the new points in any draw.

        Raises `InvalidShapeError` for another number of points or features, `DataMismatchError` if X is not the data of
        the fit, `NotFiniteError` for NaN or infinite values, and `OutOfRangeError` for points that are too far away.
        """
        return extend(
            X,
            new,
            self.spec,
            n_points=self.n_points,
            data_sha256=self.data_sha256,
            flatness=self.flatness,
            landmarks=self.landmarks,
        )

    def transform(self, X: ArrayLike, new: ArrayLike) -> NDArray[np.float64]:
        """Embed new points (m, d) in the reference embedding by LLE weights on the data X (n, d) of the fit.

        A training point gets exactly its own coordinates; if it has exact duplicates, it gets the mean of their
        coordinates. The coordinates of a new point do not depend on the other new points. Raises the errors of
        `extend`.
        """
        return self.extend(X, new).embed(self.embedding)

    def reconstruct(self, X: ArrayLike, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Generate data (n, d): point i is the sum of its neighbors times `weights` (n, k) (GLLE, Algorithm 1).

        With variant="published" and method="em", whose model centers the data, the mean of the data is added. `X`
        (n, d) is the data of the fit. If the fit standardizes the data, the generated data are in the original units.
        Raises `DataMismatchError` for other data, `InvalidShapeError` for weights of another shape, and
        `InvalidParameterError` for sparse data and for metrics other than Euclidean.
        """
        require_restorable(self.spec.metric)
        if is_sparse(X):
            raise InvalidParameterError(
                "Data cannot be generated from sparse data by this method, because the result would be nearly dense: "
                "each row has entries in all columns in which a neighbor has one.",
                remedy="Multiply drawn weights with X yourself: W = scipy.sparse.csr_array((weights.ravel(), "
                "posterior.neighbors.ravel(), range(0, n * k + 1, k)), shape=(n, n)); W[rows] @ X.",
            )
        require_training_data(X, self.data_sha256)
        data, weights = finite_matrix(X), numbers_of(weights, "the weights")
        if (len(data), *weights.shape) != (self.n_points, *self.mean.shape):
            raise InvalidShapeError(
                f"The data have {len(data)} points, and the weights have shape {weights.shape}; the posterior has "
                f"weights of shape {self.mean.shape}.",
                remedy=f"Give the data of the fit, and weights of shape {self.mean.shape}, such as `Posterior.weights` "
                "returns.",
            )
        if self.spec.variant == "constrained":  # weights sum to one, so that standardizing would change nothing
            return reconstruct(data, self.neighbors, weights)
        space = Space.from_data(data, self.spec)
        placed = space.points(data)
        rebuilt = reconstruct(placed, self.neighbors, weights)
        return space.restore(rebuilt + placed.mean(axis=0) if self.spec.method == "em" else rebuilt)

    def locate(self, X: ArrayLike) -> Data:
        """Return the fit's data X (n, d) as points whose Euclidean distances are the distances of the fit's metric.

        With ``metric="precomputed"``, X (n, n) are distances, and the result is a `Distances`.
        """
        data = finite_matrix(X)
        if self.spec.metric == "precomputed":
            return Distances.among(data)
        return Space.from_data(data, self.spec).points(data)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store, by name; `from_parts` rebuilds a posterior from these arrays and from `head`."""
        named = {name: attrgetter(path)(self) for name, path in _ARRAYS.items()}
        return {name: array for name, array in named.items() if array is not None}

    def head(self) -> dict[str, Any]:
        """Return the metadata to store: all that is not an array, as a JSON-able dictionary, for `from_parts`."""
        return {
            "version": self.version,
            "data_sha256": self.data_sha256,
            "spec": self.spec.to_dict(),
            "prior_mean": self.distribution.prior_mean,
            "diagnostics": self.diagnostics.to_dict(),
        }

    @classmethod
    def from_parts(cls, head: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a posterior from its metadata (`Posterior.head`) and arrays (`Posterior.arrays`), without checks."""
        spec = FitSpec.from_dict(head["spec"])
        members: dict[str, Any] = {
            path: arrays[name] if name in _REQUIRED else arrays.get(name) for name, path in _ARRAYS.items()
        }
        weights = {
            path.removeprefix("distribution."): array
            for path, array in members.items()
            if path.startswith("distribution.")
        }
        return cls(
            spec=spec,
            distribution=WeightDistribution(
                prior_mean=head["prior_mean"], constrained=spec.variant == "constrained", **weights
            ),
            diagnostics=Diagnostics.from_dict(head["diagnostics"]),
            version=head["version"],
            data_sha256=head["data_sha256"],
            **{path: array for path, array in members.items() if "." not in path},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to an uncompressed .npz file without pickle; the file replaces `path` atomically."""
        npz.save(path, self.head(), self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a posterior of this class from a file that `save` wrote, and check its contents.

        Raises `StorageError` if the file has another format or is damaged, as `glle_engine.load` does.
        """
        head, arrays = npz.load(path)
        try:
            head = {**head, "prior_mean": check_positive("prior_mean", head["prior_mean"], zero=True)}
            posterior = cls.from_parts(head, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
            _require_arrays(posterior)
            _require_graph(posterior)
            _require_weights(posterior.distribution)
            _require_embedding(posterior)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a GlleError is a ValueError
            raise npz.inconsistent(f"a parameter or an array is missing or wrong ({error!r})") from error
        return posterior


def load(path: str | os.PathLike[str]) -> Posterior:
    """Read a posterior that `Posterior.save` wrote, or that a service exported.

    All contents are checked, because compiled code does not check the indices of a posterior. The checks cover the
    types, shapes and ranges of all arrays, the graph and its elimination order, and whether weights sum to one.

    Raises
    ------
    StorageError
        If the file has another format, is damaged, or its contents do not belong to one posterior.

    """
    return Posterior.load(path)


def _require_arrays(posterior: Posterior) -> None:
    """Raise `StorageError` if an array of a posterior from a file is wrong.

    An array is wrong if it is missing, if it is there although the parameters forbid it, or if its type, shape or range
    does not fit the parameters.
    """
    spec, distribution = posterior.spec, posterior.distribution
    if not isinstance(posterior.data_sha256, str):
        raise npz.inconsistent(f"data_sha256 is {posterior.data_sha256!r:.50}, not a text")
    k, p, n = spec.n_neighbors, spec.n_components, posterior.mean.shape[0] if posterior.mean.ndim else 0
    m = n if isinstance(spec.landmarks, str) else spec.landmarks
    d = 0 if posterior.center is None else posterior.center.size
    is_published = spec.variant == "published"
    sigmas = is_published and spec.method == "em" and spec.covariance == "spherical"
    priors = not (is_published and spec.method == "direct")
    is_full, scatter = is_published and spec.method == "em" and not sigmas, distribution.scatter
    gradient = distribution.gradient
    is_vector = distribution.prior_factor is not None and distribution.prior_factor.ndim == 1
    for name in ("noise", "landmarks"):
        if getattr(spec, name) == "auto":
            raise npz.inconsistent(f"the parameter {name} is 'auto', which a fit would have replaced by its choice")
    is_adaptive, is_standardized = spec.neighborhoods == "adaptive", spec.standardize != "none"
    has_given = bool(posterior.diagnostics.figures.get("given_neighbors"))
    for name, array, is_needed, dtype, shape, below in (
        ("landmarks", posterior.landmarks, spec.has_landmarks, np.int32, (m,), n),
        ("neighbors", posterior.neighbors, True, np.int32, (n, k), n),
        ("mean", distribution.mean, True, np.float64, (n, k), None),
        ("covariance_factor", distribution.factor, True, np.float64, (n, k, k), None),
        ("prior_factor", distribution.prior_factor, priors, np.float64, (n,) if is_vector else (n, k, k), None),
        ("sigma", distribution.sigma, sigmas, np.float64, (n,), None),
        (
            "kept",
            distribution.kept,
            is_adaptive or (has_given and distribution.kept is not None),
            np.bool_,
            (n, k),
            None,
        ),
        (
            "scatter",
            scatter,
            is_full and scatter is not None,
            np.float64,
            (0 if scatter is None else len(scatter),) * 2,
            None,
        ),
        ("second_moment", distribution.second_moment, scatter is not None, np.float64, (k, k), None),
        ("gradient", gradient, scatter is not None and gradient is not None, np.float64, (n, k, k), None),
        ("flatness", posterior.flatness, is_adaptive, np.float64, (k + 1,), None),
        ("embedding", posterior.embedding, True, np.float64, (n, p), None),
        ("eigenvalues", posterior.eigenvalues, True, np.float64, (p + 1,), None),
        ("order", posterior.order, True, np.int32, (m,), m),
        ("pins", posterior.pins, True, np.int32, (posterior.pins.size,), m),
        ("center", posterior.center, is_standardized, np.float64, (d,), None),
        ("scale", posterior.scale, is_standardized, np.float64, (d,), None),
    ):
        if (array is not None) != is_needed:
            problem = (
                "is missing, but the parameters need it" if is_needed else "is there, but the parameters forbid it"
            )
            raise npz.inconsistent(f"the array {name} {problem}")
        if array is not None:
            npz.require_array(name, array, dtype, shape, below=below)
    if posterior.scale is not None and not (posterior.scale > 0).all():
        raise npz.inconsistent(f"the array scale has the entry {posterior.scale.min():g}, but scales are positive")


def _require_graph(posterior: Posterior) -> None:
    """Raise `StorageError` unless neighbors, elimination order and pins from a file are valid for one neighbor graph.

    The pins must be exactly one point of each closed class of the graph (a set of points that no edge leaves), and
    there must be enough points for the parameters.
    """
    graph, kept, m = posterior.neighbors, posterior.distribution.kept, len(posterior.order)
    noun = "point" if posterior.landmarks is None else "landmark"
    require_enough_points(m, posterior.spec)
    require_pairs(m, posterior.spec.n_components)
    if kept is not None and not kept.any(axis=1).all():
        raise npz.inconsistent(f"all entries of the array kept are False for point {kept.any(axis=1).argmin()}")
    if posterior.landmarks is not None:
        if (np.diff(posterior.landmarks) <= 0).any():
            raise npz.inconsistent("the landmarks are not in ascending order")
        if not np.isin(graph, posterior.landmarks).all():
            raise npz.inconsistent("some neighbors are not landmarks")
        graph = np.searchsorted(posterior.landmarks, graph[posterior.landmarks]).astype(np.int32)
        kept = None if kept is None else kept[posterior.landmarks]
    if (np.diff(graph, axis=1) <= 0).any():
        row = int((np.diff(graph, axis=1) <= 0).any(axis=1).argmax())
        raise npz.inconsistent(f"the neighbors of {noun} {row} are not in ascending order")
    if (own := (graph == np.arange(m)[:, None]).any(axis=1)).any():
        raise npz.inconsistent(f"{noun} {own.argmax()} is one of its own neighbors")
    if not np.array_equal(np.sort(posterior.order), np.arange(m)):
        raise npz.inconsistent("the elimination order does not have every point exactly once")
    classes = closed_classes(edges(graph, kept)) if posterior.distribution.constrained else []
    if [int(np.isin(members, posterior.pins).sum()) for members in classes] != [1] * posterior.pins.size:
        raise npz.inconsistent("the pins are not exactly one point of each closed class of the neighbor graph")


def _require_weights(distribution: WeightDistribution) -> None:
    """Raise `StorageError` if weights from a file are so large that their squares overflow, or do not sum to one.

    Only weights of the constrained variant have to sum to one.
    """
    for name, array in (
        ("mean", distribution.mean),
        ("covariance_factor", distribution.factor),
        ("prior_factor", distribution.prior_factor),
        ("sigma", distribution.sigma),
        ("prior_mean", np.array(distribution.prior_mean)),
    ):
        if array is not None and np.abs(array).max(initial=0.0) > _MAX_WEIGHT:
            raise npz.inconsistent(
                f"the array {name} has entries of up to {np.abs(array).max():.0e}, but at most {_MAX_WEIGHT:.0e} are "
                "allowed, because sums of their squares may overflow"
            )
    if not distribution.constrained:
        return
    size, reach = np.maximum(1.0, np.abs(distribution.mean).max(axis=1)), np.abs(distribution.factor).max(axis=(1, 2))
    off = np.abs(distribution.mean.sum(axis=1) - 1) > _SUM_TOLERANCE * size
    if off.any() or (np.abs(distribution.factor.sum(axis=1)).max(axis=1) > _SUM_TOLERANCE * reach).any():
        raise npz.inconsistent("the weights of some points do not sum to one")


def _require_embedding(posterior: Posterior) -> None:
    """Raise `StorageError` unless the embedding from a file has mean 0 and (1/n) Y^T Y = I, and eigenvalues are valid.

    Eigenvalues are valid if they ascend and are not negative. With landmarks, the embedding is checked for these alone.
    """
    rows = slice(None) if posterior.landmarks is None else posterior.landmarks
    Y, values = posterior.embedding[rows], posterior.eigenvalues
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = np.abs(Y.mean(axis=0)).max(), np.abs(Y.T @ Y / len(Y) - np.eye(Y.shape[1])).max()
    if not all(deviation <= _MAX_DEVIATION for deviation in deviations):  # false for NaN, too
        raise npz.inconsistent("the embedding does not have mean 0 and (1/n) Y^T Y = I, as every reference has")
    if np.abs(posterior.embedding).max() > _MAX_WEIGHT:
        raise npz.inconsistent(
            f"the embedding has entries of up to {np.abs(posterior.embedding).max():.0e}, but at most "
            f"{_MAX_WEIGHT:.0e} are allowed, because sums of their squares may overflow"
        )
    if (np.diff(values) < 0).any():
        raise npz.inconsistent("the eigenvalues are not in ascending order")
    if values[0] < -_SUM_TOLERANCE * max(1.0, values[-1]) or values[-1] > _MAX_WEIGHT:
        raise npz.inconsistent(f"the eigenvalues are not between 0 and {_MAX_WEIGHT:.0e}")
