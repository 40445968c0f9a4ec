r"""Embed random halves of the data, which shows how an embedding would vary over new samples of the data.

A resample embeds a random half of the points, and places the other points in that embedding. Resamples are numbered
within a stream of random halves. Resample j depends only on (embedder, stream, seed, j): any process can compute any
range of a stream, and gets the same bits.

For a smooth function of the sample, the covariance over halves estimates the covariance over samples (the delete-d
jackknife: Shao and Wu, "A general theory for jackknife variance estimation", Annals of Statistics 17, 1989). PCA
follows this theory. No theory covers LLE, whose neighborhoods are seldom the same in two halves. Over 18 distributions
the standard deviation over halves was .99 of the true standard deviation (docs/explanation/believe.md).

In this module, halves are embedded by a posterior's own method, or by a function that the caller passes. The module
`glle_engine.reliability.refits` embeds them by any other method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.randomness import generator
from glle_engine.base.results import brief
from glle_engine.base.spec import FitSpec, Source
from glle_engine.base.texts import Way
from glle_engine.base.validation import checked_matrix, finite_data, require_training_data
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances, locate
from glle_engine.graph.sparse import SparsePoints
from glle_engine.linalg.distances import nearest_in_sample
from glle_engine.linalg.procrustes import procrustes_rotation, rotate
from glle_engine.posterior.fit import reference_embedding
from glle_engine.posterior.placement import attach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.progress import OnProgress
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.placement import Extension
    from glle_engine.posterior.posterior import Posterior

# A stream has this many resamples. Of the 64 bits of the counter that a random generator gets beside the seed, the
# lower 32 are the number of the resample, and the upper 32 the number of the stream.
_RESAMPLES_PER_STREAM = 1 << 32
MIN_HALVED_POINTS = 20
_SEARCH_FACTOR = 3  # the search among all points finds 3 k neighbors, so that usually k of them are in a random half
PLACING_NEIGHBORS = 10  # a point outside a random half is placed by this many neighbors in the half
_REG = 1e-3  # ridge of the weights that place a point


@dataclass(frozen=True)
class Stream:
    """Numbered sequence of random halves of the data; a seed and a stream determine every half.

    Attributes
    ----------
    name : str
        Name of the stream, which is also the stage in progress reports.
    number : int
        Streams of one seed with different numbers are independent.
    paired : bool
        Whether halves 2 j and 2 j + 1 have no point in common; otherwise all halves are independent.

    """

    name: str
    number: int
    paired: bool = False


HALVES = Stream("half-samples", number=0)
SEPARATE = Stream("separate halves", number=3, paired=True)


@dataclass(frozen=True, eq=False)
class Sample:
    """The random half of the points that one resample embeds, and the other points.

    Attributes
    ----------
    stream : Stream
        The numbered sequence of random halves to which this half belongs: there is one for calibration and one for
        audits.
    number : int
        Number of this half in the sequence, counted from 0.
    chosen, others : (m,), (n - m,) int
        Row numbers of the points to embed, and of the points to place afterwards; both ascending.

    """

    stream: Stream
    number: int
    chosen: NDArray[np.intp]
    others: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Embedder(ABC):
    """Base of objects that embed random halves of their data, and place the other points in the embedding.

    Subclasses embed by the method of a posterior, by any other method, or by a function of the caller.

    Attributes
    ----------
    blocks : (n,) int64, optional
        Block of each point, such as the patient that was measured. All points of a block are then in the same half, and
        two halves of a pair differ in size by at most the largest block.

    """

    blocks: NDArray[np.int64] | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""

    @property
    def rows(self) -> NDArray[np.intp]:
        """Row numbers of the points from which random halves are drawn: all points, unless a subclass has landmarks."""
        return np.arange(self.shape[0])

    @abstractmethod
    def require_possible(self) -> None:
        """Raise a `GlleError` if half of the points cannot be embedded; only sizes and parameters are examined."""

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Return an embedder whose data are only these rows, and whose random halves come from all these rows."""
        embedder = self._of_rows(rows)
        return embedder if self.blocks is None else replace(embedder, blocks=self.blocks[rows])

    @abstractmethod
    def _of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Return an embedder whose data are only these rows.

        Subclasses leave `blocks`, the blocks of all rows, as they are: `of_rows` replaces them by the blocks of these
        rows.
        """

    @abstractmethod
    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:
        """Embed the points of a sample, place the other points, and return the positions (n, p) of all points.

        Raises a `GlleError` if the sample cannot be embedded.
        """


@dataclass(frozen=True, eq=False)
class Resamples:
    """Embeddings of all points, each computed from a random half of the points: the result of `resample`.

    Attributes
    ----------
    stream : Stream
        The sequence of random halves to which these halves belong.
    places : (m, n, p) float64
        Positions of all points in each embedding; NaN for an embedding that failed. If a posterior made the
        embeddings, they are rotated to the reference embedding of the posterior. Other embeddings are not aligned.
    problems : tuple of str
        The error message of each embedding that failed.

    """

    stream: Stream
    places: NDArray[np.float64]
    problems: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def embeddings(self) -> NDArray[np.float64]:
        """Positions (m, n, p) of all points in the m embeddings that did not fail."""
        return np.asarray(self.places[np.isfinite(self.places).all(axis=(1, 2))])

    @property
    def complete_pairs(self) -> NDArray[np.intp]:
        """Indices into `places` of the pairs without a failure: 2 j and 2 j + 1 if both embeddings succeeded."""
        is_complete = np.isfinite(self.places).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
        return np.flatnonzero(np.repeat(is_complete, 2))

    def __add__(self, other: Resamples) -> Resamples:
        """Return these resamples followed by `other` resamples, which must be of the same stream."""
        places = np.concatenate([self.places, other.places])
        return Resamples(self.stream, places, self.problems + other.problems)


def resample(
    embed: Embedder,
    count: int,
    *,
    stream: Stream = HALVES,
    first: int = 0,
    seed: int = 0,
    strict: bool = False,
    executor: Executor | None = None,
    on_progress: OnProgress = silent,
) -> Resamples:
    """Embed random halves of the data, and place the other points in each embedding.

    Parameters
    ----------
    embed : Embedder
        Holds the data, and embeds each half.
    count, first : int
        Resamples first, ..., first + count - 1 of the stream are computed.
    stream : Stream
        The sequence of random halves, which together with the seed determines every half.
    seed : int
        In [0, 2^64).
    strict : bool
        Whether the error of a half that cannot be embedded is raised; otherwise its positions are NaN, and the result's
        `problems` have its message.
    executor : concurrent.futures.Executor, optional
        Threads or processes that compute the resamples, with the same bits. Progress is then reported only after each
        resample.
    on_progress
        Called with (resamples done, count, name of the stream), also within a resample. An exception that it raises
        cancels the computation.

    Raises
    ------
    GlleError
        If half of the points are too few, or a number is out of range. With `strict`, also the error of a half that
        cannot be embedded.

    """
    count, first = check_integer("count", count, 0), check_integer("first", first, 0)
    seed = check_integer("seed", seed, 0, counter=True)
    if first + count > _RESAMPLES_PER_STREAM:
        raise InvalidParameterError(
            f"Resamples {first} to {first + count - 1} are beyond the {_RESAMPLES_PER_STREAM:,} resamples of one seed.",
            remedy="Give a smaller first number, or another seed.",
        )
    embed.require_possible()
    samples = (draw_sample(embed, stream, seed, number) for number in range(first, first + count))
    results: Iterator[NDArray[np.float64] | GlleError]
    if executor is None:
        reports = (partial(_repeat, on_progress, done, count, stream.name) for done in range(count))
        results = map(partial(_embed, embed), samples, reports)
    else:
        results = executor.map(partial(_embed, embed), samples)
    places, problems = np.full((count, *embed.shape), np.nan), []
    for done, result in enumerate(results):
        if not isinstance(result, GlleError):
            places[done] = result
        elif strict:
            raise result
        else:
            problems.append(result.text)
        on_progress(done + 1, count, stream.name)
    return Resamples(stream, places, tuple(problems))


def draw_sample(embed: Embedder, stream: Stream, seed: int, number: int) -> Sample:
    """Return the random half of resample `number`, which depends only on the embedder, the stream and the seed."""
    counter = stream.number * _RESAMPLES_PER_STREAM + (number // 2 if stream.paired else number)
    rng = generator(seed, counter)
    is_second = stream.paired and number % 2 == 1
    size = len(embed.rows) // 2
    if embed.blocks is None:
        order = rng.permutation(len(embed.rows))
        chosen = np.sort(embed.rows[order[-size:] if is_second else order[:size]])
    else:
        _, block = np.unique(embed.blocks[embed.rows], return_inverse=True)
        order = rng.permutation(int(block.max()) + 1)
        reached = np.cumsum(np.bincount(block)[order])
        last = np.argmin(np.abs(reached - size))
        in_first = np.isin(block, order[: last + 1])
        chosen = np.sort(embed.rows[~in_first if is_second else in_first])
    others = np.setdiff1d(np.arange(embed.shape[0]), chosen, assume_unique=True)
    return Sample(stream, number, chosen, others)


def _embed(embed: Embedder, sample: Sample, on_progress: OnProgress = silent) -> NDArray[np.float64] | GlleError:
    try:
        return embed(sample, on_progress)
    except GlleError as error:
        return error


def _repeat(on_progress: OnProgress, count: int, total: int, name: str, _done: int, _total: int, _stage: str) -> None:
    """Report the number of finished resamples again, so that `on_progress` can cancel a resample that is under way.

    The arguments with an underscore are the progress within the resample, which is not reported.
    """
    on_progress(count, total, name)


@dataclass(frozen=True, eq=False)
class PosteriorEmbedder(Embedder):
    """Embeds random halves of a posterior's points, or of its landmarks, by LLE with the posterior's parameters.

    A disconnected neighbor graph of a half is bridged, for any value of `FitSpec.disconnected`. The other points are
    placed by their LLE weights on the half, and the embedding is rotated to the reference.

    Attributes
    ----------
    points : (n, c) float64, Distances or SparsePoints
        All points, scaled for the computation.
    spec : FitSpec
    reference : (n, p) float64, optional
        Reference embedding to which embeddings of halves are rotated; None for no rotation.
    landmarks : (m,) int32, optional
        Rows from which halves are drawn; None for all rows.

    """

    points: Data
    spec: FitSpec
    reference: NDArray[np.float64] | None
    landmarks: NDArray[np.int32] | None = None

    @classmethod
    def from_posterior(cls, posterior: Posterior, X: ArrayLike) -> Self:
        """Return the embedder of random halves of a posterior's training data X (n, d).

        Raises
        ------
        InvalidParameterError
            For a posterior of the published variant, for one that was fitted with neighbors of the caller, or if half
            of the points are too few.
        DataMismatchError
            If X is not the data of the fit.

        """
        has_given_neighbors = bool(posterior.diagnostics.figures.get("given_neighbors"))
        if obstacle := resampling_obstacle(posterior.spec, posterior.n_points, given_neighbors=has_given_neighbors):
            raise obstacle
        require_training_data(X, posterior.data_sha256)
        points = locate(finite_data(X), posterior.spec)
        return cls(points, posterior.spec, posterior.embedding, posterior.landmarks)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""
        return len(self.points), self.spec.n_components

    @property
    def rows(self) -> NDArray[np.intp]:
        """Row numbers of the points from which random halves are drawn: of the landmarks, or else of all points."""
        return super().rows if self.landmarks is None else self.landmarks.astype(np.intp)

    def require_possible(self) -> None:
        """Raise `InvalidParameterError` if the parameters do not allow halves, or a half would have too few points."""
        if obstacle := resampling_obstacle(self.spec, len(self.points)):
            raise obstacle

    def _of_rows(self, rows: NDArray[np.intp]) -> Self:
        points = self.points.at(rows) if isinstance(self.points, Distances) else self.points[rows]
        reference = None if self.reference is None else self.reference[rows]
        return replace(self, points=points, reference=reference, landmarks=None)

    @cached_property
    def _near(self) -> NDArray[np.int32]:
        """The 3 k nearest points of each point (n, 3 k), from which neighbors in random halves are taken."""
        assert isinstance(self.points, np.ndarray)
        return kneighbors(self.points, min(_SEARCH_FACTOR * self.spec.n_neighbors, len(self.points) - 1))[0]

    def _nearest_chosen(self, chosen: NDArray[np.intp], k: int) -> NDArray[np.int32] | None:
        """Return each point's k nearest points (n, k) in a random half, as indices into `chosen`, the half's rows.

        They are picked from the 3 k neighbors among all points, which are already known (`_near`). The result is None
        if the half has to be searched anew: because the search is approximate, because tangent noise (`FitSpec.noise`)
        needs more neighbors than k, because the data are not dense points, or because the half is small.
        """
        is_usual = self.spec.search == "exact" and self.spec.noise == "isotropic"
        if not (is_usual and isinstance(self.points, np.ndarray) and _SEARCH_FACTOR * len(chosen) >= self.shape[0]):
            return None
        return nearest_in_sample(self.points, np.arange(self.shape[0]), self._near, chosen, k)

    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:
        """Embed the points of a sample, place the other points, and return the positions (n, p) of all points."""
        k = self.spec.n_neighbors
        spec = replace(self.spec, disconnected="bridge", landmarks="all")
        known, rest = parts_of(self.points, sample)
        near = self._nearest_chosen(sample.chosen, k)
        nearest = kneighbors(known, k, on_progress, spec.search)[0] if near is None else near[sample.chosen]
        fitted = reference_embedding(known, nearest, spec, on_progress)
        of_others = None if near is None else near[sample.others]
        extension = attach(known, rest, spec, fitted.flatness, of_others).extension()
        placed = np.empty(self.shape)
        placed[sample.chosen], placed[sample.others] = fitted.embedding, extension.embed(fitted.embedding)
        if self.reference is None:
            return placed
        return rotate(placed, procrustes_rotation(placed, self.reference))


@dataclass(frozen=True, eq=False)
class FunctionEmbedder(Embedder):
    """Embeds random halves of the data by a function of the caller, and places the other points by their LLE weights.

    Attributes
    ----------
    function : callable
        Called with a random half of the points (m, d), returns an embedding (m, p).
    X : (n, d) float64
        The data.
    n_components : int
        Number of columns p of the function's embeddings.

    """

    function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    X: NDArray[np.float64]
    n_components: int = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, p) of an embedding of all points."""
        return len(self.X), self.n_components

    def require_possible(self) -> None:
        """Raise `InvalidParameterError` for fewer than 20 points."""
        require_enough_for_halves(len(self.X))

    def _of_rows(self, rows: NDArray[np.intp]) -> Self:
        return replace(self, X=self.X[rows])

    def __call__(self, sample: Sample, on_progress: OnProgress) -> NDArray[np.float64]:  # noqa: ARG002 # no progress
        """Embed the points of a sample, place the other points, and return the positions (n, p) of all points."""
        points = checked_matrix(self.X)
        return placed_by_weights(points, sample, self.function(points[sample.chosen]))


def resampling_obstacle(
    spec: FitSpec, n: int, source: Source = "posterior", *, given_neighbors: bool = False
) -> InvalidParameterError | None:
    """Return the error that says why random halves cannot calibrate a posterior of n points, or None if they can.

    `source` is the distribution that is drawn from, and `given_neighbors` says whether the posterior was fitted with
    neighbors of the caller.
    """
    if source != "posterior":
        return InvalidParameterError(
            f"{Way('scale', 'auto')} is calibrated for the posterior, not for the prior.",
            remedy=f"Use {Way('source', 'posterior')}, or give the scale as a number.",
        )
    if given_neighbors:
        return InvalidParameterError(
            "The scale cannot be calibrated, because you gave the neighbors of this fit: random halves of the data "
            "would need neighbors of their own.",
            remedy="Give the scale as a number, or let the fit find the neighbors.",
        )
    if spec.variant != "constrained":
        return InvalidParameterError(
            "Only constrained posteriors can be calibrated.",
            remedy=f"Fit with {Way('variant', 'constrained')}.",
        )
    sampled, unit = (n, "points") if isinstance(spec.landmarks, str) else (min(n, spec.landmarks), "landmarks")
    if sampled // 2 <= max(spec.n_neighbors, spec.n_components + 2):
        return InvalidParameterError(
            f"Half of {sampled} {unit} is too few for {Way('n_neighbors', spec.n_neighbors)}.",
            remedy=f"Give {Way('n_neighbors')} below {sampled // 2 - 1}, or more {unit}.",
        )
    return None


def require_enough_for_halves(n: int) -> None:
    """Raise `InvalidParameterError` for fewer than 20 points, of which a half would be too few to embed."""
    if n < MIN_HALVED_POINTS:
        raise InvalidParameterError(
            f"{n} points are too few for half-samples.",
            remedy=f"Give at least {MIN_HALVED_POINTS} points.",
            details={"n_points": n, "least": MIN_HALVED_POINTS},
        )


def placed_by_weights(points: Data, sample: Sample, Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions (n, p) of all points, from the positions Y (m, p) of a random half of them.

    LLE weights on the points of the half place the other points.
    """
    known, rest = parts_of(points, sample)
    placed = np.empty((len(points), Y.shape[1]))
    placed[sample.chosen] = Y
    placed[sample.others] = placing_weights(known, rest).embed(Y)
    return placed


def placing_weights(
    known: Data, rest: Data, count: int = PLACING_NEIGHBORS, nearest: NDArray[np.int32] | None = None
) -> Extension:
    """Return the LLE weights of points `rest` (m, d) on their `count` nearest points in `known` (n, d).

    If n is at most `count`, there are n - 1 neighbors. `nearest` (m, k) are the neighbors, if they are known already.
    """
    spec = FitSpec(n_neighbors=min(count, len(known) - 1), reg=_REG)
    return attach(known, rest, spec, nearest=nearest).extension()


def parts_of(points: Data, sample: Sample) -> tuple[Data, Data]:
    """Return the points of a random half of the data, and the other points.

    For `Distances`, the first result has the distances within the half, the second the distances from the other points
    to the half.
    """
    if isinstance(points, Distances):
        return points.at(sample.chosen), points.of_others(sample.others, sample.chosen)
    if isinstance(points, SparsePoints):
        return points[sample.chosen], points[sample.others]
    return np.ascontiguousarray(points[sample.chosen]), points[sample.others]
