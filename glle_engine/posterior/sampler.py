r"""Draw embeddings from a posterior; a draw has the same bits alone and among several.

With landmarks, a draw solves the eigenproblem for the m landmarks, and places the other points by drawn weights on the
landmarks. The key (seed, index) of a draw selects a random stream of standard normal numbers, which are used in rows of
k numbers, one row for each point. Rows are generated in groups of four: the m landmarks use the first
:math:`4 \lceil m / 4 \rceil` rows, of which up to three at the end remain unused, and the other points use the rows
after these. The random numbers of a point therefore depend on (seed, index) and the point only.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_choice, check_integer, check_positive
from glle_engine.base.results import PointResult, brief
from glle_engine.base.spec import Align, Source
from glle_engine.base.texts import Way
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.linalg import LANES
from glle_engine.linalg.procrustes import aligned_to
from glle_engine.weights.gaussian import POINTS_PER_GROUP, place, sample_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.solver import LaneSolver
    from glle_engine.eigen.eigenpairs import Eigenpairs
    from glle_engine.eigen.eigenproblem import Eigenproblem
    from glle_engine.weights.gaussian import WeightDistribution

T = TypeVar("T")
_BLOCK_ENTRIES = 1 << 22  # points are placed in blocks whose covariance factors have this many entries: 32 MB


def no_prior() -> InvalidParameterError:
    """Return the error for draws from the prior after a fit with variant="published" and method="direct".

    This method has no prior.
    """
    return InvalidParameterError(
        "The published direct method has no prior to draw from.",
        remedy=f"Use {Way('source', 'posterior')}, or {Way('method', 'em')}, or {Way('variant', 'constrained')}.",
    )


@dataclass(frozen=True)
class DrawKey:
    """Index, seed and scale, which identify one draw of a posterior; numpy integers become int, and numpy floats float.

    Attributes
    ----------
    index, seed : int
        Together they select the random numbers of the draw; both are in [0, 2^64).
    scale : float
        Factor on the covariance of the weights, >= 0.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain.

    """

    index: int
    seed: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", check_integer("index", self.index, 0, counter=True))
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, counter=True))
        if isinstance(self.scale, str) and self.scale == "auto":
            raise InvalidParameterError(
                f"{Way('scale', 'auto')} needs the data of the fit, which a posterior of glle_engine does not keep.",
                remedy="Calibrate once with the data X and give the number: "
                "scale=glle_engine.reliability.calibration.calibrate(posterior, X).scale. Posteriors of glle.fit know "
                "their data and take 'auto'.",
            )
        object.__setattr__(self, "scale", check_positive("scale", self.scale, zero=True))


@dataclass(frozen=True, eq=False)
class Draw(PointResult):
    """One embedding drawn from a posterior; the posterior and the first five fields determine every bit of it.

    Attributes
    ----------
    index, seed, scale
        See `DrawKey`.
    source : {"posterior", "prior"}
        The distribution from which the weights were drawn.
    align : {"procrustes", "none"}
        Whether the embedding was rotated to the reference embedding.
    embedding : (n, p) float64
        (1/n) Y^T Y = I. With variant="constrained", columns sum to zero. With landmarks, both hold for the landmarks.
    eigenvalues : (p,) float64, ascending
        Eigenvalues of M = (I - W)^T (I - W), without the eigenvalue of the constant vector.
    diagnostics : dict
        JSON-able: how the draw was solved (`glle_engine.eigen.eigenpairs.Eigenpairs.diagnostics`), under "rejected" why
        the results of other solvers were rejected, and the Procrustes "disparity" to the reference embedding.

    """

    index: int
    seed: int
    scale: float
    source: Source
    align: Align
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    diagnostics: dict[str, Any]

    __repr__ = brief


@dataclass(frozen=True, eq=False)
class Placement:
    """Places the points that are not landmarks in a draw of the landmarks, by drawn weights on the landmarks.

    Landmarks are the subset of the points for which the eigenproblem is solved.

    Attributes
    ----------
    distribution : WeightDistribution
        The distribution of the weights of all n points.
    neighbors : (n, k) int32
        The nearest landmarks of each point, as row numbers of the data.
    landmarks : (m,) int32
        The row numbers of the landmarks, ascending.

    """

    distribution: WeightDistribution
    neighbors: NDArray[np.int32]
    landmarks: NDArray[np.int32]

    @cached_property
    def others(self) -> NDArray[np.intp]:
        """Row numbers of the points that are not landmarks, ascending."""
        return np.setdiff1d(np.arange(len(self.neighbors)), self.landmarks, assume_unique=True)

    @cached_property
    def _places(self) -> NDArray[np.int32]:
        """The position (n,) of each landmark in `landmarks`; the entries of other points have no meaning."""
        places = np.zeros(len(self.neighbors), np.int32)
        places[self.landmarks] = np.arange(len(self.landmarks))
        return places

    def positions(self, points: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the neighbors (r, k) of the points with row numbers `points` (r,), as positions in `landmarks`."""
        return np.asarray(self._places[self.neighbors[points]])

    def complete(self, known: NDArray[np.float64], key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Draw the weights of the points that are not landmarks, and return the weights (n, k) of all points in a draw.

        `known` (m, k) are the weights of the landmarks in this draw, and `source` is "posterior" or "prior".
        """
        weights = np.empty(self.neighbors.shape)
        weights[self.landmarks] = known
        for rows, counter in self._blocks():
            points = self.others[rows]
            weights[points] = self.distribution.at(points).draw((key.seed, key.index), key.scale, source, counter)
        return weights

    def place(self, draws: list[Draw]) -> list[Draw]:
        """Return draws with the positions of all points, from `draws` with the positions of the landmarks only.

        All draws must be from the same distribution, posterior or prior (`Draw.source`).
        """
        wholes = [np.empty((len(self.neighbors), draw.embedding.shape[1])) for draw in draws]
        for whole, draw in zip(wholes, draws, strict=True):
            whole[self.landmarks] = draw.embedding
        for start in range(0, len(draws), LANES):
            self._fill(draws[start : start + LANES], wholes[start : start + LANES])
        return [replace(draw, embedding=whole) for draw, whole in zip(draws, wholes, strict=True)]

    def _fill(self, draws: list[Draw], wholes: list[NDArray[np.float64]]) -> None:
        """Write the positions of the points that are not landmarks into `wholes`, the embedding (n, p) of each draw.

        `draws` have the positions of the landmarks. There are at most `LANES` draws, because compiled code places this
        many at once.
        """
        filled = [*draws, *[draws[0]] * (LANES - len(draws))]  # unused lanes repeat the first draw
        p = draws[0].embedding.shape[1]
        values = np.ascontiguousarray(np.stack([draw.embedding for draw in filled], axis=2)).ravel()
        streams = [(draw.seed, draw.index, math.sqrt(draw.scale)) for draw in filled]
        of_all = self.distribution.gaussian("posterior") if draws[0].source == "posterior" else None
        for rows, counter in self._blocks():
            points = self.others[rows]
            if of_all is None:  # the prior's factors of all points would need much memory
                weights = sample_lanes(streams, *self.distribution.at(points).gaussian("prior"), counter)
            else:
                weights = sample_lanes(streams, *of_all, counter, points)
            places = np.empty(len(points) * p * LANES)
            place((0,) * LANES, self.positions(points), weights.ravel(), values, places)
            for lane, whole in enumerate(wholes):
                whole[points] = places.reshape(-1, p, LANES)[:, :, lane]

    def _blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield pairs (rows, counter), which split the points that are not landmarks (`others`) into blocks.

        `rows` is a slice of `others`, short enough for the covariance factors of its points to take 32 MB at most.
        `counter` says where the random numbers of these points begin in a draw's random stream: each counter of the
        stream gives four numbers.
        """
        k, n = self.neighbors.shape[1], len(self.others)
        size = POINTS_PER_GROUP * max(1, _BLOCK_ENTRIES // (POINTS_PER_GROUP * k * k))
        first = -(-len(self.landmarks) // POINTS_PER_GROUP)
        for start in range(0, n, size):
            yield slice(start, min(start + size, n)), (first + start // POINTS_PER_GROUP) * k


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws weights and embeddings from the distribution of a posterior.

    Attributes
    ----------
    distribution : WeightDistribution
        The distribution of the weights.
    problem : Eigenproblem
        Solves for the embedding of one draw.
    solver : LaneSolver or None
        Solves several draws at once; None if draws are solved one by one.
    reference : (n, p) float64
        The embedding to which draws are rotated.
    placement : Placement, optional
        With landmarks (a subset of the points), places the other points. All attributes above then belong to the
        landmarks. None if there are no landmarks.

    """

    distribution: WeightDistribution
    problem: Eigenproblem
    solver: LaneSolver | None
    reference: NDArray[np.float64]
    placement: Placement | None = None

    def weights(self, key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Return the weights (n, k) of all points in one draw, from the posterior or the prior (`source`).

        Raises `InvalidParameterError` for another `source`, or if there is no prior.
        """
        self._check_source(source)
        weights = self._weights(key, source)
        return weights if self.placement is None else self.placement.complete(weights, key, source)

    def draws(self, keys: Iterable[DrawKey], source: Source, align: Align) -> Iterator[Draw]:
        """Return an iterator over the draws with these keys. It computes four draws at a time, when they are asked for.

        Raises `InvalidParameterError` for unknown values of `source` or `align`, or if there is no prior.
        """
        self._check_source(source)
        check_choice("align", align, get_args(Align))
        groups = _split(keys, LANES if self.solver else 1)
        drawn = itertools.chain.from_iterable(self._solve(group, source, align) for group in groups)
        if self.placement is None:
            return drawn
        return itertools.chain.from_iterable(map(self.placement.place, _split(drawn, LANES)))

    def _weights(self, key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Return the weights of one draw, for all points or, if there are landmarks, for the landmarks only."""
        return self.distribution.draw((key.seed, key.index), key.scale, source)

    def _check_source(self, source: Source) -> None:
        check_choice("source", source, get_args(Source))
        if source == "prior" and self.distribution.prior_factor is None:
            raise no_prior()

    def _solve(self, keys: list[DrawKey], source: Source, align: Align) -> list[Draw]:
        """Return the draws of at most `LANES` keys, which are solved together.

        If the solution of a draw is rejected as inaccurate, the draw is solved again, alone.
        """
        if self.solver is None:
            return [self._draw(key, source, align, self._alone(key, source)) for key in keys]
        streams = [(key.seed, key.index, math.sqrt(key.scale)) for key in keys]
        results = self.solver.solve(
            streams, *(self._prior if source == "prior" else self.distribution.gaussian(source))
        )
        return [
            self._draw(key, source, align, self._alone(key, source, rejected) if pairs is None else pairs)
            for key, (pairs, rejected) in zip(keys, results, strict=True)
        ]

    @cached_property
    def _prior(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean (n, k) and covariance factor (n, k, k) of the prior; cached, because computing them takes time."""
        return self.distribution.gaussian("prior")

    def _alone(self, key: DrawKey, source: Source, rejected: Sequence[str] = ()) -> Eigenpairs:
        """Return the eigenpairs of one draw, without the solver that computes several draws at once.

        If that solver has computed this draw already, `rejected` says why its results were rejected as inaccurate.
        """
        return self.problem.solve(self._weights(key, source), self.reference.shape[1], rejected=rejected)

    def _draw(self, key: DrawKey, source: Source, align: Align, pairs: Eigenpairs) -> Draw:
        """Return the draw whose embedding is the eigenvectors in `pairs`, scaled to unit variance (GLLE Eq. 37-43).

        The embedding is rotated to the reference unless `align` is "none".
        """
        embedding = math.sqrt(len(pairs.vectors)) * pairs.vectors
        aligned, disparity = aligned_to(embedding, self.reference, centered=self.distribution.constrained)
        embedding = aligned if align == "procrustes" else sign_convention(embedding)
        diagnostics = dict(pairs.diagnostics, disparity=disparity)
        return Draw(key.index, key.seed, key.scale, source, align, embedding, pairs.values, diagnostics)


def _split(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size` items each; the last list may be shorter."""
    remaining = iter(items)
    return iter(lambda: list(itertools.islice(remaining, size)), [])
